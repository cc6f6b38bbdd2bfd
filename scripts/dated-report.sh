#!/usr/bin/env bash
# Runs a command and writes its output to a file, under a head with date, commit and machine.
#
# Usage: dated-report.sh FILE COMMAND...    Exits as the command does.

set -euo pipefail
report=$1
shift
mkdir -p "$(dirname "$report")"
{
  printf 'date     %s\n' "$(date --utc '+%Y-%m-%d %H:%M UTC')"
  printf 'commit   %s%s\n' "$(git rev-parse HEAD)" "$(git diff --quiet HEAD || printf ' with changes')"
  printf 'machine  %s, %s cores\n' "$(uname -sm)" "$(nproc)"
  printf 'command  %s\n\n' "$*"
} >"$report"
"$@" 2>&1 | tee -a "$report"
