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
status=0
"$cargo" test --release --workspace --no-fail-fast || status=1
tested=$SECONDS
scripts/check-rebuilds || status=1
"${CARGO_TARGET_DIR:-target}"/release/repartee-load hostile --quick --quiet || status=1
printf 'make test: set-up %d s, compiling %d s, tests %d s\n' \
  $((set_up - began)) $((compiled - set_up)) $((tested - compiled))
exit $status
