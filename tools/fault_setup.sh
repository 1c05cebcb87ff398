#!/usr/bin/env bash
# What the tests of faults need and no wheel has: a Postgres with its programs for standbys, pgbouncer, and libfaketime.
# Installs Debian's packages where that is possible; starts nothing, and makes no cluster of theirs.
set -euo pipefail

programs() {
  for directory in "${DATAFLOW_POSTGRES_PROGRAMS:-}" /usr/lib/postgresql/*/bin; do
    if [ -n "$directory" ] && [ -x "$directory/pg_basebackup" ] && [ -x "$directory/postgres" ]; then
      return 0
    fi
  done
  return 1
}

pooler() {
  command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]
}

clock() {
  compgen -G "/usr/lib/*/faketime/libfaketime.so.1" >/dev/null
}

if programs && pooler && clock; then
  exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "The tests of faults need the programs of a Postgres server, pgbouncer and libfaketime; they are not there." >&2
  echo "What to do: as root, apt-get install postgresql pgbouncer libfaketime; elsewhere, set DATAFLOW_POSTGRES_PROGRAMS" >&2
  echo "to a directory with initdb, postgres and pg_basebackup, and put pgbouncer on the PATH." >&2
  exit 1
fi

echo "Installing Debian's Postgres, pgbouncer and libfaketime, for the tests of faults: once."
log=$(mktemp)
guard=/usr/sbin/policy-rc.d
if [ ! -e $guard ]; then
  # Packages ask it whether they may start what they install.
  printf '#!/bin/sh\nexit 101\n' >$guard
  chmod +x $guard
  trap 'rm -f $guard' EXIT
fi
install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update &&
    apt-get install -y --no-install-recommends postgresql-common &&
    # Asked when the server is installed: no cluster on the machine's port.
    sed -i 's/^#\? *create_main_cluster *=.*/create_main_cluster = false/' \
      /etc/postgresql-common/createcluster.conf &&
    apt-get install -y --no-install-recommends postgresql pgbouncer libfaketime
}
if ! install_packages >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "The packages postgresql, pgbouncer and libfaketime could not be installed; the whole log is $log" >&2
  echo "What to do: look at the lines above; if it was the network, run make faults again." >&2
  exit 1
fi
rm -f "$log"
