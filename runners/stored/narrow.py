"""Columns of integers in as few bytes as their range needs.

Keys, times and counts of a bundle are 64-bit integers that are close together, or multiples of something.  Partials of
windows of a minute, with a key, a count and a sum, take a fifth of their bytes so, on their way to another range and in
the journal.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_numbers import array_of, numbers_of
from windowing.column_order import in_steps

#: Of fewer rows all is small, and looking at them costs more than it saves.
NARROW_ROWS_MIN = 1_000
_KINDS = (np.uint8, np.uint16, np.uint32)
_OFFSET_MAX = (1 << 63) - 1

#: How a column is made 64-bit integers again: the least one, and what the differences from it are multiples of.
Scale = tuple[int, int]


def narrowed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Scale | None] | None]:
    """Columns in fewer bytes, and how each is read back; None for a column, or instead of all, that is as it was.

    Args:
        batch: columns of any types.
    """
    if len(batch) < NARROW_ROWS_MIN:
        return batch, None
    columns, scales = zip(*map(_narrowed, batch.columns), strict=True)
    return pa.RecordBatch.from_arrays(list(columns), names=batch.schema.names), list(scales)


def widened(
    batch: pa.RecordBatch, scales: Sequence[Sequence[int] | None] | None = None
) -> pa.RecordBatch:
    """The inverse of `narrowed`.

    Args:
        batch: as it was stored.
        scales: of its columns.
    """
    if scales is None:
        return batch
    columns = [
        each if scale is None else _widened(each, *scale)
        for each, scale in zip(batch.columns, scales, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _narrowed(column: pa.Array) -> tuple[pa.Array, Scale | None]:
    if not pa.types.is_int64(column.type) or column.null_count:
        return column, None
    numbers = numbers_of(column)
    low = int(numbers.min())
    span = int(numbers.max()) - low
    if span > _OFFSET_MAX:
        return column, None
    offsets, step = numbers - low, 1
    if span > np.iinfo(np.uint16).max:
        offsets, step = in_steps(offsets)
        span //= step
    for kind in _KINDS:
        if span <= np.iinfo(kind).max:
            return array_of(offsets.astype(kind)), (low, step)
    return column, None


def _widened(column: pa.Array, low: int, step: int) -> pa.Array:
    numbers = numbers_of(column).astype(np.int64)
    if step != 1:
        numbers *= step
    numbers += low
    return array_of(numbers)
