"""TableFormat: rows that wait in the outbox as columns of a table of a lake, which may have other types than ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import InputError, PipelineError, SinkRefusedError
from dataflow.files.formats import ColumnFormat, ParquetFormat, arrow_type
from dataflow.files.writes import check_types
from dataflow.sink import Batching, SinkChange
from dataflow.table import ColumnType

#: How large batches are by default: a commit a minute at most, and files as readers like them.
LAKE_BATCHING = Batching(max_delay_ms=60_000, max_bytes=128 << 20, max_rows=1_000_000)


@attrs.frozen(kw_only=True)
class TableFormat(ParquetFormat):
    """Columns of a table of a lake."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a table that is created for it; each may be null."""
        return pa.schema([(name, arrow_type(kind)) for name, kind in self.written.items()])

    def check_fit(self, title: str, schema: pa.Schema) -> None:
        """Check that rows can be in a table that is there.

        Args:
            title: of the table, for messages.
            schema: of the table.

        Raises:
            InputError: a column is missing, has a type that does not fit, or is not ours and must not be null.
        """
        for field in self.schema:
            if field.name not in schema.names:
                raise InputError(
                    f"{title} has no column {field.name!r}",
                    detail=f"its columns: {', '.join(schema.names)}",
                    hint="name columns as they are in the table, or add the column to it",
                )
            kind = schema.field(field.name).type
            try:
                pa.array([], field.type).cast(kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"{title} has a column {field.name!r} of another type, {kind}",
                    detail=str(error),
                    hint="give the column the Python type of what the table has",
                ) from None
        for field in schema:
            if field.name not in self.written and not field.nullable:
                raise InputError(
                    f"{title} has a column {field.name!r} that must not be null, and is not written",
                    hint="write it too",
                )

    def fitted(self, title: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows with the columns of a table that is there; what is not ours is null.

        Args:
            title: of the table, for messages.
            table: the rows.
            schema: of the table.

        Raises:
            SinkRefusedError: a value does not fit; or the table has no such column any more.
        """
        try:
            self.check_fit(title, schema)
            columns = [
                table.column(field.name).cast(field.type)
                if field.name in table.column_names
                else pa.nulls(table.num_rows, field.type)
                for field in schema
            ]
            return pa.Table.from_arrays(columns, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkRefusedError(
                f"{title} does not take the rows",
                detail=str(error),
                hint="change the values or the table; the rows stay in the outbox",
            ) from error
        except InputError as error:
            raise SinkRefusedError(error.fact, detail=error.detail, hint=error.hint) from error

    def table_of(self, changes: Sequence[SinkChange]) -> pa.Table:
        """Changes as rows.

        Args:
            changes: of a batch.

        Raises:
            SinkRefusedError: a value does not fit its column.
        """
        return self.table([each.value for each in changes], [each.sign for each in changes])


def table_format(
    name: str, columns: Mapping[str, ColumnType], changelog: str | None
) -> TableFormat:
    """The format of a write.

    Args:
        name: of the transform, for messages.
        columns: as the user gave them.
        changelog: the column for signs; None: there is none.

    Raises:
        PipelineError: a column has an unknown type, or one that tables of lakes do not have.
    """
    check_types(name, columns, changelog)
    for column, kind in columns.items():
        if kind is timedelta:
            raise PipelineError(
                f"{name}: column {column!r} is of timedelta, which tables of lakes have no type for",
                hint="write seconds, as float, or microseconds, as int",
            )
    return TableFormat(suffix="", types=dict(columns), sign=changelog)


@attrs.frozen
class RowOf:
    """From an element, a mapping or a named tuple, to the columns of its row."""

    file_format: ColumnFormat

    def __call__(self, element: Any) -> Mapping[str, Any]:
        """The columns, and perhaps more."""
        return self.file_format.row_of(element)
