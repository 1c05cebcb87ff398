"""The replication slot and the publication of a source: made once, checked whenever reading begins."""

from __future__ import annotations

from typing import Any

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import quoted
from dataflow.io.postgres_reads.table import TableShape

_SLOT = """
SELECT plugin, database, current_database(), confirmed_flush_lsn::text, wal_status
FROM pg_replication_slots WHERE slot_name = %s
"""
#: Before version 17 slots have no such property.
_IS_KEPT = """
SELECT to_jsonb(s) -> 'failover', active_pid FROM pg_replication_slots s WHERE slot_name = %s
"""
_FAILOVER_VERSION = 170_000
_PUBLISHES = "SELECT pubinsert AND pubupdate AND pubdelete FROM pg_publication WHERE pubname = %s"
_PUBLISHED = """
SELECT to_jsonb(t) ->> 'rowfilter' FROM pg_publication_tables t
WHERE pubname = %s AND schemaname = %s AND tablename = %s
"""
_OTHERS = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"
#: What to do where changes are missing.
WAYS_OUT = (
    "the changes that were lost cannot be had again; drop the slot if it is there, and begin anew with a job of "
    "another name and an empty result, which copies the table first; or restore slot and store to one point in time"
)


def lsn_of(text: str) -> int:
    """A place in the log as a number.

    Args:
        text: as Postgres writes it, such as ``0/1718728``.
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """A place in the log as Postgres writes it.

    Args:
        lsn: as a number.
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def check_publication(connection: Any, publication: str, shape: TableShape) -> bool:
    """Check that a publication has all changes of a table.

    Args:
        connection: a session.
        publication: its name.
        shape: of the table.

    Returns:
        Whether there is such a publication at all.

    Raises:
        InputError: it leaves changes out.
    """
    found = connection.execute(_PUBLISHES, [publication]).fetchone()
    if found is None:
        return False
    name = quoted(publication)
    if not found[0]:
        raise InputError(
            f"the publication {publication!r} leaves changes out",
            detail="it does not publish all of insert, update, delete",
            hint=f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
    table = connection.execute(_PUBLISHED, [publication, shape.schema, shape.name]).fetchone()
    if table is None:
        raise InputError(
            f"the publication {publication!r} does not have the table {shape.shown}",
            hint=f"ALTER PUBLICATION {name} ADD TABLE {shape.sql_name}",
        )
    if table[0] is not None:
        raise InputError(
            f"the publication {publication!r} leaves rows of {shape.shown} out",
            detail=f"its row filter is {table[0]}",
            hint="name a publication without a filter, and filter in the pipeline",
        )
    return True


def check_slot(connection: Any, slot: str, read_to: int | None) -> bool:
    """Check that a slot still has what is to be read.

    Args:
        connection: a session.
        slot: its name.
        read_to: the place that was read and committed; None: nothing was.

    Returns:
        Whether there is such a slot at all, which is an error if anything was read.

    Raises:
        InputError: it is of another kind, or has lost changes.
    """
    found = connection.execute(_SLOT, [slot]).fetchone()
    if found is None:
        if read_to is None:
            return False
        raise InputError(
            f"the replication slot {slot!r} is gone",
            detail=f"changes were read from it, up to {lsn_text(read_to)}",
            hint="was it dropped, or has a standby taken over on which it was not kept (failover=True)?  "
            + WAYS_OUT,
        )
    plugin, database, ours, confirmed, status = found
    if plugin != "pgoutput" or database != ours:
        raise InputError(
            f"the replication slot {slot!r} is not for this",
            detail=f"its plugin is {plugin!r}, its database {database!r}; needed are 'pgoutput' and {ours!r}",
            hint="give the source a slot of its own; it is made if it is missing",
        )
    if status == "lost":
        raise InputError(
            f"the replication slot {slot!r} has lost changes",
            detail="the server has removed log that it needed (wal_status is 'lost'), as max_slot_wal_keep_size or "
            "idle_replication_slot_timeout allow it to",
            hint=WAYS_OUT,
        )
    if read_to is not None and confirmed is not None and lsn_of(confirmed) > read_to:
        raise InputError(
            f"the replication slot {slot!r} is ahead of what was read from it",
            detail=f"it is at {confirmed}, and {lsn_text(read_to)} is what was read and committed; so it was made "
            "anew, is read by somebody else, or the store was restored from a backup",
            hint=WAYS_OUT,
        )
    return True


def check_failover(connection: Any) -> None:
    """Check that a server can have its slots kept on standbys.

    Args:
        connection: a session.

    Raises:
        InputError: it cannot.
    """
    version = connection.info.server_version
    if version < _FAILOVER_VERSION:
        raise InputError(
            "ReadFromPostgres was given failover=True, and the server keeps no slots on standbys",
            detail=f"it is of version {version // 10_000}, and that came with 17",
            hint="leave failover out: the job ends when a standby takes over, and is begun anew; or upgrade the server",
        )


def keep_on_standbys(connection: Any, replication: Any, slot: str) -> None:
    """Have a slot kept on the standbys that synchronize slots, if it is not, and nobody reads from it.

    Args:
        connection: a session.
        replication: one for replication.
        slot: its name.
    """
    is_kept, reader = connection.execute(_IS_KEPT, [slot]).fetchone() or (None, None)
    # The server would wait for a former reader, which is ended when reading begins.
    if is_kept is False and reader is None:
        replication.execute(f"ALTER_REPLICATION_SLOT {quoted(slot)} ( FAILOVER true )".encode())


def prepare(
    connection: Any, replication: Any, *, slot: str, publication: str, shape: TableShape
) -> None:
    """Make the publication and the slot where they are missing; in this order, as a slot knows no later publication.

    Args:
        connection: a session.
        replication: one for replication.
        slot: the name of the slot.
        publication: the name of the publication.
        shape: of the table.

    Raises:
        InputError: what is there does not suit.
    """
    if not check_publication(connection, publication, shape):
        connection.execute(
            f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {shape.sql_name}".encode()
        )
    if not check_slot(connection, slot, None):
        replication.execute(
            f"CREATE_REPLICATION_SLOT {quoted(slot)} LOGICAL pgoutput NOEXPORT_SNAPSHOT".encode()
        )


def exported_snapshot(replication: Any) -> tuple[int, str]:
    """A snapshot, and its place in the log; it can be imported until the session ends.

    It waits for the transactions that are writing at the moment.

    Args:
        replication: a session for replication.
    """
    name = f"dataflow_copy_{replication.info.backend_pid}"
    row = replication.execute(
        f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT".encode()
    ).fetchone()
    return lsn_of(row[1]), row[2]


def end_other_reader(connection: Any, slot: str) -> None:
    """End the session that reads from a slot: a former owner, which will be refused by the store.

    Args:
        connection: a session.
        slot: the name of the slot.
    """
    connection.execute(_OTHERS, [slot])
