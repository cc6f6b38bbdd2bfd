#!/usr/bin/env bash
# Runs the tests that need the feature `cuda`, on the simulated device (docs/cuda.md): kernels, models and the gateway, then the steps of
# on-gpu.sh.
#
# Usage: test-cuda.sh    Needs the parts build and cuda of setup.sh.

set -euo pipefail
cd "$(dirname "$0")/.."
scripts/on-simcuda "${CARGO:-cargo}" test --release -p repartee-kernels -p repartee-engine -p repartee --features repartee/cuda \
  --no-fail-fast --test cuda --test cuda_graphs --test cuda_memory --test cuda_streams --test step_ops --test steady --test parity
scripts/on-gpu.sh pack
OUT="${CARGO_TARGET_DIR:-target}/report/on-simcuda" scripts/on-simcuda scripts/on-gpu.sh --tiny all
