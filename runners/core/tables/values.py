"""Values of rows as their table stores them, so that a bundle in memory and the store agree which rows are the same.

An instant is stored in UTC: the clocks of a zone show an hour twice, and Python regards both readings as equal.
A key that was a boolean is emitted as 1 or 0 (`dataflow.canonical_keys`), and a column of booleans takes these.
A column of floats stores integers as floats; a value of a subclass, such as a member of an `IntEnum`, and a scalar of
numpy are stored as the plain value that is read back.  `kinds` has the other types of columns.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from dataflow.table import ColumnType, Row, TableSpec, TableWrite, element_type
from runners.core.tables.columns import TableColumns
from runners.core.tables.kinds import kind_of, size_of
from windowing.timestamps import to_datetime, to_timestamp_us

#: The assumed size of a value that is neither text nor bytes.
_VALUE_BYTES = 8
#: About how many rows are sampled to estimate the size of all.
_SAMPLE = 100
#: The kinds of numpy's scalars that stand for plain values: bool, int, float, bytes, str.
_NUMPY_KINDS = frozenset("biufSU")
_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}


def as_stored(table: TableSpec, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with their values as stored; values that fit no column are left for `check_rows` to refuse.

    Args:
        table: the table.
        rows: in the order of its columns.
    """
    for index, kind in enumerate(table.columns.values()):
        found = _stored_of(kind)
        if found is not None:
            rows = [(*row[:index], found(row[index]), *row[index + 1 :]) for row in rows]
        elif kind is datetime and not all(_is_utc(row[index]) for row in rows):
            rows = [(*row[:index], _in_utc(row[index]), *row[index + 1 :]) for row in rows]
        elif kind is not datetime and not {type(row[index]) for row in rows} <= {kind, NoneType}:
            rows = [(*row[:index], _plain(kind, row[index]), *row[index + 1 :]) for row in rows]
    return rows


def size_of_rows(write: TableWrite) -> int:
    """The approximate size of a write's rows in bytes: texts and bytes by a sample, other values by a constant."""
    kinds = list(write.table.columns.values())
    long = [(index, kind) for index, kind in enumerate(kinds) if may_be_long(kind)]
    size = 0
    for rows in (write.upserts, write.inserts):
        if isinstance(rows, TableColumns):
            size += sum(array.nbytes for array in rows.arrays)
            continue
        size += _VALUE_BYTES * len(kinds) * len(rows)
        every = 1 + len(rows) // _SAMPLE
        for index, kind in long:
            size += every * sum([size_of(kind, row[index]) for row in rows[::every]])
    return size


def may_be_long(column_type: Any) -> bool:
    """Whether values of a column may take many bytes.

    Args:
        column_type: of the column.
    """
    kind = kind_of(column_type)
    is_of_many = element_type(column_type) is not None or (
        kind is not None and kind.size is not None
    )
    return column_type in (str, bytes) or is_of_many


def _stored_of(column_type: Any) -> Callable[[Any], Any] | None:
    """How a value of a column is stored; None of the types that `as_stored` looks at together."""
    element = element_type(column_type)
    if element is not None:
        one = _stored_of(element) or (_in_utc if element is datetime else partial(_plain, element))
        return lambda value: list(map(one, value)) if isinstance(value, list | tuple) else value
    kind = kind_of(column_type)
    return None if kind is None else kind.stored


def _is_utc(value: Any) -> bool:
    return value is None or (type(value) is datetime and value.tzinfo is UTC)


def _in_utc(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    try:
        return to_datetime(to_timestamp_us(value))
    except ValueError:
        return value


def _plain(kind: ColumnType, value: Any) -> Any:
    if isinstance(value, np.generic) and value.dtype.kind in _NUMPY_KINDS:
        value = value.item()
    if kind is bool:
        return bool(value) if type(value) is int and value in {0, 1} else value
    if kind is float and type(value) is int and _is_a_float(value):
        return float(value)
    if type(value) is kind or not isinstance(value, kind) or isinstance(value, bool):
        return value
    # The conversion of the type itself: a subclass may override it, as the members of an Enum do.
    return _PLAIN[kind](value)


def _is_a_float(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False
