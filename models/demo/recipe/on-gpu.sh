#!/usr/bin/env bash
# The whole recipe on a GPU machine without network: from the parts that the step `pack` made to a checkpoint.
#
#   on-gpu.sh PARTS WORK [SECONDS]
#
# Every call goes on where the last one stopped, so that calls may be cut off: it ends by itself after SECONDS (540). Until all
# parts are there it only says which are missing. The checkpoint is in WORK/checkpoint when it says "done".
set -euo pipefail

parts=$1 work=$2 seconds=${3:-540}
recipe=$(cd "$(dirname "$0")" && pwd)
export PYTHONUNBUFFERED=1
mkdir -p "$work/log"
work=$(cd "$work" && pwd)
root=$work/root

# What was carried in this call is kept: the next call may carry other parts.
mkdir -p "$work/parts"
cp -n "$parts"/part-* "$parts"/SHA256 "$work/parts/" 2>/dev/null || true
[ -e "$work/parts/SHA256" ] || { echo "carry the file SHA256 of the parts, too, then call again"; exit 1; }
read -r sum count <"$work/parts/SHA256"
have=$(find "$work/parts" -name 'part-*' | wc -l)
if [ "$have" -lt "$count" ]; then
  echo "$have of $count parts are here: carry the others, then call again"
  exit 0
fi
if [ ! -e "$root/ready" ]; then
  cat "$work"/parts/part-* >"$work/root.tar.xz"
  echo "$sum  $work/root.tar.xz" | sha256sum --check --quiet
  mkdir -p "$root"
  tar -xJf "$work/root.tar.xz" -C "$root"
  touch "$root/ready"
fi
lib=$root/usr/lib/x86_64-linux-gnu
export PYTHONPATH="$recipe:$root/python" PATH="$root/usr/bin:$PATH" LD_LIBRARY_PATH="$lib:${LD_LIBRARY_PATH:-}" ESPEAK_DATA_PATH=$lib/espeak-ng-data
export KOKORO=$root/kokoro FESTIVAL=$root/usr/share/festival

end=$((SECONDS + seconds))
# step NAME...: runs steps unless they are done; 124 when the time is over.
step() {
  local name=$1
  [ -e "$work/log/$name.done" ] && return
  local left=$((end - SECONDS))
  [ "$left" -gt 0 ] || return 124
  timeout --signal=INT "$left" python3 -m demo_recipe "$name" --scale gpu --work "$work" >>"$work/log/$name.log" 2>&1 || {
    local rc=$?
    tail -n 5 "$work/log/$name.log"
    return $rc
  }
  touch "$work/log/$name.done"
  tail -n 3 "$work/log/$name.log"
}
over() {
  for log in "$work"/log/*.log; do echo "== $log"; tail -n 2 "$log"; done
  echo "not done yet: call again"
  exit 0
}

step answers || over
step targets || over
# The thinker needs questions, the codec answers: side by side, since neither fills the device.
(step questions && step thinker) &
listening=$!
(step codec && step codes && step talker && step align && step tune) &
speaking=$!
failed=0
wait $listening || failed=$?
wait $speaking || failed=$?
[ "$failed" -eq 0 ] || over
step export || over
echo "done: $work/checkpoint"
