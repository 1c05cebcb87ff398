"""Keys of rows: as SQL that orders a table by them and goes on behind one, and as values of Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import quoted
from dataflow.io.postgres_reads.positions import Key
from dataflow.io.postgres_reads.row_form import Columns
from dataflow.io.postgres_reads.table import TableShape
from dataflow.io.postgres_reads.values import TEXT_TYPES, decoder_of


class KeyOrder:
    """The order of rows by a key, as SQL: ``str()`` is what stands behind ORDER BY.

    Args:
        key: its columns.
        is_of_bytes: whether texts are ordered by their bytes, as Python does; else in the order of the column, which
            its index has.
    """

    def __init__(self, key: Columns, *, is_of_bytes: bool) -> None:
        # The order of a language is the server's own, and changes with its libraries.
        self._parts = [
            f'{quoted(name)} COLLATE "C"' if is_of_bytes and oid in TEXT_TYPES else quoted(name)
            for name, oid in key
        ]

    def __str__(self) -> str:
        return ", ".join(self._parts)

    def compared(self, how: str, values: Sequence[str]) -> str:
        """A condition on the key, or on as many of its first columns as there are values.

        Args:
            how: an operator, such as ``>``.
            values: as SQL.
        """
        parts = self._parts[: len(values)]
        return f"({', '.join(parts)}) {how} ({', '.join(values)})"


def literals(connection: Any, values: Iterable[Any]) -> list[str]:
    """Values as SQL.

    Args:
        connection: a session.
        values: any that psycopg adapts.
    """
    from psycopg.sql import Literal  # noqa: PLC0415 - takes long to import

    return [Literal(each).as_string(connection) for each in values]


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
