#!/usr/bin/env bash
# Run the static checks and both halves of the tests, side by side:
#   tools/test.sh SERVERS OPTIONS_OF_SERVERS OPTIONS_OF_OTHERS
# SERVERS: the marks of what starts servers.  That waits most of the time, and the others run meanwhile; they give way
# to it, because some of it looks at clocks.  Each part is run to its end and reported, whatever becomes of the others;
# what is red in the static checks is printed as soon as they end.
set -uo pipefail

servers=$1
log=.venv/tests-without-servers.log

# shellcheck disable=SC2086  # options are words
nice -n 10 .venv/bin/pytest -q $3 -m "not ($servers) and not nightly" >"$log" 2>&1 &
others=$!
tools/static.sh &
static=$!
trap 'kill $others $static 2>/dev/null' EXIT

echo "Tests with servers; those without run meanwhile, into $log"
# shellcheck disable=SC2086
.venv/bin/pytest -q $2 -m "($servers) and not faults and not nightly"
with_servers=$?

wait $others
without_servers=$?
wait $static
static_checks=$?
trap - EXIT
echo "Tests without servers:"
cat "$log"

echo "tested in $SECONDS s: static checks $([ $static_checks = 0 ] && echo passed || echo FAILED)," \
  "with servers $([ $with_servers = 0 ] && echo passed || echo FAILED)," \
  "without $([ $without_servers = 0 ] && echo passed || echo FAILED)"
[ $static_checks = 0 ] && [ $with_servers = 0 ] && [ $without_servers = 0 ]
