"""What is left of rows that were taken away and rows that were added: a row that was only moved is neither."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.lake.reading import SIGN

_ROW = "row"


def net_changes(before: Sequence[pa.RecordBatch], after: Sequence[pa.RecordBatch]) -> pa.Table:
    """Rows that are gone, with a sign of -1, and then rows that are new, with +1; equal ones cancel each other.

    The order is that of the input, so the same input gives the same order.

    Args:
        before: rows that were there, in any order.
        after: rows that are there, with the same columns.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - 30 ms of the start of each process, and only these rows need it

    parts = [pa.Table.from_batches([batch]) for batch in (*before, *after)]
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    gone = sum(batch.num_rows for batch in before)
    names = [str(at) for at in range(rows.num_columns)]
    numbered = pa.table(
        [
            *map(_comparable, rows.columns),
            pa.array([-1] * gone + [1] * (rows.num_rows - gone), pa.int64()),
            pa.array(range(rows.num_rows), pa.int64()),
        ],
        names=[*names, SIGN, _ROW],
    )
    sums = numbered.group_by(names, use_threads=False).aggregate([(SIGN, "sum"), (_ROW, "min")])
    left = sums.filter(pc.not_equal(sums.column(f"{SIGN}_sum"), 0)).sort_by(f"{_ROW}_min")
    found_rows, counts = (
        left.column(f"{_ROW}_min").to_pylist(),
        left.column(f"{SIGN}_sum").to_pylist(),
    )
    counted = list(zip(found_rows, counts, strict=True))
    taken = [(row, -1) for row, count in counted for _ in range(-count)]
    taken += [(row, 1) for row, count in counted for _ in range(count)]
    found = rows.take(pa.array([row for row, _ in taken], pa.int64()))
    return found.append_column(SIGN, pa.array([sign for _, sign in taken], pa.int8()))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column whose values are equal where those of the given one are; Arrow groups by no lists."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()])
    return column
