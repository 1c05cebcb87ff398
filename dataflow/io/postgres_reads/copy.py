"""TableCopy: the rows of a table in the order of its key, in one snapshot whose place in the log is known."""

from __future__ import annotations

from typing import Any

from dataflow.io.postgres_reads.connection import connect, quoted, raw_rows
from dataflow.io.postgres_reads.keys import KeyOrder, literals
from dataflow.io.postgres_reads.positions import Key
from dataflow.io.postgres_reads.row_form import Columns
from dataflow.io.postgres_reads.slot import exported_snapshot
from dataflow.io.postgres_reads.table import TableShape
from dataflow.io.postgres_reads.values import TEXT_TYPES


class TableCopy:
    """Reads what is left of a table.

    Args:
        dsn: of the database.
        shape: of the table.
        columns: that are read.
        replication: a session for replication, for the snapshot.
        above: the last key that was read before; None: none was.

    Attributes:
        lsn: the place of the snapshot in the log.
    """

    def __init__(
        self, dsn: str, shape: TableShape, columns: Columns, replication: Any, above: Key | None
    ) -> None:
        self._connection = connect(dsn)
        try:
            self.lsn, snapshot = exported_snapshot(replication)
            execute = self._connection.execute
            execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            execute(
                f"DECLARE copied NO SCROLL CURSOR FOR {self._query(shape, columns, above)}".encode()
            )
        except BaseException:
            self.close()
            raise

    def _query(self, shape: TableShape, columns: Columns, above: Key | None) -> str:
        order = KeyOrder(shape.key, is_of_bytes=True)
        names = ", ".join(quoted(name) for name, _ in columns)
        where = ""
        if above is not None:
            texts = [
                each.decode("utf-8") if oid in TEXT_TYPES else each
                for each, (_, oid) in zip(above, shape.key, strict=True)
            ]
            where = f"WHERE {order.compared('>', literals(self._connection, texts))}"
        return f"SELECT {names} FROM {shape.sql_name} {where} ORDER BY {order}"  # noqa: S608 - names are quoted

    def take(self, rows_max: int) -> list[tuple[Any, ...]]:
        """The next rows, with all values as texts; none at the end.

        Args:
            rows_max: at most so many.
        """
        return raw_rows(self._connection, f"FETCH {rows_max} FROM copied")

    def close(self) -> None:
        """End the session.  Idempotent."""
        self._connection.close()
