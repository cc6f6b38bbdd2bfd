#!/usr/bin/env bash
# Prints what the runners say at their end, out of the log of a run: a line for each test binary, what was skipped, the sum.
#
# Usage: closing-lines.sh LOG

set -euo pipefail

awk '
  # Cargo says "Running tests/name.rs (target/...)", "Running unittests src/lib.rs (target/...)" or "Doc-tests name".
  /^ *(Running|Doc-tests) / { sub(/^ */, ""); sub(/^Running /, ""); runner = $0 }
  /^test result:/ {
    sub(/^test result: /, "")
    lines[++count] = runner ": " $0
    runners++; passed += field("passed"); failed += field("failed"); ignored += field("ignored")
  }
  /SKIPPED/ { lines[++count] = $0 }

  function field(word,   found) {
    return match($0, "[0-9]+ " word) ? substr($0, RSTART, RLENGTH) + 0 : 0
  }

  END {
    print "----"
    for (i = 1; i <= count; i++) print lines[i]
    printf "%d runners: %d passed, %d failed, %d ignored\n", runners, passed, failed, ignored
  }
' "$1"
