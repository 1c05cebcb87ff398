"""Detect a connection pooler in front of Postgres, and refuse one that shares sessions.

A store's connection is a session: its settings, its prepared statements and the lock of the driver belong to it, and so
does the proof that everything it does is done at one server.  A pooler that gives each transaction to any free session
(pgbouncer with ``pool_mode = transaction``) makes all of that fail, with errors about something else.
"""

from typing import Any

import psycopg

from runners.errors import UnsuitableStoreError
from runners.millwheel.store.postgres.queries import QUERIES


def refuse_shared_session(opened: psycopg.Connection[Any], conninfo: str, place: str) -> None:
    """Refuse a connection whose transactions can go to different sessions; one query where there is no pooler.

    Args:
        opened: a connection that is in no transaction.
        conninfo: how it was made.
        place: where it leads, for the message; never the password.

    Raises:
        UnsuitableStoreError: a pooler shares sessions between its clients.
    """
    mine = _session_of(opened)
    # A pooler has to give its client a process id before it knows of a session, so it makes one up.
    if mine == opened.info.backend_pid or _is_kept(opened, mine, conninfo):
        return
    raise UnsuitableStoreError(
        "a connection pooler gives each transaction another session of Postgres",
        detail=f"{place} looks like pgbouncer with pool_mode=transaction: the lock of a job's driver, settings and "
        "prepared statements are lost between transactions there",
        hint="connect to Postgres itself, or have the pooler keep a session for each client (pool_mode=session)",
    )


def _is_kept(opened: psycopg.Connection[Any], mine: int, conninfo: str) -> bool:
    """Whether a session stays with its client while another client is in a transaction."""
    with (
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as other,
        other.transaction(),
    ):
        return _session_of(other) != mine and _session_of(opened) == mine


def _session_of(opened: psycopg.Connection[Any]) -> int:
    row = opened.execute(QUERIES["session_pid"]).fetchone()
    assert row is not None
    return int(row[0])
