"""From signed rows to the net effect of a bundle on a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.errors import TableRowError, TransformError
from dataflow.graph import TransformNode
from dataflow.io.table import Row, TableSpec, TableWrite
from runners.core.bundle import Bundle
from runners.core.changelog import check_rows


def table_write(node: TransformNode, table: TableSpec, bundle: Bundle) -> TableWrite:
    """What the bundle's mappings do to the table.

    For each key the last thing said counts: a retraction directly followed by its replacement is one upsert.

    Raises:
        TransformError: an element is not a mapping with every column.
        TableRowError: a value does not fit its column.
    """
    columns = list(table.columns)
    rows = [_row(node, columns, value) for value in bundle.values]
    try:
        check_rows(table, rows)
    except TableRowError as error:
        raise error.located(str(node)) from None
    return _net_effect(table, rows, bundle.signs)


def _net_effect(table: TableSpec, rows: Sequence[Row], signs: Sequence[int] | None) -> TableWrite:
    if not table.key:
        return TableWrite(table=table, inserts=rows)
    indexes = table.key_indexes
    last: dict[Row, tuple[int, Row]] = {}
    for row, sign in zip(rows, signs or [1] * len(rows), strict=True):
        last[tuple(row[index] for index in indexes)] = (sign, row)
    return TableWrite(
        table=table,
        upserts=[row for sign, row in last.values() if sign > 0],
        deletes=[key for key, (sign, _) in last.items() if sign < 0],
    )


def _row(node: TransformNode, columns: list[str], value: Any) -> Row:
    if not isinstance(value, Mapping):
        raise TransformError(
            f"{node} needs mappings from column name to value",
            detail=f"it was given {value!r}",
            hint="end the pipeline with a df.Map that returns a dict",
        )
    try:
        return tuple([value[name] for name in columns])
    except KeyError as error:
        raise TransformError(
            f"{node} was given a row without the column {error.args[0]!r}",
            detail=f"row: {value!r}; columns: {columns}",
            hint="give every column a value; None is SQL's NULL",
        ) from None
