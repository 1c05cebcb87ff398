"""TableColumns: rows of a result table that arrived as columns and go to the store as columns.

**Invariant**: its rows fit their table (`runners.core.tables.changelog.check_rows`), and each key comes once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_numbers import array_of
from dataflow.columns import ARROW_TYPES, Column, Rows, column_values
from dataflow.table import ColumnType, Row, TableSpec
from runners.core.columns.partials import key_codes
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_columns import Int64s

#: Far fewer bytes than a key may have, so that the columns of a key need not be added up.
_KEY_TEXT_BYTES_MAX = 200


class TableColumns(Column[Row]):
    """Rows of ``table``: ``arrays`` are its columns in order.

    Args:
        table: that the rows are for.
        arrays: the columns, in the table's order.
    """

    def __init__(self, table: TableSpec, arrays: Sequence[pa.Array]) -> None:
        self.table, self.arrays = table, list(arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    @classmethod
    def of(cls, table: TableSpec, rows: Rows) -> TableColumns | None:
        """The rows of a bundle, for each key only the last one; None if they must be checked one by one.

        Args:
            table: the table.
            rows: of the bundle.
        """
        found = [rows.column(name) for name in table.columns]
        arrays = [each for each in found if each is not None]
        if len(arrays) < len(found):
            return None
        kinds = table.columns.items()
        fits = (_fits(kind, each) for (_, kind), each in zip(kinds, arrays, strict=True))
        return cls(table, arrays).with_each_key_once() if all(fits) else None

    @classmethod
    def together(cls, parts: Sequence[TableColumns]) -> TableColumns:
        """The rows of several parts, for each key only the last one."""
        first = parts[0]
        columns = zip(*[each.arrays for each in parts], strict=True)
        whole = cls(first.table, [pa.concat_arrays(each) for each in columns])
        once = whole if len(parts) == 1 else whole.with_each_key_once()
        assert once is not None  # each part has been checked
        return once

    def take(self, indexes: Sequence[int] | Int64s) -> TableColumns:
        """The rows at these indexes."""
        at = array_of(np.asarray(indexes, np.int64))
        return TableColumns(self.table, [each.take(at) for each in self.arrays])

    def in_key_order(self) -> TableColumns:
        """The rows sorted by their keys."""
        names = [str(index) for index in self.table.key_indexes]
        keys = pa.table({name: self.arrays[int(name)] for name in names})
        return self.take(
            _compute().sort_indices(keys, [(name, "ascending") for name in names]).to_numpy()
        )

    def _make(self) -> list[Row]:
        return list(zip(*map(column_values, self.arrays), strict=True))

    def _slice(self, start: int, length: int) -> TableColumns:
        return TableColumns(self.table, [each.slice(start, length) for each in self.arrays])

    def with_each_key_once(self) -> TableColumns | None:
        """The rows, of those with the same key only the last one; None if they must be compared one by one."""
        if not self.table.key or not len(self):
            return self
        keys = [self.arrays[index] for index in self.table.key_indexes]
        if not all(_has_short_values(each) for each in keys):
            return None
        is_time = [pa.types.is_timestamp(each.type) for each in keys]
        plain = [
            each.cast(pa.int64()) if is_us else each
            for each, is_us in zip(keys, is_time, strict=True)
        ]
        codes = key_codes(plain)
        if codes is None:
            return None
        lasts = len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]
        return self if len(lasts) == len(codes) else self.take(np.sort(lasts))


def _compute() -> Any:
    """The module `pyarrow.compute`, which makes three hundred functions when it is imported."""
    import pyarrow.compute as pc  # noqa: PLC0415 - 30 ms of the start of each process, and only columns need it

    return pc


def _fits(kind: ColumnType, array: pa.Array) -> bool:
    """Whether a column certainly fits; False means that its values must be checked."""
    if array.type != ARROW_TYPES.get(kind):
        return False
    if kind is str:
        pc = _compute()
        return not pc.any(pc.match_substring(array, "\0")).as_py()
    if kind is datetime:
        bounds = _compute().min_max(array.cast(pa.int64())).as_py()
        low, high = bounds["min"], bounds["max"]
        return low is None or (low >= MIN_TIMESTAMP_US and high <= MAX_TIMESTAMP_US)
    return True


def _has_short_values(array: pa.Array) -> bool:
    if not pa.types.is_string(array.type):
        return True
    pc = _compute()
    return (pc.max(pc.binary_length(array)).as_py() or 0) <= _KEY_TEXT_BYTES_MAX
