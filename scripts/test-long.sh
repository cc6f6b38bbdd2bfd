#!/usr/bin/env bash
# Runs every test, including the long ones: those of the workspace (with the simulated CUDA device's own), those of the features `cuda`
# and `cluster` (without the minute that has no NATS), each step of the demo model's recipe on seconds of data, then each fuzz target for a minute.
#
# Usage: test-long.sh    Needs the parts build, load, tests, phones, recipe, cuda, fuzz, thinkers, nats and haproxy of setup.sh. Runs all of them, also when some fail.

set -uo pipefail
cd "$(dirname "$0")/.." || exit
status=0
"${CARGO:-cargo}" test --release --workspace --no-fail-fast -- --include-ignored || status=1
scripts/test-cuda.sh || status=1
cluster=(test --release --workspace --features repartee/cluster --no-fail-fast)
"${CARGO:-cargo}" "${cluster[@]}" --test directory --test cluster || status=1
"${CARGO:-cargo}" "${cluster[@]}" --test cluster_processes -- --test-threads=1 --nocapture --skip calls_go_on_without_nats || status=1
target/tools/recipe/bin/python -m unittest discover --verbose --start-directory models/demo/recipe/tests \
  --top-level-directory models/demo/recipe || status=1
scripts/fuzz.sh 60 || status=1
exit "$status"
