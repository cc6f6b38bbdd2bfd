#!/usr/bin/env bash
# Runs every test that a change must pass, then says how long set-up, compiling and tests took.
#
# Usage: test.sh    Run by `make test`. Fails if a test fails, or if another command would compile a crate again.

set -uo pipefail
cd "$(dirname "$0")/.." || exit
cargo=${CARGO:-cargo}

began=$SECONDS
scripts/setup.sh build load tests || exit 1
set_up=$SECONDS
"$cargo" test --release --workspace --no-run || exit 1
compiled=$SECONDS
failed=()
"$cargo" test --release --workspace --no-fail-fast || failed+=("cargo test")
tested=$SECONDS
if scripts/arm-tools.sh --ready; then
  CARGO=$cargo scripts/test-arm.sh quick || failed+=("scripts/test-arm.sh quick")
else
  echo "SKIPPED: the kernels on an emulated ARM processor; scripts/arm-tools.sh installs the tools"
fi
scripts/check-rebuilds || failed+=(scripts/check-rebuilds)
"${CARGO_TARGET_DIR:-target}"/release/repartee-load hostile --quick --quiet || failed+=("repartee-load hostile")
printf 'make test: set-up %d s, compiling %d s, tests %d s\n' \
  $((set_up - began)) $((compiled - set_up)) $((tested - compiled))
if [ ${#failed[@]} -gt 0 ]; then
  # The last line, because what failed may stand thousands of lines above.
  printf 'make test: FAILED: %s\n' "$(IFS=';'; echo "${failed[*]}")"
  exit 1
fi
