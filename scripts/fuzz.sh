#!/usr/bin/env bash
# Runs the fuzz targets in libFuzzer, without a sanitizer on the stable tool chain: tests/fuzz has the targets and their bounds.
#
# Usage: fuzz.sh SECONDS [TARGET...]    SECONDS for each target, all targets if none is named. Needs the part fuzz of setup.sh. Further
#                                       arguments of libFuzzer are in REPARTEE_FUZZ_ARGS. Keeps new inputs in target/fuzz/corpus, and
#                                       inputs that fail in target/fuzz/artifacts.

set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
all=(sdp events chat multipart sip rtp checkpoint sound)
[ $# -gt 0 ] || set -- "${all[@]}"
export PATH="$PWD/target/tools/cargo-fuzz/bin:$PATH"
export RUSTFLAGS=-Awarnings
fuzz=(--target-dir target/fuzz/build --sanitizer none)
read -r -a more <<<"${REPARTEE_FUZZ_ARGS:-}"

# The versions that ship, and libFuzzer's beside them.
cp Cargo.lock fuzz/Cargo.lock
for name in "$@"; do "${CARGO:-cargo}" fuzz build "${fuzz[@]}" "$name"; done

status=0
for name in "$@"; do
  seeds=("fuzz/seeds/$name")
  # tests/fuzz/src/seeds.rs names the same folders.
  case $name in
    sdp) seeds+=(gateway/sdp/tests/offers/recorded gateway/sdp/tests/offers/rebuilt) ;;
    checkpoint) seeds+=(engine/checkpoint/tests/data) ;;
  esac
  found=target/fuzz/corpus/$name failed=target/fuzz/artifacts/$name log=target/fuzz/$name.log
  mkdir -p "$found" "$failed"
  options=(-max_len=16384 -len_control=0 -timeout=20 -rss_limit_mb=2048 "-max_total_time=$seconds" "-artifact_prefix=$failed/" "${more[@]}")
  [ ! -e "fuzz/dictionaries/$name.dict" ] || options+=("-dict=fuzz/dictionaries/$name.dict")
  if "${CARGO:-cargo}" fuzz run "${fuzz[@]}" "$name" "$found" "${seeds[@]}" -- "${options[@]}" >"$log" 2>&1; then
    echo "fuzz: $name: $(grep -o 'Done [0-9]* runs in [0-9]* second(s)' "$log" || tail -n 1 "$log")"
  else
    status=1
    echo "fuzz: $name FAILED, see $log and $failed:"
    grep -E 'panicked at|SUMMARY|Test unit written' -A 1 "$log" | head -n 20 || true
  fi
done
exit $status
