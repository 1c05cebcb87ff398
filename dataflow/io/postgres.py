"""WriteToPostgres: result rows, committed together with the state that produced them.

The table lives in the database of the store, so a row and the fact that its input was consumed are one transaction
(DESIGN section 6).  No SQL here: the store's adapter writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dataflow.errors import PipelineError
from dataflow.graph import WriteTable
from dataflow.io.table import ColumnType, TableSpec
from dataflow.pcollection import PCollection
from dataflow.ptransform import PTransform

_COLUMN_TYPES = (int, float, str, bool, bytes, datetime)


class WriteToPostgres(PTransform[PCollection[Mapping[str, Any]], None]):
    """Write mappings, or named tuples, as rows; the table is created if it is missing.

    Args:
        table: its name, or ``schema.table``.
        columns: column names with their Python types (int, float, str, bool, bytes, datetime), in order.
            Every row must have each of them; what else it has is left out.  None is SQL's NULL and not allowed in the
            key.
        key: the columns that identify a row.  A later row of the same key replaces the earlier one
            and a retraction deletes it.
            Without a key rows are only ever added.

    The direct runner keeps the table in memory: read it with ``pipeline.result.read_table(name)``.

    Raises:
        PipelineError: a column type is unknown, the key is not among the columns, or the input
            retracts and there is no key.
    """

    def __init__(
        self, table: str, *, columns: Mapping[str, ColumnType], key: Sequence[str] = ()
    ) -> None:
        if isinstance(key, str):
            key = (key,)
        for name, kind in columns.items():
            if kind not in _COLUMN_TYPES:
                raise PipelineError(
                    f"table {table!r}: column {name!r} has the type {kind!r}",
                    hint=f"use one of {', '.join(each.__name__ for each in _COLUMN_TYPES)}",
                )
        if missing := [name for name in key if name not in columns]:
            raise PipelineError(
                f"table {table!r}: the key names columns that do not exist",
                detail=f"missing: {missing}; columns: {list(columns)}",
            )
        if not columns:
            raise PipelineError(f"table {table!r} has no columns")
        self._spec = TableSpec(name=table, columns=dict(columns), key=tuple(key))

    def default_label(self) -> str:
        """``WriteToPostgres(table)``."""
        return f"WriteToPostgres({self._spec.name})"

    def expand(self, pcoll: PCollection[Mapping[str, Any]]) -> None:
        """Add the primitive."""
        pipeline = pcoll.pipeline
        if pcoll.node.retracted_by and not self._spec.key:
            raise PipelineError(
                f"{pipeline.here()} only adds rows, but its input takes results back",
                detail=f"{pcoll.node.retracted_by} accumulates and retracts",
                hint="give the table a key=..., so that a retraction can delete its row",
            )
        for other in pipeline.graph().tables():
            if other.name == self._spec.name and _shape(other) != _shape(self._spec):
                raise PipelineError(
                    f"{pipeline.here()} writes a table that another transform describes differently",
                    detail=f"{self._spec} and {other}",
                    hint="give both the same columns and key, or write to two tables",
                )
        pipeline.add_operation(WriteTable(self._spec), [pcoll], pcoll.node.strategy, tags=())


def _shape(table: TableSpec) -> object:
    return list(table.columns.items()), table.key
