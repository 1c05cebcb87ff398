"""Refuse a server that cannot keep the promise of a commit.

A guarantee that depends on a setting that was not checked is no guarantee: better no start than rows that vanish with
the next power cut.  Faults F7 and F26 (`runners.testing.simulator.fault`).
"""

from typing import Any

import attrs
from psycopg import Connection

from runners.errors import UnsuitableStoreError
from runners.millwheel.store.postgres.queries import QUERIES

#: Older ones are out of support.
SERVER_VERSION_MIN = 140000


@attrs.frozen(kw_only=True)
class ServerFacts:
    """Facts that a server reports about itself.

    Attributes:
        incarnation: when it was started, to the microsecond: unique to this start of this server, and another one after
            a restore.
    """

    version_number: int
    is_in_recovery: bool
    fsync: str
    full_page_writes: str
    incarnation: str


def read_facts(connection: Connection[Any]) -> ServerFacts:
    """Read the facts from the server."""
    row = connection.execute(QUERIES["server_facts"]).fetchone()
    version_number, is_in_recovery, fsync, full_page_writes, incarnation = row or (0, True, *"   ")
    return ServerFacts(
        version_number=version_number,
        is_in_recovery=is_in_recovery,
        fsync=fsync,
        full_page_writes=full_page_writes,
        incarnation=incarnation,
    )


def refuse_unsuitable(facts: ServerFacts, place: str) -> None:
    """Refuse to work on an unsuitable server, with an error about what to change.

    Args:
        facts: what the server reports.
        place: host and database, for the message; never the password.

    Raises:
        UnsuitableStoreError: it is too old, a read replica, or may lose commits in a crash.
    """
    if facts.version_number < SERVER_VERSION_MIN:
        raise UnsuitableStoreError(
            "this Postgres is too old",
            detail=f"{place} runs version {facts.version_number // 10000}",
            hint=f"use Postgres {SERVER_VERSION_MIN // 10000} or newer",
        )
    if facts.is_in_recovery:
        raise UnsuitableStoreError(
            "this Postgres is a read replica, or still recovering",
            detail=f"{place} accepts no writes, and what is read from it may be out of date",
            hint="connect to the primary, e.g. with target_session_attrs=read-write in the DSN",
        )
    for setting, value in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        if value != "on":
            raise UnsuitableStoreError(
                f"this Postgres has {setting}={value}",
                detail=f"{place} can lose or damage committed transactions in a crash",
                hint=f"set {setting}=on in postgresql.conf and reload the server",
            )
