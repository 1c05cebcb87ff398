"""The rows of a table or query, in parts that are read at the same time.

A table is divided by blocks (`ctid`), the last part without an end, so that each row has one part however the table has
grown since it was divided.  All parts are read in one snapshot, which the driver holds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError
from dataflow.io.postgres_reads.column_rows import (
    ColumnForm,
    ColumnQuery,
    adbc_form,
    is_refused,
    rows_of,
)
from dataflow.io.postgres_reads.connection import (
    checked_session,
    error_code,
    is_lost,
    quoted,
    raw_rows,
)
from dataflow.io.postgres_reads.exported_snapshots import export_snapshot, release_snapshots
from dataflow.io.postgres_reads.row_form import Columns, RowForm
from dataflow.io.postgres_reads.rows import RowShape, batch_of_rows
from dataflow.io.postgres_reads.table import TableShape, table_shape
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import MIN_TIMESTAMP_US

if TYPE_CHECKING:
    import pyarrow as pa

#: Parts are not smaller than so many blocks, of 8 KiB each: below it, a session costs more than reading.
PART_PAGES_MIN = 256
_LOG = logging.getLogger(__name__)
#: SQLSTATE of a snapshot that nobody holds any more, in newer and older servers.
SNAPSHOT_IS_GONE = {"42704", "22023"}
#: Of every transaction that reads: rows have the same order whenever they are read.
_TRANSACTION = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    # Else scans of large tables begin where another one is.
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
    # Else a cursor may be planned in another way than the same query without one.
    "SET LOCAL cursor_tuple_fraction = 1",
)
#: Blocks of ordinary tables and materialized views can be read by number.
_WITH_BLOCKS = {"r", "m"}


#: The rows in a range of blocks, from the first one up to one that is not in it (None: all that follow), and the name
#: of the snapshot that they are read in (None: one of the reader's own).  Plain data, as it is stored.
PageSplit = tuple[int, int | None, str | None]


@attrs.frozen(kw_only=True)
class RowsSource(Source):
    """Reads a table or query; see `ReadFromPostgres` for the arguments.

    Attributes:
        is_query: whether ``table`` is a query.
        dsn: may contain a password, so it is not shown.
    """

    table: str
    is_query: bool
    dsn: str = attrs.field(repr=False)
    form: RowForm

    @property
    def element_type(self) -> Any:
        """The row type, or dicts."""
        return self.form.row_type or dict[str, Any]

    @property
    def input_name(self) -> str:
        """The table, or the query."""
        return self.table

    @property
    def has_event_times(self) -> bool:
        """Whether it is configured where event times are."""
        return self.form.event_time is not None

    def check(self) -> None:
        """Check that the server answers, and the table or query can be read.

        Raises:
            InputError: they cannot.
        """
        with self.session() as connection:
            _, columns = self.query(connection, None)
            RowShape(self.form, columns, self.table)

    def session(self) -> Any:
        """A session.

        Raises:
            InputError: the server does not answer, or refuses.
        """
        return checked_session(self.dsn, self.table)

    def query(self, connection: Any, split: PageSplit | None) -> tuple[str, Columns]:
        """The query for a part, and the columns of its rows.

        Args:
            connection: a session.
            split: the part; None: all.

        Raises:
            InputError: there is no such table, or the query is refused.
        """
        if self.is_query:
            return self.table, self._columns_of_query(connection)
        shape = self.shape(connection)
        names = ", ".join(quoted(name) for name, _ in shape.columns)
        query = f"SELECT {names} FROM {shape.sql_name}"  # noqa: S608 - names are quoted
        if split is not None and shape.kind in _WITH_BLOCKS:
            start, end, _ = split
            query += f" WHERE ctid >= '({start},0)'::tid"
            if end is not None:
                query += f" AND ctid < '({end},0)'::tid"
        return query, shape.columns

    def shape(self, connection: Any) -> TableShape:
        """The shape of the table.

        Args:
            connection: a session.

        Raises:
            InputError: there is none, or it may not be read.
        """
        return table_shape(connection, self.table)

    def _columns_of_query(self, connection: Any) -> Columns:
        try:
            query = f"SELECT * FROM ({self.table}) AS q LIMIT 0"  # noqa: S608 - the user's own query
            result = connection.execute(query.encode())
        except Exception as error:
            if error_code(error) is None:
                raise
            raise InputError(
                "the server refuses the query of ReadFromPostgres",
                detail=str(error).strip(),
                hint="give one SELECT, without a semicolon",
            ) from error
        names = [each.name for each in result.description]
        if len(set(names)) != len(names):
            raise InputError(
                "the query of ReadFromPostgres has two columns of one name",
                detail=f"its columns are {', '.join(names)}",
                hint="name them with AS",
            )
        return tuple((each.name, each.type_code) for each in result.description)

    def splits(self, desired: int) -> Sequence[PageSplit]:
        """Ranges of blocks, of at least `PART_PAGES_MIN`; one of a query, or of a table that has no blocks.

        All are read in one snapshot, which this process holds until it is released.
        """
        session = self.session()
        snapshot = export_snapshot(self, session, _TRANSACTION)
        pages = 0
        if not self.is_query:
            shape = self.shape(session)
            pages = max(shape.pages, 0) if shape.kind in _WITH_BLOCKS else 0
        parts = max(1, min(desired, pages // PART_PAGES_MIN))
        starts = [pages * part // parts for part in range(parts)]
        return [(*each, snapshot) for each in zip(starts, [*starts[1:], None], strict=True)]

    def release(self) -> None:
        """Release the snapshot."""
        release_snapshots(self)

    def open(self, split: PageSplit, position: int | None, *, fence: int) -> SourceReader:
        """Read a part from its row of this number on."""
        if self.form.row_type is not None:
            with self.session() as connection:
                query, columns = self.query(connection, split)
            form = adbc_form(self.form, columns)
            if form is not None:
                return ColumnsReader(self, split, position or 0, query, form)
        return RowsReader(self, split, position or 0)

    def refusal(self, error: Exception) -> InputError:
        """The error about a part that cannot be read on.

        Args:
            error: of the server, or of the connection.
        """
        return InputError(
            f"{self.table} cannot be read on",
            detail=str(error).strip(),
            hint="start the job again when the server is there: what is committed is not read again",
        )


def settings_of(split: PageSplit) -> list[tuple[str, ...]]:
    """The settings of a transaction that reads a part: in its snapshot, and, if that is gone, without.

    Args:
        split: the part.
    """
    snapshot = split[2]
    if snapshot is None:
        return [_TRANSACTION]
    return [(*_TRANSACTION, f"SET TRANSACTION SNAPSHOT '{snapshot}'"), _TRANSACTION]


def warn_of_other_snapshot(source: RowsSource, position: int) -> None:
    """Log that a part is read in another snapshot than it was begun in.

    Args:
        source: that it is of.
        position: how many of its rows were read before.
    """
    _LOG.warning(
        "%s was to be read as it was when the job began, but the driver whose snapshot that was is gone: a part is "
        "read from its row %s on as it is now; rows that were changed meanwhile may be missing, or read twice",
        source.table,
        f"{position + 1:,}",
    )


class RowsReader(SourceReader):
    """Reads one part in one transaction.

    Args:
        source: the source.
        split: the part.
        position: how many of its rows were read before.
    """

    def __init__(self, source: RowsSource, split: PageSplit, position: int) -> None:
        self._source, self._split, self._position = source, split, position
        self._connection: Any = None
        self._rows: RowShape | None = None
        self._is_finished = False

    def read(self, max_records: int) -> SourceBatch:
        """Rows, in the order in which the server has them.

        Raises:
            InputError: the server is away, or refuses.
        """
        taken: list[tuple[Any, ...]] = []
        try:
            if not self._is_finished:
                if self._connection is None:
                    self._begin()
                taken = raw_rows(self._connection, f"FETCH {max_records} FROM read")
        except Exception as error:
            self.close()
            if not (is_lost(error) or error_code(error)):
                raise
            raise self._source.refusal(error) from error
        self._position += len(taken)
        if len(taken) < max_records:
            self._is_finished = True
            self.close()
        return self._batch(taken)

    def _begin(self) -> None:
        self._connection = self._source.session()
        for settings in settings_of(self._split):
            try:
                self._connection.execute("BEGIN")
                for setting in settings:
                    self._connection.execute(setting.encode())
                break
            except Exception as error:
                if error_code(error) not in SNAPSHOT_IS_GONE:
                    raise
                self._connection.execute("ROLLBACK")
                warn_of_other_snapshot(self._source, self._position)
        query, columns = self._source.query(self._connection, self._split)
        self._rows = RowShape(self._source.form, columns, self._source.table)
        self._connection.execute(f"DECLARE read NO SCROLL CURSOR FOR {query}".encode())
        self._connection.execute(f"MOVE {self._position} FROM read".encode())

    def _batch(self, taken: Sequence[tuple[Any, ...]]) -> SourceBatch:
        return batch_of_rows(self._rows, taken, self._position, is_finished=self._is_finished)

    def close(self) -> None:
        """End the session.  Idempotent."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class ColumnsReader(SourceReader):
    """Reads one part in one transaction, as columns until a row cannot be one.

    Args:
        source: the source.
        split: the part.
        position: how many of its rows were read before.
        query: of all its rows.
        form: of the columns.
    """

    def __init__(
        self, source: RowsSource, split: PageSplit, position: int, query: str, form: ColumnForm
    ) -> None:
        self._source, self._split, self._position = source, split, position
        names = ", ".join(quoted(name) for name in form.names)
        self._text = f"SELECT {names} FROM ({query}) AS q OFFSET {position}"  # noqa: S608 - names are quoted
        self._form = form
        self._query: ColumnQuery | None = None
        self._taken: pa.RecordBatch | None = None
        self._rows: RowsReader | None = None
        self._is_finished = False

    @property
    def reads_columns(self) -> bool:  # type: ignore[override]
        """Whether it still does."""
        return self._rows is None

    def read(self, max_records: int) -> SourceBatch:
        """Rows, in the order in which the server has them.

        Raises:
            InputError: the server is away, or refuses.
        """
        if self._rows is not None:
            return self._rows.read(max_records)
        try:
            taken = None if self._is_finished else self._take(max_records)
        except Exception as error:
            self.close()
            if not is_refused(error):
                raise
            raise self._source.refusal(error) from error
        if taken is None:
            self._is_finished = True
            self.close()
            return self._batch([], [])
        try:
            rows, times_us = rows_of(self._form, self._source.table, taken)
        except InputError:
            return self._one_by_one().read(max_records)
        self._position += len(rows)
        return self._batch(rows, times_us)

    def _take(self, max_records: int) -> pa.RecordBatch | None:
        if self._query is None:
            self._query = self._begun()
        while self._taken is None or not self._taken.num_rows:
            self._taken = self._query.next()
            if self._taken is None:
                return None
        taken, self._taken = self._taken.slice(0, max_records), self._taken.slice(max_records)
        return taken

    def _begun(self) -> ColumnQuery:
        *in_snapshot, without = settings_of(self._split)
        for settings in in_snapshot:
            try:
                return ColumnQuery(self._source.dsn, self._text, settings)
            except Exception as error:
                if not is_refused(error) or error.sqlstate not in SNAPSHOT_IS_GONE:  # type: ignore[attr-defined]
                    raise
                warn_of_other_snapshot(self._source, self._position)
        return ColumnQuery(self._source.dsn, self._text, without)

    def _one_by_one(self) -> RowsReader:
        assert self._query is not None
        start, end, _ = self._split
        self._taken = None
        self._rows = RowsReader(self._source, (start, end, self._query.snapshot()), self._position)
        return self._rows

    def _batch(self, rows: Sequence[Any], times_us: Sequence[int]) -> SourceBatch:
        return SourceBatch(
            values=rows,
            timestamps_us=times_us,
            position=self._position,
            watermark_us=MIN_TIMESTAMP_US,
            status=SplitStatus.FINISHED if self._is_finished else SplitStatus.ACTIVE,
        )

    def close(self) -> None:
        """End the sessions.  Idempotent."""
        if self._rows is not None:
            self._rows.close()
        if self._query is not None:
            self._query.close()
        self._query = None
