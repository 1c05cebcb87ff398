"""Columns as sequences: the form in which typed rows flow, as long as no single one is asked for.

Each is a `collections.abc.Sequence` of plain Python values, made when one is asked for and kept from then on; so code
for lists takes it as it is, and code that knows columns looks at the arrays and makes nothing.
Slices and `Column.take` make columns again.  Arrays are shared: nobody changes one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import pyarrow as pa

from dataflow.arrow_numbers import array_of, numbers_of
from windowing.timestamps import to_datetime
from windowing.window import Window, windows_of
from windowing.window_columns import Int64s

T = TypeVar("T")

#: The Arrow type of instants; microseconds, as everywhere.
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
#: The Arrow types of the fields of rows.
ARROW_TYPES: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    datetime: TIMESTAMP_TYPE,
}


class Column(Sequence[T], Generic[T]):
    """A sequence over arrays; see the module."""

    _made: list[T] | None = None

    @abstractmethod
    def take(self, indexes: Sequence[int] | Int64s) -> Self:
        """The elements at these indexes."""

    @abstractmethod
    def _make(self) -> list[T]:
        """All elements, as Python values."""

    @abstractmethod
    def _slice(self, start: int, length: int) -> Self:
        """A run of elements."""

    def _items(self) -> list[T]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self._slice(start, max(0, stop - start))
            return self.take(range(start, stop, step))
        return self._items()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._items() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} elements)"


class IntColumn(Column[int]):
    """Integers, such as instants in microseconds."""

    def __init__(self, array: Int64s) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        return IntColumn, (self.array,)

    def take(self, indexes: Sequence[int] | Int64s) -> IntColumn:
        """The integers at these indexes."""
        return IntColumn(self.array[np.asarray(indexes, np.int64)])

    def _make(self) -> list[int]:
        values: list[int] = self.array.tolist()
        return values

    def _slice(self, start: int, length: int) -> IntColumn:
        return IntColumn(self.array[start : start + length])


class RepeatedColumn(Column[T]):
    """One value, so many times.

    Args:
        value: of every element.
        size: the number of elements.
    """

    def __init__(self, value: T, size: int) -> None:
        self.value, self._size = value, size

    def __len__(self) -> int:
        return self._size

    def __reduce__(self) -> tuple[Any, ...]:
        return RepeatedColumn, (self.value, self._size)

    def take(self, indexes: Sequence[int] | Int64s) -> RepeatedColumn[T]:
        """A column of the values at these indexes, in their order."""
        return RepeatedColumn(self.value, len(indexes))

    def _make(self) -> list[T]:
        return [self.value] * self._size

    def _slice(self, start: int, length: int) -> RepeatedColumn[T]:
        return RepeatedColumn(self.value, length)


class WindowColumn(Column[Window]):
    """Windows ``[start, end)``.

    Args:
        starts_us: the first instant of each window, in microseconds.
        ends_us: the first instant behind each window, in microseconds.
        size_us: the length of every window, in microseconds; None: they differ, or it is not known.
    """

    def __init__(self, starts_us: Int64s, ends_us: Int64s, size_us: int | None = None) -> None:
        self.starts_us, self.ends_us, self.size_us = starts_us, ends_us, size_us

    def __len__(self) -> int:
        return len(self.starts_us)

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowColumn, (self.starts_us, self.ends_us, self.size_us)

    def take(self, indexes: Sequence[int] | Int64s) -> WindowColumn:
        """The windows at these indexes."""
        at = np.asarray(indexes, np.int64)
        return WindowColumn(self.starts_us[at], self.ends_us[at], self.size_us)

    def _make(self) -> list[Window]:
        return list(windows_of(self.starts_us.tolist(), self.ends_us.tolist()))

    def _slice(self, start: int, length: int) -> WindowColumn:
        run = slice(start, start + length)
        return WindowColumn(self.starts_us[run], self.ends_us[run], self.size_us)


class Rows(Column[Any]):
    """Typed rows: a record batch, whose columns are the fields of the row type in their order.

    Args:
        batch: its columns are the fields, in their order.
        row_type: of the rows.
    """

    def __init__(self, batch: pa.RecordBatch, row_type: Any) -> None:
        self.batch, self.row_type = batch, row_type

    @classmethod
    def of(cls, row_type: Any, names: Sequence[str], columns: Sequence[pa.Array]) -> Rows:
        """Rows of columns of the same length.

        Args:
            row_type: of the rows.
            names: of the fields, in their order.
            columns: the values of each field, all of one length.
        """
        return cls(pa.RecordBatch.from_arrays(list(columns), names=list(names)), row_type)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rows, (packed(self.batch), self.row_type)

    def take(self, indexes: Sequence[int] | Int64s) -> Rows:
        """The rows at these indexes."""
        return Rows(self.batch.take(array_of(np.asarray(indexes, np.int64))), self.row_type)

    def column(self, name: str) -> pa.Array | None:
        """The column of a field, if there is such a field."""
        index = self.batch.schema.get_field_index(name)
        return None if index < 0 else self.batch.column(index)

    def _make(self) -> list[Any]:
        return rows_of(self.row_type, self.batch.columns, len(self))

    def _slice(self, start: int, length: int) -> Rows:
        return Rows(self.batch.slice(start, length), self.row_type)


class PairColumns(Column[tuple[Any, Any]]):
    """``(key, values)`` pairs: the values are a tuple, and so is the key unless it ``is_single``.

    Args:
        keys: the columns of the key.
        values: the columns of the values.
        is_single: whether the key is the value of its only column, and not a tuple.
    """

    def __init__(
        self,
        keys: tuple[pa.Array, ...],
        values: tuple[pa.Array, ...],
        *,
        is_single: bool,
    ) -> None:
        self.keys, self.values, self.is_single = keys, values, is_single

    def __len__(self) -> int:
        return len(self.keys[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._items(),)

    def take(self, indexes: Sequence[int] | Int64s) -> PairColumns:
        """The pairs at these indexes."""
        at = array_of(np.asarray(indexes, np.int64))
        return PairColumns(
            tuple(each.take(at) for each in self.keys),
            tuple(each.take(at) for each in self.values),
            is_single=self.is_single,
        )

    def _make(self) -> list[tuple[Any, Any]]:
        values = zip(*map(column_values, self.values), strict=True)
        return list(zip(key_values(self.keys, is_single=self.is_single), values, strict=True))

    def _slice(self, start: int, length: int) -> PairColumns:
        return PairColumns(
            tuple(each.slice(start, length) for each in self.keys),
            tuple(each.slice(start, length) for each in self.values),
            is_single=self.is_single,
        )


def picked(column: Sequence[Any], indexes: Sequence[int] | Int64s) -> Sequence[Any]:
    """The elements of a column or a list at these indexes.

    Args:
        column: a column, or a list.
        indexes: of the wanted elements, from 0, in the wanted order.
    """
    if isinstance(column, Column):
        return column.take(indexes)
    return [column[index] for index in indexes]


def key_values(keys: Sequence[pa.Array], *, is_single: bool) -> list[Any]:
    """Key columns as keys.

    Args:
        keys: the columns of the key.
        is_single: whether the key is the value of its only column, and not a tuple.
    """
    columns = [column_values(each) for each in keys]
    return columns[0] if is_single else list(zip(*columns, strict=True))


def rows_of(row_type: Any, columns: Sequence[pa.Array], size: int) -> list[Any]:
    """Columns as rows.

    Args:
        row_type: of the rows.
        columns: one for each field, in their order.
        size: the number of rows, also where there is no column.
    """
    if not columns:
        return [row_type._make(())] * size
    return list(map(row_type._make, zip(*map(column_values, columns), strict=True)))


def tuples_of(columns: Sequence[pa.Array]) -> pa.StructArray:
    """Columns as one, of tuples: an Arrow struct whose fields are numbered.

    Args:
        columns: all of one length.
    """
    return pa.StructArray.from_arrays(list(columns), names=[str(n) for n in range(len(columns))])


def _is_tuples(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [field.name for field in kind] == [
        str(n) for n in range(kind.num_fields)
    ]


def column_values(array: pa.Array) -> list[Any]:
    """An array as Python values; instants are datetimes in UTC."""
    if _is_tuples(array.type):
        return list(zip(*map(column_values, array.flatten()), strict=True))
    if pa.types.is_list(array.type):
        return _lists_of(array)
    if pa.types.is_timestamp(array.type):
        times_us = array.cast(TIMESTAMP_TYPE).cast(pa.int64()).to_pylist()
        return [None if time_us is None else to_datetime(time_us) for time_us in times_us]
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if is_number and not array.null_count:
        values: list[Any] = numbers_of(array).tolist()
        return values
    return list(array.to_pylist())


def _lists_of(array: pa.ListArray) -> list[Any]:
    values = column_values(array.flatten())
    sizes = array.value_lengths().fill_null(0).to_pylist()
    ends = accumulate(sizes)
    lists = [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    if not array.null_count:
        return lists
    return [found if known else None for found, known in zip(lists, array.is_valid(), strict=True)]


def packed(batch: pa.RecordBatch) -> bytes:
    """A record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(blob: bytes) -> pa.RecordBatch:
    """The inverse of `packed`."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_next_batch()


def _rows(blob: bytes, row_type: Any) -> Rows:
    return Rows(unpacked(blob), row_type)
