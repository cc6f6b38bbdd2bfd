#!/usr/bin/env bash
# The tests that need the feature `cuda`: the contract of kernels, models and the gateway on the simulated device (docs/cuda.md), and the steps
# of on-gpu.sh, tried on it.
#
# Usage: test-cuda.sh    Needs the parts build and cuda of setup.sh.

set -euo pipefail
cd "$(dirname "$0")/.."
scripts/on-simcuda "${CARGO:-cargo}" test --release -p repartee-kernels -p repartee-engine -p repartee --features repartee/cuda \
  --no-fail-fast --test cuda --test cuda_graphs --test cuda_memory --test cuda_streams --test step_ops --test steady --test parity --test code2wav
scripts/on-gpu.sh pack
OUT="${CARGO_TARGET_DIR:-target}/report/on-simcuda" scripts/on-simcuda scripts/on-gpu.sh --tiny all
