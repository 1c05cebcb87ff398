"""WriteToPostgres: result rows, in the database of the store or in another one.

A table in the database of the store is written in the commits of the state that produced the rows, so a row and the
fact that its input was consumed are one transaction (ADR 0004).  One in another database is a `Sink`.  No SQL here: the
store's adapter writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from dataflow.errors import PipelineError, SinkError
from dataflow.graph import WriteTable
from dataflow.installed import WRITERS, installed
from dataflow.io.sinks import Write
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.sink import Lane, Sink, SinkWriter
from dataflow.table import (
    COLUMN_TYPES,
    ColumnType,
    TableSpec,
    can_be_in_key,
    is_column_type,
    type_name,
)
from windowing.timestamps import DurationLike


class WriteToPostgres(PTransform[PCollection[Mapping[str, Any]], None]):
    """Write mappings, or named tuples, as rows; the table is created if it is missing.

    Args:
        table: its name, or ``schema.table``.
        columns: column names with their Python types, in order: int (of 64 bits), float, str, bool, bytes, datetime
            (with a zone), `Decimal` (numeric, every digit is kept, and floats are refused), date, time, timedelta
            (interval), `UUID`, dict and list (jsonb), an enum (text: the values of its members if all are texts, else
            their names), or ``list[...]`` of one of these but dict and list (an array).
            Every row must have each of them; what else it has is left out.  None is SQL's NULL and not allowed in the
            key.
        key: the columns that identify a row.  A later row of the same key replaces the earlier one.
            Without a key rows are only ever added.
            Where the input retracts results, a retraction deletes the row that was emitted, and a key may have one row
            at a time: two groups that emit rows of one key are refused (`TableConflictError`), as it would depend on
            the order which of them is left.  Let the key have what the results are grouped by, and the window; or
            group them by the table's key first.

        dsn: of another Postgres than the store: a connection string or URI of libpq, which may have a password.  Rows
            go there by way of an outbox in the store, each batch in one transaction with its number, so they are there
            exactly once; the numbers are in a table ``dataflow_progress`` beside the table.  None: the store.
        lanes: how many connections write there at once; rows of one key keep their order.
        changelog: the name of a further column, of integers: each emission is a row with +1 there, each retraction a
            row with -1, and rows are only ever added.  Only with a ``dsn``; `ToChangelog` does the same for tables of
            the store.
        shared: whether the table may be one that another job writes to.  Otherwise that is refused: neither job could
            start afresh without the rows of the other.
        fresh_within: how far behind the clock its input may be in a stream, as for `FreshWithin`: seconds, a timedelta,
            or a text such as ``"5s"``; None: nothing is declared.

    The direct runner keeps the table in memory: read it with ``pipeline.result.read_table(name)``.

    Raises:
        PipelineError: a column type is unknown, the key is not among the columns, the input
            retracts and there is no key, or another transform writes to the table and only one of the two inputs
            retracts; or ``fresh_within`` is no length of time.
    """

    def __init__(
        self,
        table: str,
        *,
        columns: Mapping[str, ColumnType],
        key: Sequence[str] = (),
        dsn: str | None = None,
        lanes: int = 1,
        changelog: str | None = None,
        shared: bool = False,
        fresh_within: DurationLike | None = None,
    ) -> None:
        self._fresh_within = fresh_within
        if isinstance(key, str):
            key = (key,)
        for name, kind in columns.items():
            if not is_column_type(kind):
                raise PipelineError(
                    f"table {table!r}: column {name!r} has the type {kind!r}",
                    hint=f"use one of {', '.join(each.__name__ for each in COLUMN_TYPES)}, an enum, "
                    "or list[...] of one of them for an array",
                )
            if name in key and not can_be_in_key(kind):
                raise PipelineError(
                    f"table {table!r}: column {name!r} is of type {type_name(kind)} and cannot be in the key",
                    hint="let the key have what identifies a row, e.g. a str, int or UUID",
                )
        if missing := [name for name in key if name not in columns]:
            raise PipelineError(
                f"table {table!r}: the key names columns that do not exist",
                detail=f"missing: {missing}; columns: {list(columns)}",
            )
        if not columns:
            raise PipelineError(f"table {table!r} has no columns")
        if changelog is not None and (key or dsn is None or changelog in columns):
            raise PipelineError(
                f"table {table!r} cannot be a changelog with the column {changelog!r}",
                hint="give it a dsn and no key, and the column a name of its own; for a table of the store use "
                "df.ToChangelog()",
            )
        self._spec = TableSpec(name=table, columns=dict(columns), key=tuple(key), is_shared=shared)
        self._sink = dsn and PostgresTable(
            self._spec, dsn=dsn, lanes=lanes, changelog=changelog, is_retracted=False
        )

    def default_label(self) -> str:
        """``WriteToPostgres(table)``."""
        return f"WriteToPostgres({self._spec.name})"

    def expand(self, pcoll: PCollection[Mapping[str, Any] | tuple[Any, ...]]) -> None:
        """Add the primitive.

        Raises:
            PipelineError: the input retracts and the table has no key, or another transform writes the table in another
                manner.
        """
        pipeline = pcoll.pipeline
        if self._fresh_within is not None:
            pipeline.declare_fresh(pcoll, self._fresh_within)
        is_changelog = isinstance(self._sink, PostgresTable) and self._sink.changelog is not None
        if pcoll.node.retracted_by and not self._spec.key and not is_changelog:
            raise PipelineError(
                f"{pipeline.here()} only adds rows, but its input retracts results",
                detail=f"{pcoll.node.retracted_by} retracts what it has emitted",
                hint="give the table a key=..., so that a retraction can delete its row",
            )
        if isinstance(self._sink, PostgresTable):
            Write(self._sink.taking(is_retracted=pcoll.node.retracted_by is not None)).expand(pcoll)
            return
        for other in pipeline.graph().tables():
            if other.name == self._spec.name and _shape(other) != _shape(self._spec):
                raise PipelineError(
                    f"{pipeline.here()} writes a table that another transform describes differently",
                    detail=f"{self._spec} and {other}",
                    hint="give both the same columns and key, or write to two tables",
                )
        _refuse_two_manners(pcoll, self._spec)
        pipeline.add_operation(WriteTable(self._spec), [pcoll], pcoll.node.strategy, tags=())


class PostgresTable(Sink[Any]):
    """A table of any Postgres, to which rows are written exactly once.

    Args:
        table: its name, columns and key.
        dsn: of the server; never shown.
        lanes: how many parts the outbox has.
        changelog: the name of the column with the signs; None: rows replace each other by key, and retractions delete.
        is_retracted: whether rows may be retracted.
    """

    def __init__(
        self,
        table: TableSpec,
        *,
        dsn: str,
        lanes: int = 1,
        changelog: str | None = None,
        is_retracted: bool,
    ) -> None:
        self.table, self.dsn, self.changelog = table, dsn, changelog
        self.is_retracted, self._lanes = is_retracted, lanes

    def __repr__(self) -> str:
        return f"table {self.table.name} of another Postgres"

    def taking(self, *, is_retracted: bool) -> PostgresTable:
        """Make the same sink for input that may be retracted, or is not.

        Args:
            is_retracted: whether it may be.
        """
        return PostgresTable(
            self.table,
            dsn=self.dsn,
            lanes=self._lanes,
            changelog=self.changelog,
            is_retracted=is_retracted,
        )

    @property
    def lanes(self) -> int:
        """How many connections write at once."""
        return self._lanes

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns of the table, without that of a changelog."""
        return self.table.columns

    @property
    def stored(self) -> TableSpec:
        """The table as it is on the server."""
        if self.changelog is None:
            return self.table
        return attrs.evolve(self.table, columns={**self.table.columns, self.changelog: int})

    def lane_key(self, element: Any) -> Any:
        """The key of a row, or the whole row if the table has none."""
        return tuple(element[index] for index in self.table.key_indexes) or element

    def check(self) -> None:
        """Check that its writer is installed.

        Raises:
            SinkError: it is not.
        """
        _writer_class()

    def open(self, lane: Lane) -> SinkWriter:
        """A writer, of the package that has the store's adapter: it writes tables as the store's are written.

        Raises:
            SinkError: it is not installed.
        """
        return _writer_class()(self, lane)


