#!/usr/bin/env bash
# Tests and benchmarks for a machine with a GPU. That machine needs a driver, but no network, no Rust and no CUDA toolkit.
#
# Usage: on-gpu.sh pack               Builds the binaries (parts build and cuda of setup.sh) and packs them: target/on-gpu.tar.xz, under 60 MiB.
#        on-gpu.sh [--tiny] STEP...   Runs steps with the packed binaries, in a copy of this tree. Each has its own time limit, in seconds below;
#                                     the others continue when one fails. `all` is the first five, at most nine minutes.
#
#   facts      20   the device, its driver, the machine
#   kernels    90   every operation compared with the processor's, graphs, memory
#   parity    120   the reference's fixtures, codec streams, and whole turns compared with the processor's
#   sanitizer  90   compute-sanitizer over the kernels, if it is installed
#   size      200   first sound and RTF of 1, 8 and 64 sessions with random weights of the published dimensions
#   peer      100   the same steps by the reference implementation, if python3 has torch and transformers
#   profile   100   time and bytes of each kernel, with two layers of the published dimensions, if Nsight Compute is installed
#
# Logs, size.json and on-gpu.json (steps with their results) go to $OUT, or target/report/on-gpu. --tiny uses the demo's dimensions, two
# sessions and some of the tests, to try the steps with scripts/on-simcuda.

set -uo pipefail
cd "$(dirname "$0")/.." || exit
target=${CARGO_TARGET_DIR:-target}
archive=$target/on-gpu.tar.xz
packed=$target/on-gpu
most=$((60 << 20))

pack() {
  set -e
  local cargo=${CARGO:-cargo} list name path bytes
  "$cargo" build --release -p repartee-kernels -p repartee-engine -p repartee --features repartee/cuda --bin repartee
  list=$("$cargo" test --release -p repartee-kernels -p repartee-engine -p repartee --features repartee/cuda --no-run --message-format=json \
    --test cuda --test cuda_memory --test cuda_graphs --test step_ops --test parity)
  rm -rf "$packed"
  mkdir -p "$packed"
  strip -o "$packed/repartee" "$target/release/repartee"
  # The gateway's tests start its binary at the build path, so they are not packed.
  while IFS=$'\t' read -r name path; do
    strip -o "$packed/$name" "$path"
  done < <(python3 -c '
import json, sys
for line in sys.stdin:
    built = json.loads(line) if line.startswith("{") else {}
    path = built.get("executable")
    if path and built.get("target", {}).get("kind") == ["test"]:
        crate = built["manifest_path"].split("/")[-2]
        if crate != "gateway":
            print(crate + "-" + built["target"]["name"], path, sep="\t")
' <<<"$list")
  # The binaries hold the same demo model: a dictionary larger than all of them packs it once.
  tar -C "$packed" -cf - . | xz --lzma2=preset=6,dict=192MiB >"$archive"
  bytes=$(stat -c %s "$archive")
  ls -l "$packed"
  echo "$((bytes >> 20)) MiB in $archive"
  [ "$bytes" -lt "$most" ] || { echo "that is more than $((most >> 20)) MiB" >&2; exit 1; }
}

facts() {
  uname -sr
  nproc
  grep -m1 'model name' /proc/cpuinfo
  grep MemTotal /proc/meminfo
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,memory.free,clocks.max.sm,clocks.max.memory,power.limit --format=csv
  else
    echo "there is no nvidia-smi"
  fi
  (cd "$packed" && sha256sum -- *)
}

# tests BINARY FILTER...: runs a packed test binary; with --tiny only the tests of these names.
tests() {
  local binary=$1
  shift
  if [ -n "$tiny" ]; then "$packed/$binary" --test-threads=1 "$@"; else "$packed/$binary" --test-threads=1; fi
}

kernels() {
  local failed=0
  tests kernels-cuda_memory || failed=1
  tests kernels-cuda_graphs || failed=1
  tests kernels-cuda choices attention || failed=1
  [ -n "$tiny" ] || tests kernels-step_ops || failed=1
  return "$failed"
}

parity() {
  local failed=0
  tests engine-parity code2wav || failed=1
  tests engine-cuda refused || failed=1
  return "$failed"
}

sanitizer() {
  local tool installed=(/usr/local/cuda*/bin/compute-sanitizer)
  tool=$(command -v compute-sanitizer || echo "${installed[0]}")
  [ -x "$tool" ] || { echo "there is no compute-sanitizer"; return 3; }
  "$tool" --error-exitcode 9 "$packed/kernels-cuda" --test-threads=1 --skip missing --skip refused
}

size() {
  local of=(--synthetic-weights models/dimensions/qwen3-omni-30b-a3b --sessions "1,8,64" --routing uniform --heard 1 --tokens 64 --sound 8)
  of+=(--set engine.cache_mib=32768 --set engine.session_tokens=512)
  [ -z "$tiny" ] || of=(--synthetic-weights models/demo --layers 1 --sessions "1,2" --routing uniform --heard 0.3 --tokens 2 --sound 0.1
    --set engine.cache_mib=64 --set engine.session_tokens=256)
  "$packed/repartee" bench size --device cuda:0 "${of[@]}" --report "$out/size.json"
}

peer() {
  python3 -c 'import torch, transformers' 2>/dev/null || { echo "python3 has no torch with transformers"; return 3; }
  python3 tests/peers/gpu_steps.py models/dimensions/qwen3-omni-30b-a3b "$out/peer.json"
}

# Every launch until the first steps of all shapes are done; random weights are drawn before and not counted.
profile() {
  local tool installed=(/usr/local/cuda*/bin/ncu)
  tool=$(command -v ncu || echo "${installed[0]}")
  [ -x "$tool" ] || { echo "there is no ncu"; return 3; }
  "$tool" --metrics gpu__time_duration.sum,dram__bytes.sum --kernel-name 'regex:^([^d]|depth)' --cache-control none --launch-count 4000 --csv \
    --log-file "$out/profile.csv" "$packed/repartee" bench size --device cuda:0 \
    --synthetic-weights models/dimensions/qwen3-omni-30b-a3b --layers 2 --sessions 8 --routing uniform --heard 1 --tokens 8 --sound 1 \
    --set engine.cache_mib=4096 --set engine.session_tokens=512 --report "$out/profile.json"
  scripts/kernel-times "$out/profile.csv"
}

limit_of() {
  case $1 in
    facts) echo 20 ;;
    kernels | sanitizer) echo 90 ;;
    parity) echo 120 ;;
    peer | profile) echo 100 ;;
    size) echo 200 ;;
    *) return 1 ;;
  esac
}

