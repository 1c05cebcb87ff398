"""What an error from the server means: did the transaction certainly not happen?

An allow-list.  An error is "certainly did not happen" only with proof: the server reports which statement failed and
that the transaction is aborted.  Everything else, above all a connection that ended, is unknown, and unknown is an
outcome of its own (`Indeterminate`), never a guess.

The proof is the SQLSTATE and the state of the protocol, never the words of a message, which are translated.
"""

from collections.abc import Collection
from enum import Enum, auto
from typing import Any

import attrs
from psycopg import Connection, Error
from psycopg.pq import TransactionStatus

from dataflow.errors import DataflowError
from runners.core.tables.row_changes import conflict
from runners.errors import StoreError
from runners.millwheel.store.postgres.patience import is_shortage

#: Raised by ``dataflow.take_fences``, which takes fences and looks at what a commit relies on.
FENCED_SQLSTATE = "MW001"
LOST_SQLSTATE = "MW002"
LOCK_TIMEOUT_SQLSTATE = "55P03"
QUERY_CANCELED_SQLSTATE = "57014"
#: A second row of a key: the store's own statements cause it only where there must be no row of the key.
_UNIQUE_SQLSTATE = "23505"

#: Errors by which the server ends one transaction so that another can go on.  Sending it again is
#: right, because nothing of it happened.
_RETRYABLE_SQLSTATES = frozenset(
    {
        "40001",  # serialization failure: the database enforces it, or a user's trigger raised it
        "40P01",  # deadlock: two jobs write the same keys of one table in different order
        LOCK_TIMEOUT_SQLSTATE,  # a table was altered or locked by another session
        QUERY_CANCELED_SQLSTATE,  # a person cancelled a statement; our sessions have no time-out for them
    }
)


@attrs.frozen
class Lost:
    """None of it happened, because a commit of this range, on which it relies, is gone."""

    range_number: int


class Verdict(Enum):
    """What to do about a failed transaction."""

    #: Another owner has the range.
    FENCED = auto()
    #: It relies on a commit of another range that is gone.
    LOST = auto()
    #: Nothing happened, and trying again can help.
    RETRY = auto()
    #: Nothing happened, and trying again cannot help.
    REFUSED = auto()
    #: It happened wholly or not at all; only the store knows.
    UNKNOWN = auto()


def classify(error: Error, connection: Connection[Any]) -> Verdict:
    """The outcome of a transaction as far as an error on its connection proves it.

    Must be asked before anything else is sent on the connection, because the state it was left in is the proof: in a
    failed transaction COMMIT was not carried out, and what a pipeline sent before its Sync is rolled back.

    Args:
        error: what psycopg has raised.
        connection: on which the statement was sent; nothing is sent on it here.
    """
    status = connection.info.transaction_status
    if status is not TransactionStatus.INERROR and not _has_rolled_back(error, status):
        return Verdict.UNKNOWN
    if error.sqlstate == FENCED_SQLSTATE:
        return Verdict.FENCED
    if error.sqlstate == LOST_SQLSTATE:
        return Verdict.LOST
    return Verdict.RETRY if _gave_way(error) else Verdict.REFUSED


def _has_rolled_back(error: Error, status: TransactionStatus) -> bool:
    """Whether the session lives, and is in no transaction any more: of a pipeline without BEGIN, and of COMMIT itself.

    An ERROR answered to COMMIT or to Sync (a deferred constraint or trigger, a serialization failure, a cancelled
    statement) is raised before the commit is recorded, and Postgres rolls back; after that its only error is PANIC.
    Errors that the client libraries raise have no severity, and prove nothing.
    """
    return status is TransactionStatus.IDLE and error.diag.severity_nonlocalized == "ERROR"


def is_passing(error: Error, connection: Connection[Any]) -> bool:
    """Whether repeating an idempotent transaction, on a new connection if need be, can help.

    Args:
        error: what psycopg has raised.
        connection: on which the statement was sent; if it is closed by now, the server or the network was gone.
    """
    return connection.closed or _gave_way(error)


def _gave_way(error: Error) -> bool:
    return error.sqlstate in _RETRYABLE_SQLSTATES or is_shortage(error.sqlstate)


def reason(error: Error) -> str:
    """The error of the server, or of the library, in one line."""
    words = str(error).split()
    return f"{error.sqlstate or type(error).__name__}: {' '.join(words)}"


def rejected(error: Error, changed: Collection[str]) -> DataflowError:
    """The error for a failed commit into tables: a conflict of keys where a row is there already, else by `refused`.

    Args:
        error: what psycopg has raised.
        changed: names of the tables, with or without their schemas, into which the commit changes rows.
    """
    if error.sqlstate == _UNIQUE_SQLSTATE:
        for name in changed:
            if name.split(".")[-1] == error.diag.table_name:
                detail = f"{error.diag.message_detail}; constraint {error.diag.constraint_name}"
                return conflict(name, detail)
    return refused(error)


def refused(error: Error) -> StoreError:
    """The error for the caller when Postgres refused a statement: its words, no SQL, no DSN."""
    message = error.diag.message_primary or type(error).__name__
    where = ".".join(filter(None, (error.diag.schema_name, error.diag.table_name)))
    parts = [f"SQLSTATE {error.sqlstate}", where and f"table {where}", error.diag.message_detail]
    return StoreError(
        f"Postgres refused: {message}",
        detail="; ".join(part for part in parts if part),
        hint=error.diag.message_hint or "nothing was written; see the server's log for the context",
    )


def range_number(error: Error) -> int:
    """The ``range_id`` that ``dataflow.take_fences`` has reported."""
    return int(error.diag.message_detail or 0)
