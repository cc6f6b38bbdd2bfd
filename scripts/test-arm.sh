#!/usr/bin/env bash
# Cross-compiles for 64-bit ARM and tests it in an emulator, with processors that have all, some or none of the optional instructions.
#
# Usage: test-arm.sh [STEP]...    installs the tools, then runs the steps; without any: kernels units parity call
#   kernels   the digests of every operation on four processors, and every check at each level of two of them
#   units     the unit tests of the gateway, the engine and every other crate
#   parity    Qwen3-Omni against its reference implementation
#   call      a spoken question to the demo model: a server and a caller, both emulated
#   quick     the digests on one processor; installs nothing. `make test` runs this where the tools are already there

set -euo pipefail
cd "$(dirname "$0")/.."

# The load generator's WebRTC links the system's OpenSSL, which there is none of for ARM here.
CRATES=(--release --workspace --exclude repartee-load --exclude repartee-tests)
BUILT=${CARGO_TARGET_DIR:-target}/aarch64-unknown-linux-gnu/release

on_arm() { scripts/on-arm "${CARGO:-cargo}" "$@"; }

# Unit tests that cannot run in an emulator: test, then the reason.
NOT_EMULATED=(
  "cpu::huge_pages::tests::large_weights_lie_in_huge_pages: the emulator passes no advice on huge pages to the system"
  "check::tests::this_repository_has_no_findings: the lint of words, the same everywhere, reads every source, which takes minutes"
  "check::tests::every_allowed_finding_is_needed: as above"
  "check::tests::every_circle_of_files_is_listed: as above"
  "check::tests::every_copied_function_is_listed: as above"
)

# bits CPU: the digests of every operation, at each level of the processor.
bits() { ARM_CPU=$1 on_arm test "${CRATES[@]}" --test cpu bits::; }

# levels CPU BEST: every check at each level of the processor, which must have BEST.
levels() {
  local said
  said=$(ARM_CPU=$1 on_arm test "${CRATES[@]}" --test levels | tee >(cat >&2))
  [[ $said == *", $2, 0 failed"* ]] || { echo "test-arm: FAILED: level $2 was not tested on $1"; return 1; }
}

kernels() {
  for cpu in max neoverse-n1 cortex-a72 cortex-a53; do bits "$cpu"; done
  levels max neon+i8mm
  # An instruction of another level ends the program there.
  levels cortex-a72 neon
  # A level that is asked for is the highest.
  REPARTEE_SIMD=neon on_arm test "${CRATES[@]}" --test levels -- greatest
}

units() {
  local entry skipped=() listed
  on_arm test "${CRATES[@]}" --lib --no-run
  listed=$(on_arm test --quiet "${CRATES[@]}" --lib -- --list)
  for entry in "${NOT_EMULATED[@]}"; do
    # A name that no test has would hide that one was renamed.
    grep -qxF "${entry%%: *}: test" <<<"$listed" || { echo "test-arm: FAILED: no unit test ${entry%%: *}"; return 1; }
    skipped+=(--skip "${entry%%: *}")
  done
  on_arm test "${CRATES[@]}" --lib --no-fail-fast -- "${skipped[@]}"
  printf 'SKIPPED: %s\n' "${NOT_EMULATED[@]}"
}

parity() {
  on_arm test "${CRATES[@]}" --test parity -- stages::every_tensor stages::logits stages::chunked
}

call() {
  local folder address='' said question=tests/questions/capital-of-canada.wav
  on_arm build "${CRATES[@]}" --bin repartee
  folder=$(mktemp -d)
  scripts/on-arm qemu-aarch64 "$BUILT/repartee" serve --listen 127.0.0.1:0 >"$folder/log" 2>&1 &
  # shellcheck disable=SC2064 # The values of now.
  trap "kill $! 2>/dev/null || true; rm -rf '$folder'" EXIT
  for ((i = 0; i < 300; i++)); do
    address=$(sed -n 's/.*Talk to it at http:\/\/\([^/]*\).*/\1/p' "$folder/log")
    [ -z "$address" ] || break
    kill -0 $! || { cat "$folder/log"; echo "test-arm: FAILED: the server ended"; return 1; }
    sleep 1
  done
  [ -n "$address" ] || { cat "$folder/log"; echo "test-arm: FAILED: the server was not ready within 300 s"; return 1; }
  said=$(scripts/on-arm qemu-aarch64 "$BUILT/repartee" call "$address" "$question" "$folder/answer.wav")
  printf 'What is the capital of Canada? %s (%d bytes of sound)\n' "$said" "$(stat -c %s "$folder/answer.wav")"
  [[ $said == *Ottawa* ]] || { echo "test-arm: FAILED: that is no answer"; return 1; }
  [ "$(stat -c %s "$folder/answer.wav")" -gt 48000 ] || { echo "test-arm: FAILED: less than a second of sound"; return 1; }
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(kernels units parity call)
[ "${steps[0]}" = quick ] || scripts/arm-tools.sh
for step in "${steps[@]}"; do
  began=$SECONDS
  case $step in
    quick) bits max ;;
    kernels | units | parity | call) "$step" ;;
    *) echo "test-arm: no step $step"; exit 1 ;;
  esac
  printf 'test-arm: %s: passed in %d s, compiling included\n' "$step" $((SECONDS - began))
done
