#!/usr/bin/env bash
# Run the static checks beside the fast tests:  tools/check.sh OPTIONS_OF_PYTEST...
# Both run to their end.  What is red in the static checks is printed as soon as they end, and named in the last line.
set -uo pipefail

tools/static.sh &
static=$!
trap 'kill $static 2>/dev/null' EXIT

.venv/bin/pytest -q "$@"
tests=$?

wait $static
static_checks=$?
trap - EXIT

echo "checked in $SECONDS s: static checks $([ $static_checks = 0 ] && echo passed || echo FAILED)," \
  "tests $([ $tests = 0 ] && echo passed || echo FAILED)"
[ $static_checks = 0 ] && [ $tests = 0 ]
