"""Values of rows as their table holds them, so that a bundle in memory and the store agree which rows are one.

An instant is held in UTC: the clocks of a zone show an hour twice, and Python calls both readings equal.
A key that was a boolean is said as 1 or 0 (`dataflow.canonical_keys`), and a column of booleans takes that.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dataflow.io.table import Row, TableSpec, TableWrite
from runners.core.table_columns import TableColumns
from windowing.timestamps import to_datetime, to_timestamp_us

#: Of a value that is neither.
_VALUE_BYTES = 8
#: Rows that are looked at to know what all have, about.
_SAMPLE = 100


def as_held(table: TableSpec, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with such values; what fits no column is left for `check_rows` to refuse."""
    for index, kind in enumerate(table.columns.values()):
        if kind is datetime and not all(_is_utc(row[index]) for row in rows):
            rows = [(*row[:index], _in_utc(row[index]), *row[index + 1 :]) for row in rows]
        elif kind is bool and int in {type(row[index]) for row in rows}:
            rows = [(*row[:index], _as_bool(row[index]), *row[index + 1 :]) for row in rows]
    return rows


def size_of_rows(write: TableWrite) -> int:
    """How many bytes the rows of a write take, about: texts and bytes by some of them, and a few for other values."""
    kinds = list(write.table.columns.values())
    long = [index for index, kind in enumerate(kinds) if kind in {str, bytes}]
    size = 0
    for rows in (write.upserts, write.inserts):
        if isinstance(rows, TableColumns):
            size += sum(array.nbytes for array in rows.arrays)
            continue
        size += _VALUE_BYTES * len(kinds) * len(rows)
        every = 1 + len(rows) // _SAMPLE
        for index in long:
            size += every * sum([len(row[index]) for row in rows[::every] if row[index]])
    return size


def _is_utc(value: Any) -> bool:
    return value is None or (type(value) is datetime and value.tzinfo is UTC)


def _in_utc(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    try:
        return to_datetime(to_timestamp_us(value))
    except ValueError:
        return value


def _as_bool(value: Any) -> Any:
    return bool(value) if type(value) is int and value in {0, 1} else value
