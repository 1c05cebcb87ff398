"""What a batch of rows by key does to an Iceberg table: files that have one of its keys are written again without it.

A batch is one snapshot, so that its number is one, and a reader sees all of it or nothing.  pyiceberg's own upsert
makes several, deletes nothing, and compares the rows of both sides one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dataflow.lake.iceberg_table import planned_files

#: Of so many values each is looked for among the least and greatest values of files; of more, only where they are.
_NAMED_MAX = 200
#: So many bytes of rows in memory are made files before more are read.
_WRITTEN_AT_ONCE = 256 << 20
_ROW = "dataflow_row"


def stage_rewrite(
    transaction: Any,
    table: Any,
    rows: pa.Table,
    keys: pa.Table,
    summary: Mapping[str, str],
) -> None:
    """Have a transaction make the rows with certain keys those that are given.

    Args:
        transaction: of the table, that commits under the condition that the table is as it was read.
        table: that was opened.
        rows: that are added, with the columns of the table.
        keys: of which no other row is to be left; those of the rows among them.
        summary: of the snapshot.

    Raises:
        InputError: the table has deletes that cannot be read.
    """
    removed, added, pending = list[Any](), list[Any](), [rows]
    for file, kept in _files_with(table, keys):
        removed.append(file)
        pending.append(kept.select(rows.column_names).cast(rows.schema))
        if sum(part.nbytes for part in pending) > _WRITTEN_AT_ONCE:
            added.extend(_written(transaction, table, pending))
            pending = []
    if not removed:
        transaction.append(rows, snapshot_properties=dict(summary))
        return
    added.extend(_written(transaction, table, pending))
    update = transaction.update_snapshot(snapshot_properties=dict(summary))
    with update.overwrite() as snapshot:
        for file in removed:
            snapshot.delete_data_file(file)
        for file in added:
            snapshot.append_data_file(file)


def _files_with(table: Any, keys: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
    """The files that have rows with one of these keys, each with its other rows."""
    from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415 - an extra
    from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415 - an extra

    scan = table.scan(row_filter=_where(keys))
    for task in planned_files(scan, ".".join(table.name())):
        found = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])
        kept = _without(found, keys)
        if kept.num_rows < found.num_rows:
            yield task.file, kept


def _where(keys: pa.Table) -> Any:
    """What rows with one of these keys meet, and files without such rows do not, as far as their statistics say."""
    import pyarrow.compute as pc  # noqa: PLC0415 - 30 ms of the start of each process, and only these rows need it
    from pyiceberg.expressions import (  # noqa: PLC0415 - an extra
        AlwaysTrue,
        And,
        GreaterThanOrEqual,
        In,
        LessThanOrEqual,
    )

    where: Any = AlwaysTrue()
    for name in keys.column_names:
        if pa.types.is_floating(keys.column(name).type):
            # NaN is no value that could be compared with statistics.
            continue
        values = pc.unique(keys.column(name))
        if len(values) <= _NAMED_MAX:
            where = And(where, In(term=name, values=values.to_pylist()))
            continue
        ends = pc.min_max(values)
        where = And(where, GreaterThanOrEqual(term=name, value=ends["min"].as_py()))
        where = And(where, LessThanOrEqual(term=name, value=ends["max"].as_py()))
    return where


def _without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have none of the keys, in their order."""
    names = keys.column_names
    found = rows.select(names).cast(keys.schema)
    numbered = found.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    left = numbered.join(keys, keys=names, join_type="left anti", use_threads=False)
    return rows.take(left.column(_ROW).sort())


def _written(transaction: Any, table: Any, parts: list[pa.Table]) -> Iterator[Any]:
    """Rows as files of the table; none counts before it is committed."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files  # noqa: PLC0415 - an extra

    rows = pa.concat_tables(parts)
    if rows.num_rows:
        yield from _dataframe_to_data_files(transaction.table_metadata, rows, table.io)