# Runs a step in a process of its own, so that `timeout` can end it.
run() {
  local step=$1 limit began ended status result
  limit=$(limit_of "$step")
  [ -z "$tiny" ] || limit=$((limit * 10))
  echo "== $step, at most $limit s"
  began=$(date +%s)
  ON_GPU_TINY=$tiny ON_GPU_OUT=$out timeout --kill-after=5 "$limit" scripts/on-gpu.sh --step "$step" >"$out/$step.log" 2>&1
  status=$?
  ended=$(date +%s)
  case $status in
    0) result=passed ;;
    3) result=absent ;;
    124 | 137) result="out of time" ;;
    *) result=failed ;;
  esac
  tail -n 60 "$out/$step.log"
  rows+=("$(printf '{"step": "%s", "result": "%s", "seconds": %d}' "$step" "$result" $((ended - began)))")
  table+=("$(printf '%-10s %-12s %4d s' "$step" "$result" $((ended - began)))")
  [ "$status" -eq 0 ] || [ "$status" -eq 3 ]
}

tiny=${ON_GPU_TINY:-}
out=${ON_GPU_OUT:-${OUT:-target/report/on-gpu}}
export REPARTEE_ROOT=$PWD
case ${1:-} in
  pack) pack; exit ;;
  --step)
    case $2 in
      facts) facts ;;
      kernels) kernels ;;
      parity) parity ;;
      sanitizer) sanitizer ;;
      size) size ;;
      peer) peer ;;
      profile) profile ;;
      *) exit 2 ;;
    esac
    exit
    ;;
  --tiny) tiny=yes; shift ;;
esac
[ $# -gt 0 ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$*" != all ] || set -- facts kernels parity sanitizer size
for step in "$@"; do limit_of "$step" >/dev/null || { echo "there is no step $step" >&2; exit 2; }; done
if [ ! -x "$packed/repartee" ]; then
  [ -f "$archive" ] || { echo "there is no $archive: on-gpu.sh pack" >&2; exit 2; }
  mkdir -p "$packed"
  tar -C "$packed" -xJf "$archive" 2>/dev/null ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$archive" "$packed" || exit 2
fi
mkdir -p "$out"
rows=() table=() failed=0
for step in "$@"; do run "$step" || failed=1; done
(IFS=,; printf '{"name": "on-gpu", "date": "%s", "steps": [%s]}\n' "$(date -u +%F)" "${rows[*]}") >"$out/on-gpu.json"
echo
printf '%s\n' "${table[@]}"
exit "$failed"
