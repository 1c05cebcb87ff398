"""Rows as columns, where a row type has fields that travel as columns: by ADBC, which reads Arrow, or of many texts.

A value that a row type does not take (a NULL, an infinite instant) has no column: such rows are read one by one, so
that elements and dead letters are the same either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from dataflow.columns import ARROW_TYPES, IntColumn, Rows
from dataflow.errors import PipelineError
from dataflow.io.arrow_columns import ArrowField, Columns, arrow_fields
from dataflow.io.postgres_reads.connection import conninfo_of
from dataflow.io.postgres_reads.row_form import Columns as Types
from dataflow.io.postgres_reads.row_form import RowForm
from windowing.timestamps import MIN_TIMESTAMP_US

#: What values of types of Postgres (``pg_type``) are, where their texts are columns.
_OF_TEXTS = {
    16: bool,
    20: int,
    21: int,
    23: int,
    25: str,
    700: float,
    701: float,
    1042: str,
    1043: str,
    1184: datetime,
}
#: The same, where ADBC reads them: not of ``real``, whose text has fewer digits than its binary form.
_OF_ADBC = {oid: kind for oid, kind in _OF_TEXTS.items() if oid != 700}
#: Of one batch of ADBC, about.
_BATCH_BYTES = 4 << 20


@attrs.frozen
class ColumnForm:
    """The form of rows that travel as columns.

    Attributes:
        row_type: their class.
        fields: its fields.
        time_column: with the event time; None: rows have none.
    """

    row_type: type
    fields: tuple[ArrowField, ...]
    time_column: str | None

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        names = [field.name for field in self.fields]
        if self.time_column is None or self.time_column in names:
            return names
        return [*names, self.time_column]


def adbc_form(form: RowForm, columns: Types) -> ColumnForm | None:
    """The form, if ADBC is installed, and can read rows with these columns; None: they are read as texts.

    Args:
        form: of the elements.
        columns: of the rows.
    """
    is_there = find_spec("adbc_driver_postgresql") is not None
    return _column_form(form, columns, _OF_ADBC) if is_there else None


def text_form(form: RowForm, columns: Types) -> ColumnForm | None:
    """The form, if texts of rows with these columns can be columns; None: they are rows.

    Args:
        form: of the elements.
        columns: of the rows.
    """
    return _column_form(form, columns, _OF_TEXTS)


def _column_form(form: RowForm, columns: Types, kinds_of: Mapping[int, type]) -> ColumnForm | None:
    if form.row_type is None or callable(form.event_time):
        return None
    try:
        fields = arrow_fields(form.row_type, "ReadFromPostgres")
    except PipelineError:  # a dataclass, or fields of other types: they are rows
        return None
    kinds = {name: kinds_of.get(oid) for name, oid in columns}
    if any(not field.is_columnar or kinds[field.name] is not field.kind for field in fields):
        return None
    if form.event_time is not None and kinds[form.event_time] is not datetime:
        return None
    return ColumnForm(form.row_type, fields, form.event_time)


class ColumnQuery:
    """A query in a transaction of its own, whose rows come as Arrow.

    Args:
        dsn: of the database.
        query: its text.
        settings: statements for the transaction, before it.

    Raises:
        adbc_driver_manager.Error: the server does not answer, or refuses.
    """

    def __init__(self, dsn: str, query: str, settings: Sequence[str]) -> None:
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415 - an extra

        self._connection = dbapi.connect(conninfo_of(dsn))
        try:
            for setting in settings:
                self._run(setting).close()
            self._cursor = self._run(query)
            self._batches = self._cursor.fetch_record_batch()
        except BaseException:
            self.close()
            raise

    def _run(self, statement: str) -> Any:
        cursor = self._connection.cursor()
        cursor.adbc_statement.set_options(
            **{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)}
        )
        cursor.execute(statement)
        return cursor

    def next(self) -> pa.RecordBatch | None:
        """The next rows, however many; None at the end."""
        try:
            return self._batches.read_next_batch()
        except StopIteration:
            return None

    def snapshot(self) -> str:
        """The name of the snapshot, valid until this is closed; ends the query."""
        self._cursor.close()
        self._cursor = self._run("SELECT pg_export_snapshot()")
        ((name,),) = self._cursor.fetchall()
        return str(name)

    def close(self) -> None:
        """End the session.  Idempotent."""
        self._connection.close()


def is_refused(error: BaseException) -> bool:
    """Whether an error is one of ADBC: of the server, or of the connection.

    Args:
        error: whatever was raised.
    """
    from adbc_driver_manager import Error  # noqa: PLC0415 - an extra

    return isinstance(error, Error)


def columns_of(
    form: ColumnForm, columns: Types, texts: Sequence[Sequence[bytes | None]]
) -> pa.RecordBatch:
    """The columns of rows that are texts.

    Args:
        form: of the rows.
        columns: the names and types of the texts, in order.
        texts: rows.

    Raises:
        pyarrow.ArrowException: a text has no value.
    """
    places = {name: place for place, (name, _) in enumerate(columns)}
    listed = list(zip(*texts, strict=True))
    arrays = [_parsed(listed[places[name]], columns[places[name]][1]) for name in form.names]
    return pa.RecordBatch.from_arrays(arrays, form.names)


def _parsed(texts: Sequence[bytes | None], type_oid: int) -> pa.Array:
    kind = _OF_TEXTS[type_oid]
    array = pa.array(texts, pa.binary())
    if kind is bool:
        return pa.array([None if text is None else text == b"t" for text in texts], pa.bool_())
    text = array.cast(pa.string())
    return text if kind is str else text.cast(ARROW_TYPES[kind])


def rows_of(
    form: ColumnForm, where: str, batch: pa.RecordBatch
) -> tuple[Sequence[Any], Sequence[int]]:
    """Rows, and their event times in microseconds.

    Args:
        form: of the rows.
        where: names the input, for messages.
        batch: its columns.

    Raises:
        InputError: a row has a value that the row type does not take, or no event time.
    """
    columns = Columns(where, None)
    arrays = [columns.column(field, batch.column(field.name)) for field in form.fields]
    rows = Rows.of(form.row_type, [field.name for field in form.fields], arrays)
    if form.time_column is None:
        return rows, IntColumn(np.full(batch.num_rows, MIN_TIMESTAMP_US))
    return rows, columns.times_us(form.time_column, batch.column(form.time_column), 1)
