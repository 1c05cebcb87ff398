"""ReadFromPostgres: the rows of a table or query, or the changes of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, overload

from dataflow.errors import PipelineError
from dataflow.io.create import Read
from dataflow.io.postgres_reads.changes import ChangesSource
from dataflow.io.postgres_reads.key_chunks import KeyChunksSource
from dataflow.io.postgres_reads.row_form import RowForm
from dataflow.io.postgres_reads.table_rows import RowsSource
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.type_vars import T
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

_QUERY = re.compile(r"\s*(\(\s*)*(select|with|values|table)\b", re.IGNORECASE)
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class ReadFromPostgres(OneOutput["Pipeline", T]):
    """Rows of a table or query of a Postgres database; or a table's rows and then its changes, for ever.

    Elements are dicts from column name to value: int, float, `Decimal` (numeric), str, bool, bytes, date, time,
    datetime (in UTC; without a zone for ``timestamp``), timedelta (a month is 30 days, a year 365), `UUID`, what is in
    json, and lists of these for arrays.  Values of other types are their text.  Generated columns are left out.

    **Rows as they are now**: the input ends.  A table is read in parts at the same time, a query in one, all in one
    snapshot, which the driver holds until the run has ended.  Only where the driver dies a part is read on as the table
    is then, which is logged.  A query needs an ORDER BY without ties, as a part is read again from a row's number.

    **In key chunks** (``key_chunks``): each chunk of rows is a short transaction of its own, so no snapshot is held for
    hours, and views, foreign and partitioned tables are read in parts too, also from a standby or through a pooler.  A
    row that is there all the time and keeps its key is read exactly once, as it is at some moment; whatever dies, the
    job goes on behind the last key that was committed, and it waits for a server that is away.

    **Changes** (``changes=True``): the input has no end.  First come the rows, then what is inserted, replaced and
    deleted: a row that is replaced is retracted, and the new one is added.  Nothing is lost or doubled between the two,
    and the server keeps what is not committed here; docs/connectors/postgres.md has the settings and rights that it
    needs, and what ends the run.

    Args:
        table: its name, or ``schema.table``, as SQL has it; or, without ``changes``, a query: ``SELECT ...``.
        dsn: of the database, such as ``postgresql://user@host/database``.
        changes: whether to follow the table.  It needs a primary key, and ``REPLICA IDENTITY FULL``.
        key_chunks: the columns that identify a row, never NULL and, of a table, those of a unique index in its order;
            True: the primary key.  Without ``changes``, whose copy is always in such chunks.
        slot: the replication slot for it, of this job alone; made if it is missing, and never dropped.
        publication: that has the table; made if it is missing; None: it has the name of the slot.
        rows: a class, such as a `typing.NamedTuple` or a dataclass, that is called with the columns that its fields
            name; elements are what it returns.
        event_time: the column with the event time of a row (a ``timestamptz``, or a number of seconds), or a function
            of the element.  A row that is retracted has the same, so it must depend on the row alone.  Without it every
            row is at the beginning of time.
        max_disorder: with ``changes``, how far event times are behind the time of the commit, at most, as you expect;
            the watermark follows commits, or the server's clock where there are none, at this distance.
        failover: with ``changes``, whether the slot is kept on the standbys that synchronize slots (Postgres 17 and
            later), so that the job goes on with the one that takes over; ``dsn`` names all of them then, with
            ``target_session_attrs=read-write``.

    Raises:
        InputError: the table cannot be read, or followed; says what to do.
        PipelineError: the arguments do not suit each other.
    """

    @overload
    def __init__(
        self: ReadFromPostgres[dict[str, Any]],
        table: str,
        *,
        dsn: str,
        changes: bool = ...,
        key_chunks: bool | str | Sequence[str] = ...,
        slot: str | None = ...,
        publication: str | None = ...,
        rows: None = ...,
        event_time: str | Callable[[dict[str, Any]], TimestampLike] | None = ...,
        max_disorder: DurationLike | None = ...,
        failover: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        table: str,
        *,
        dsn: str,
        changes: bool = ...,
        key_chunks: bool | str | Sequence[str] = ...,
        slot: str | None = ...,
        publication: str | None = ...,
        rows: type[T],
        event_time: str | Callable[[T], TimestampLike] | None = ...,
        max_disorder: DurationLike | None = ...,
        failover: bool = ...,
    ) -> None: ...
    def __init__(
        self,
        table: str,
        *,
        dsn: str,
        changes: bool = False,
        key_chunks: bool | str | Sequence[str] = False,
        slot: str | None = None,
        publication: str | None = None,
        rows: type | None = None,
        event_time: str | Callable[[Any], TimestampLike] | None = None,
        max_disorder: DurationLike | None = None,
        failover: bool = False,
    ) -> None:
        form = RowForm(row_type=rows, fields=_fields(rows), event_time=event_time)
        is_query = _QUERY.match(table) is not None
        self._table = "query" if is_query else table
        self._source: ChangesSource | RowsSource | KeyChunksSource
        if not changes:
            _refuse_for_rows(
                slot=slot,
                publication=publication,
                max_disorder=max_disorder,
                failover=failover or None,
            )
            rows_now = RowsSource(table=table, is_query=is_query, dsn=dsn, form=form)
            key = _key(key_chunks=key_chunks)
            self._source = rows_now if key is None else KeyChunksSource(rows=rows_now, key=key)
            return
        if key_chunks:
            raise PipelineError(
                f"ReadFromPostgres(changes=True) was given key_chunks={key_chunks!r}",
                hint="leave it out: the copy before the changes is always read by the primary key",
            )
        if is_query:
            raise PipelineError(
                "ReadFromPostgres follows the changes of a table, not of a query",
                hint="name the table, and do in the pipeline what the query does",
            )
        if slot is None or not _SLOT_NAME.fullmatch(slot):
            raise PipelineError(
                f"ReadFromPostgres(changes=True) was given slot={slot!r}",
                hint="give the slot a name of this job's own, of lower-case letters, digits and underscores",
            )
        disorder_us = 0 if max_disorder is None else to_duration_us(max_disorder)
        if disorder_us < 0:
            raise PipelineError(
                f"ReadFromPostgres was given a negative max_disorder, {max_disorder!r}",
                hint="it is how far event times are behind the commit: zero or more",
            )
        self._source = ChangesSource(
            table=table,
            dsn=dsn,
            slot=slot,
            publication=publication or slot,
            form=form,
            max_disorder_us=disorder_us,
            failover=failover,
        )

    def default_label(self) -> str:
        """``ReadFromPostgres(table)``."""
        return f"ReadFromPostgres({self._table})"

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Check the input, and read it."""
        self._source.check()
        return pcoll | Read(self._source)


def _key(*, key_chunks: bool | str | Sequence[str]) -> tuple[str, ...] | None:
    """The columns; none: those of the primary key; None: rows are not read in key chunks."""
    if isinstance(key_chunks, bool):
        return () if key_chunks else None
    names = (key_chunks,) if isinstance(key_chunks, str) else tuple(key_chunks)
    if not names or len(set(names)) != len(names):
        raise PipelineError(
            f"ReadFromPostgres was given key_chunks={key_chunks!r}",
            hint='name columns that identify a row, each once: key_chunks=["id"]; or True for the primary key',
        )
    return names


def _refuse_for_rows(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise PipelineError(
                f"ReadFromPostgres was given {name}={value!r} without changes=True",
                hint=f"leave {name} out; or follow the table: changes=True",
            )


def _fields(rows: Any) -> tuple[str, ...]:
    if rows is None:
        return ()
    if is_dataclass(rows):
        return tuple(each.name for each in fields(rows) if each.init)
    names = getattr(rows, "_fields", None)
    if not isinstance(rows, type) or names is None:
        raise PipelineError(
            f"ReadFromPostgres cannot make rows of {rows!r}",
            hint="give rows= a typing.NamedTuple or a dataclass, whose fields are names of columns",
        )
    return tuple(names)
