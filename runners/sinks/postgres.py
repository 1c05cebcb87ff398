"""PostgresWriter: rows of one lane into a table of any Postgres, each batch in one transaction with its number.

The numbers are in a table ``dataflow_progress`` beside the user's: a row for each lane, of which the fence locks and
changes the token, so that it waits for a writer that is at work and shuts it out afterwards.
"""

from collections.abc import Sequence
from typing import Any

import psycopg

from dataflow.errors import SinkFencedError, SinkRefusedError, TableRowError
from dataflow.io.postgres import PostgresTable
from dataflow.sink import Lane, SinkChange, SinkWriter
from dataflow.table import Row, TableSpec, TableWrite
from runners.core.tables.row_changes import RowChanges
from runners.errors import StoreError
from runners.millwheel.store.postgres.arrays import register_arrays
from runners.millwheel.store.postgres.connection import conninfo_of
from runners.millwheel.store.postgres.tables import CopyRows, TableStatements, ensure_table

_CREATE_PROGRESS = """
CREATE TABLE IF NOT EXISTS dataflow_progress (
    writer     text        PRIMARY KEY,
    title      text        NOT NULL,
    token      bigint      NOT NULL,
    number     bigint      NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""
# The row is locked before the number is read, and stays locked until the token is there for everybody.
_FENCE = """
INSERT INTO dataflow_progress AS p (writer, title, token, number)
VALUES (%(writer)s, %(title)s, %(token)s, 0)
ON CONFLICT (writer) DO UPDATE SET token = EXCLUDED.token, changed_at = clock_timestamp()
WHERE p.token < EXCLUDED.token RETURNING number"""
_ADVANCE = """
UPDATE dataflow_progress SET number = %(number)s, changed_at = clock_timestamp()
WHERE writer = %(writer)s AND token = %(token)s AND number = %(number)s - 1"""
#: Of errors of the server about the rows themselves: data, constraints, and what names and types are there.
_REFUSALS = ("22", "23", "42", "44")
#: A transaction that was cut off halfway must not keep its locks for longer.
_IDLE_TIMEOUT_MS = 60_000


class PostgresWriter(SinkWriter):
    """Writes to a `PostgresTable`.

    Args:
        sink: where the table is.
        lane: the lane.
    """

    def __init__(self, sink: PostgresTable, lane: Lane) -> None:
        self._sink, self._lane, self._token = sink, lane, 0
        self._connection: psycopg.Connection[Any] | None = None
        self._statements: TableStatements | None = None

    def fence(self, token: int) -> int:
        """Shut out every writer with a lower token, and read the number."""
        opened = self._connection = psycopg.connect(
            conninfo_of(self._sink.dsn), autocommit=True, prepare_threshold=None
        )
        opened.execute("SELECT set_config('application_name', 'dataflow sink', false)")
        opened.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_TIMEOUT_MS}")
        opened.execute("SET TimeZone = 'UTC'")
        register_arrays(opened)
        with opened.transaction():
            # Of two that create it at once, one would fail.
            opened.execute("SELECT pg_advisory_xact_lock(hashtext('dataflow_progress'))")
            opened.execute(_CREATE_PROGRESS)
            try:
                ensure_table(opened, self._sink.stored)
            except StoreError as error:
                raise SinkRefusedError(error.fact, detail=error.detail, hint=error.hint) from error
        parameters = {"writer": self._lane.writer, "title": self._lane.title, "token": token}
        with opened.transaction():
            row = opened.execute(_FENCE, parameters).fetchone()
        if row is None:
            raise SinkFencedError(f"{self._lane.title} was fenced by another writer")
        self._token, self._statements = token, TableStatements(opened)
        return int(row[0])

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Write a batch and its number in one transaction."""
        opened, statements = self._connection, self._statements
        assert opened is not None
        assert statements is not None
        parameters = {"writer": self._lane.writer, "token": self._token, "number": number}
        try:
            with opened.transaction():
                if opened.execute(_ADVANCE, parameters).rowcount != 1:
                    raise SinkFencedError(f"{self._lane.title} was fenced by another writer")
                for statement in statements.write(self._write_of(changes)):
                    if isinstance(statement, CopyRows):
                        with opened.cursor().copy(statement.query) as copy:
                            copy.write(statement.rows)
                    else:
                        opened.cursor(binary=True).execute(*statement)
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] in _REFUSALS:
                raise _refused(self._sink.stored, error) from error
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _write_of(self, changes: Sequence[SinkChange]) -> TableWrite:
        table = self._sink.stored
        if self._sink.changelog is not None:
            return TableWrite(table=table, inserts=[(*each.value, each.sign) for each in changes])
        if not table.key:
            return TableWrite(table=table, inserts=[each.value for each in changes])
        if not self._sink.is_retracted:
            indexes = table.key_indexes
            last = {tuple(each.value[at] for at in indexes): each.value for each in changes}
            return TableWrite(table=table, upserts=list(last.values()))
        return TableWrite(table=table, changes=_net(table, changes))


def _net(
    table: TableSpec, changes: Sequence[SinkChange]
) -> Sequence[tuple[Row | None, Row | None]]:
    net = RowChanges(table)
    try:
        net.add([each.value for each in changes], [each.sign for each in changes])
        return net.net()
    except TableRowError as error:
        raise SinkRefusedError(error.fact, detail=error.detail, hint=error.hint) from error


def _refused(table: TableSpec, error: psycopg.Error) -> SinkRefusedError:
    return SinkRefusedError(
        f"table {table.name} does not take the rows: {error.diag.message_primary or error}",
        detail=error.diag.message_detail or "",
        hint="change the table or the pipeline; the rows stay in the outbox, and are written when the job runs again",
    )
