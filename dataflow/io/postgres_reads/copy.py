"""TableCopy: the rows of a table in the order of its key, in one snapshot whose place in the log is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import connect, quoted, raw_rows
from dataflow.io.postgres_reads.positions import Key
from dataflow.io.postgres_reads.row_form import Columns
from dataflow.io.postgres_reads.slot import exported_snapshot
from dataflow.io.postgres_reads.table import TableShape
from dataflow.io.postgres_reads.values import TEXT_TYPES, decoder_of


class KeyOf:
    """Takes the key of a row, as values that Python orders as the copy does.

    Args:
        shape: of the table.
        columns: of the rows.

    Raises:
        InputError: a column of the key is not among them.
    """

    def __init__(self, shape: TableShape, columns: Columns) -> None:
        names, self._where = [name for name, _ in columns], shape.shown
        if missing := [name for name, _ in shape.key if name not in names]:
            raise InputError(
                f"the primary key of {shape.shown} has been changed, to the column {missing[0]!r}",
                detail=f"the columns that are read are {', '.join(names)}",
                hint="begin anew with another slot and a job of another name",
            )
        self._parts = [
            (names.index(name), bytes if oid in TEXT_TYPES else decoder_of(oid))
            for name, oid in shape.key
        ]

    def __call__(self, raw: Sequence[Any]) -> Key:
        """The key of a row.

        Args:
            raw: its values, as texts.

        Raises:
            InputError: Python has no value for it.
        """
        try:
            return tuple(decode(raw[index]) for index, decode in self._parts)
        except (ValueError, ArithmeticError) as error:
            raise InputError(
                f"{self._where} has a row with a key that Python has no value for",
                detail=f"{[raw[index] for index, _ in self._parts]}: {error}",
                hint="give the row another key; infinity and years beyond 9999 have no value",
            ) from error


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
        # Of texts the order of bytes: that of a language is the server's own, and changes with its libraries.
        parts = [
            f'{quoted(name)} COLLATE "C"' if oid in TEXT_TYPES else quoted(name)
            for name, oid in shape.key
        ]
        names = ", ".join(quoted(name) for name, _ in columns)
        where = ""
        if above is not None:
            values = [
                self._literal(each.decode("utf-8") if oid in TEXT_TYPES else each)
                for each, (_, oid) in zip(above, shape.key, strict=True)
            ]
            where = f"WHERE ({', '.join(parts)}) > ({', '.join(values)})"
        order = ", ".join(parts)
        return f"SELECT {names} FROM {shape.sql_name} {where} ORDER BY {order}"  # noqa: S608 - names are quoted

    def _literal(self, value: Any) -> str:
        from psycopg.sql import Literal  # noqa: PLC0415 - takes long to import

        return Literal(value).as_string(self._connection)

    def take(self, rows_max: int) -> list[tuple[Any, ...]]:
        """The next rows, with all values as texts; none at the end.

        Args:
            rows_max: at most so many.
        """
        return raw_rows(self._connection, f"FETCH {rows_max} FROM copied")

    def close(self) -> None:
        """End the session.  Idempotent."""
        self._connection.close()
