#!/usr/bin/env bash
# Prints a summary of a log of test runs: a line for each test binary, the skipped tests, the sum.
#
# Usage: closing-lines.sh LOG

set -euo pipefail

awk '
  # Cargo prints "Running tests/name.rs (target/...)", "Running unittests src/lib.rs (target/...)" or "Doc-tests name".
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