def _writer_class() -> Callable[[PostgresTable, Lane], SinkWriter]:
    known = installed(WRITERS)
    if "postgres" not in known:
        raise SinkError(
            "nothing is installed that writes to another Postgres",
            detail=f"no package registers 'postgres' among its entry points {WRITERS!r}",
            hint="install this package again (pip install .; of a clone, make setup): what it registers is read from "
            "where it was installed, which is of an older version",
        )
    writer: Callable[[PostgresTable, Lane], SinkWriter] = known["postgres"].load()
    return writer


def _refuse_two_manners(pcoll: PCollection[Any], table: TableSpec) -> None:
    """Refuse a table with both rows that are retracted and rows that replace each other."""
    graph = pcoll.pipeline.graph()
    for node in graph.transforms:
        operation = node.operation
        if not isinstance(operation, WriteTable) or operation.table.name != table.name:
            continue
        other = graph.pcollections[node.inputs[0]].retracted_by
        if table.key and bool(other) != bool(pcoll.node.retracted_by):
            raise PipelineError(
                f"{pcoll.pipeline.here()} and {node} write to the same table, and one of them retracts rows",
                detail=f"{other or pcoll.node.retracted_by} retracts what it has emitted; the other only replaces "
                "rows, also those of the first",
                hint="write to two tables, or flatten the inputs and write once",
            )


def _shape(table: TableSpec) -> object:
    return list(table.columns.items()), table.key
