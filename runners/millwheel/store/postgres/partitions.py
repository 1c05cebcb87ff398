"""Tables of jobs that are gone, dropped one by one.

A reset takes a job's tables away from the job in the transaction that deletes the job and its fences.  So a worker that
commits for it finds no fence, and is fenced before it names a table.  Only then are the tables dropped, each in a
transaction of its own: such a transaction locks one table and wants no other, which leaves nothing to deadlock with.

A table may be in use (by a person with psql, for an hour).  A transaction that waits to drop a table makes all others
that want it wait too, so the wait is short, and the table is left for the next time that a job is opened or reset.
"""

import logging
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.errors import LockNotAvailable

from runners.millwheel.store.postgres.queries import QUERIES

_LOG = logging.getLogger(__name__)
_LOCK_TIMEOUT_MS = 200


def drop_partitions_of_nobody(connection: Connection[Any]) -> None:
    """Drop what can be dropped now; outside a transaction.  Never fails: it is housekeeping."""
    try:
        for (name,) in connection.execute(QUERIES["find_partitions_of_nobody"]).fetchall():
            with suppress(LockNotAvailable), connection.transaction():
                connection.execute(QUERIES["hurry"], {"lock_timeout_ms": str(_LOCK_TIMEOUT_MS)})
                connection.execute(QUERIES["lock_catalog"])
                connection.execute(QUERIES["drop_partition"], {"partition_name": name})
    except psycopg.Error as error:
        reason = error.sqlstate or type(error).__name__
        _LOG.warning("tables of jobs that are gone are left for later: %s", reason)
