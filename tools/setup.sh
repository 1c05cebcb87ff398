#!/usr/bin/env bash
# Make the virtual environment:  tools/setup.sh DIRECTORY [PYTHON]
# Prints what takes long while it takes long, and everything only if it fails.
set -euo pipefail

venv=$1
wanted=${2:-}

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=
for candidate in ${wanted:-python3 python3.14 python3.13 python3.12 python3.11}; do
  if new_enough "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  found=$("${wanted:-python3}" --version 2>/dev/null || echo "not there")
  echo "Python 3.11 or newer is needed; ${wanted:-python3} is $found." >&2
  echo "What to do: install one, then run make again, or name it: make setup PYTHON=/path/to/python3.11" >&2
  exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  minor=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
  echo "$python cannot make virtual environments: the module venv is not installed." >&2
  echo "What to do: on Debian and Ubuntu, apt install python$minor-venv" >&2
  exit 1
fi

echo "Making $venv with $("$python" --version): once, some minutes and about two gigabytes."
if ! new_enough "$venv/bin/python"; then
  "$python" -m venv --clear "$venv"
fi

log=$venv/setup.log
# Only lines about something large: the others pass by in a moment.
if ! PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
  "$venv/bin/python" -m pip install --progress-bar off --editable ".[local,examples,dev]" 2>&1 |
  tee "$log" |
  awk '/^ *Downloading .*[0-9] MB\)/ {
         split($2, part, "-"); print "  downloading " part[1] " " $3 " " $4; fflush() }
       /^ *(Building wheel for pyspark|Processing .*pyspark)/ && !spark++ {
         print "  preparing Spark"; fflush() }
       /^Installing collected packages/ { print "  installing"; fflush() }'; then
  tail -n 30 "$log" >&2
  echo "The packages could not be installed; the whole log is $log" >&2
  echo "What to do: look at the lines above; if it was the network, run make again." >&2
  exit 1
fi
echo "  having Java load Spark once, so that it starts sooner from now on"
# Nothing needs it, so a machine that has no room for it goes on without.
"$venv/bin/python" -m runners.spark.class_archive >>"$log" 2>&1 ||
  echo "  that failed, and Spark will start some seconds later each time; $log has the reason"
echo "$venv is ready."
