"""Computes the net effect of a bundle of signed rows on a table."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

from dataflow.columns import Rows
from dataflow.errors import TableConflictError, TableRowError, TransformError
from dataflow.graph import TransformNode
from dataflow.rows import is_row_type
from dataflow.table import Row, TableSpec, TableWrite
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown
from runners.core.tables.changelog import CheckedRows, checked
from runners.core.tables.columns import TableColumns
from runners.core.tables.row_changes import RowChanges


def table_write(
    node: TransformNode, table: TableSpec, bundle: Bundle, *, is_retracted: bool = False
) -> TableWrite:
    """The write of a bundle's rows or mappings to the table.

    For each key the last row counts; where rows can be retracted, the net change counts.

    Args:
        node: the transform that writes.
        table: the table.
        bundle: the rows.
        is_retracted: whether rows of this transform can be retracted, in this bundle or in another.

    Raises:
        TransformError: an element is not a row or a mapping with every column.
        TableRowError: a value does not fit its column.
        TableConflictError: two retractable rows have the same key.
    """
    if isinstance(bundle.values, Rows) and not is_retracted:
        found = TableColumns.of(table, bundle.values)
        if found is not None:
            is_keyed = bool(table.key)
            return TableWrite(
                table=table, upserts=found if is_keyed else (), inserts=() if is_keyed else found
            )
    try:
        rows = checked(table, rows_of(node, list(table.columns), bundle.values))
    except TableRowError as error:
        raise error.located(str(node)) from None
    if not table.key:
        return TableWrite(table=table, inserts=CheckedRows(table, rows))
    if is_retracted:
        changes = RowChanges(table)
        try:
            changes.add(rows, bundle.signs or [1] * len(rows))
            return TableWrite(table=table, changes=changes.net())
        except TableConflictError as error:
            raise error.located(str(node)) from None
    indexes = table.key_indexes
    last = {tuple([row[index] for index in indexes]): row for row in rows}
    return TableWrite(table=table, upserts=CheckedRows(table, last.values()))


def rows_of(node: TransformNode, columns: list[str], values: Sequence[Any]) -> list[Row]:
    """Rows, or mappings, as tuples.

    Args:
        node: the transform that writes.
        columns: their names, in order.
        values: the rows.

    Raises:
        TransformError: one is no row, or has not every column.
    """
    if len(columns) > 1 and set(map(type, values)) == {dict}:
        with suppress(KeyError):  # the loop below finds the row, and raises
            return list(map(itemgetter(*columns), values))
    return [_row(node, columns, value) for value in values]


def _row(node: TransformNode, columns: list[str], value: Any) -> Row:
    is_mapping = isinstance(value, Mapping)
    if not is_mapping and not is_row_type(type(value)):
        raise TransformError(
            f"{node} needs mappings from column name to value",
            detail=f"it was given {shown(value)}",
            hint="end the pipeline with a df.Map that returns a dict, or a named tuple",
        )
    try:
        if is_mapping:
            return tuple([value[name] for name in columns])
        return tuple([getattr(value, name) for name in columns])
    except (KeyError, AttributeError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else error.name
        raise TransformError(
            f"{node} was given a row without the column {missing!r}",
            detail=f"row: {shown(value)}; columns: {columns}",
            hint="give every column a value; None is SQL's NULL",
        ) from None
