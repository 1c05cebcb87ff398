#!/usr/bin/env bash
# Format, lint, types and architecture, side by side; each that is red prints what it has to say under its name.
set -uo pipefail

bin=.venv/bin
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

names=(format lint types architecture)
pids=()
start() {
  "${@:2}" >"$logs/$1" 2>&1 &
  pids+=($!)
}
start format $bin/ruff format --check --quiet .
start lint $bin/ruff check --quiet .
start types $bin/mypy --no-error-summary
start architecture $bin/lint-imports --no-logo

status=0
for place in "${!names[@]}"; do
  if ! wait "${pids[$place]}"; then
    name=${names[$place]}
    echo "FAILED: $name" >&2
    cat "$logs/$name" >&2
    [ "$name" != format ] || echo "make fix formats them" >&2
    status=1
  fi
done
exit $status
