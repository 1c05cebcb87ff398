"""ReadFromParquet, and the source behind it: row groups as columns, without a detour over rows.

A file is divided at row groups.  A position is the row group and the row in it, so whoever goes on within a row group
decodes again what is before.  A row that cannot be handed over is set aside, and the others are not.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from typing import Any, overload

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataflow.columns import IntColumn, Rows
from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.arrow_columns import ArrowField, Columns, arrow_fields, check_time_zone
from dataflow.io.files import UNITS_US, FileSource, Paths, ReadFromFiles, never_called
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.record_reader import RecordReader, event_times_us
from dataflow.record_ids import RecordIds
from dataflow.set_aside import SetAside
from dataflow.source import SourceBatch, SourceReader
from dataflow.type_vars import T
from windowing.errors import error_text
from windowing.timestamps import MIN_TIMESTAMP_US, DurationLike, TimestampLike

#: What is decoded in one go: about so many bytes, and so many rows at most.
_DECODED_BYTES = 16 << 20
_DECODED_ROWS_MAX = 1 << 17
#: How a file is opened.
_OPENED = {"coerce_int96_timestamp_unit": "us"}
#: Of each text that is no index into a dictionary.
_LENGTH_BYTES = 4


@attrs.frozen
class ParquetSplit:
    """The rows of the row groups ``[first_group, end_group)`` of a file.

    Attributes:
        size_bytes: of the file, when it was divided.
        began_us: when the input was divided, which is when the job began, if anything depends on that.
    """

    path: str
    first_group: int
    end_group: int
    size_bytes: int
    began_us: int | None = None


@attrs.frozen(kw_only=True)
class ParquetSource(FileSource):
    """Rows of Parquet files, as rows of ``row_type``, or as mappings if that is None.

    Attributes:
        fields: of the row type.
        columns: of the mappings; None: all.
        time_column: the column that is the event time; None: there is none, or a function.
        unit_us: of event times that are numbers, in microseconds; None: seconds, and no unit was given.
        time_zone: of instants that a file has without one.
    """

    row_type: Any = None
    fields: tuple[ArrowField, ...] = ()
    columns: tuple[str, ...] | None = None
    time_column: str | None = None
    unit_us: int | None = None
    time_zone: str | None = None

    @property
    def element_type(self) -> Any:
        """The row type, or mappings from column name to value."""
        return dict[str, Any] if self.row_type is None else self.row_type

    @property
    def has_event_times(self) -> bool:
        """Whether there is a column, or a function, of them."""
        return self.time_column is not None or self.event_time is not None

    @property
    def is_columnar(self) -> bool:
        """Whether rows travel as columns."""
        return bool(self.fields) and all(field.is_columnar for field in self.fields)

    def check_head(self, path: str) -> None:
        """Check that it is a Parquet file with the columns that are read, of types that fit."""
        with closing(self.parquet_file(path)) as file:
            self.names(path, file.schema_arrow)

    def split_file(self, path: str, parts: int) -> list[ParquetSplit]:
        """Runs of row groups with about as many rows each."""
        size, began_us = self.storage.size(path), self.began_us()
        with closing(self.parquet_file(path)) as file:
            ends = _group_ends(file)
        rows = ends[-1] if ends else 0
        wanted = [rows * part // parts for part in range(1, parts)]
        bounds = [0, *(bisect_left(ends, each) + 1 for each in wanted), len(ends)]
        return [
            ParquetSplit(path, low, high, size, began_us)
            for low, high in pairwise(sorted(min(each, len(ends)) for each in bounds))
            if low < high
        ] or [ParquetSplit(path, 0, 0, size, began_us)]

    def open(self, split: Any, position: Any | None, *, fence: int) -> SourceReader:
        """Read from a row group, and a row in it, on."""
        return _ParquetReader(self, split, position)

    def parquet_file(self, path: str) -> pq.ParquetFile:
        """Open a file.

        Args:
            path: of the file.

        Raises:
            InputError: it is no Parquet file.
            OSError: it cannot be opened.
        """
        file = self.storage.open_arrow(path)
        try:
            found = pq.ParquetFile(file, **_OPENED)
            if texts := self._texts_in_dictionaries(found):
                found = pq.ParquetFile(
                    file, metadata=found.metadata, read_dictionary=texts, **_OPENED
                )
        except (pa.ArrowException, OSError) as error:
            file.close()
            raise InputError(
                f"{path} is no Parquet file that can be read",
                detail=str(error),
                hint="check that it is one, and complete: its last bytes, too",
            ) from None
        return found

    def _texts_in_dictionaries(self, file: pq.ParquetFile) -> list[str]:
        """Text columns that are best read as indices: their values are made of a dictionary later, many at a time.

        One whose dictionary became too large, so that its values are there one by one, takes longer that way; but it
        has no fewer bytes than the lengths of its values.
        """
        texts = {field.name for field in self.fields if field.kind is str}
        if not (self.is_columnar and texts and file.metadata.num_row_groups):
            return []
        group = file.metadata.row_group(0)
        columns = map(group.column, range(group.num_columns))
        return [
            column.path_in_schema
            for column in columns
            if column.path_in_schema in texts
            and column.has_dictionary_page
            and column.total_uncompressed_size < _LENGTH_BYTES * column.num_values
        ]

    def names(self, path: str, schema: pa.Schema) -> list[str]:
        """The columns of a file that are elements, which all are there and fit.

        Args:
            path: for messages.
            schema: of the file.

        Raises:
            InputError: one is missing, twice there, or does not fit.
        """
        names = [field.name for field in self.fields] or list(self.columns or schema.names)
        columns = Columns(path, self.time_zone)
        for name in self.needed(names):
            found = schema.names.count(name)
            if found != 1:
                raise InputError(
                    f"{path} has {'no' if not found else 'more than one'} column {name!r}",
                    detail=f"its columns: {', '.join(schema.names)}",
                    hint="name columns as they are in the file",
                )
        columns.check(schema, self.fields)
        if self.time_column is not None:
            columns.check_times(schema, self.time_column, has_unit=self.unit_us is not None)
        return names

    def needed(self, names: Sequence[str]) -> list[str]:
        """The columns that are read: of elements, and of event times.

        Args:
            names: the columns of elements.
        """
        more = [] if self.time_column in (None, *names) else [self.time_column]
        return [*names, *filter(None, more)]

    def elements(self, path: str, names: Sequence[str], rows: pa.RecordBatch) -> Sequence[Any]:
        """Rows of a file as elements.

        Args:
            path: for messages.
            names: the columns that are elements.
            rows: as they are in the file.

        Raises:
            InputError: a value does not fit, or is missing.
        """
        columns = Columns(path, self.time_zone)
        arrays = [rows.column(name) for name in names]
        if self.is_columnar:
            pairs = zip(self.fields, arrays, strict=True)
            return Rows.of(self.row_type, names, [columns.column(*pair) for pair in pairs])
        if self.row_type is None:
            listed = [columns.values(*pair) for pair in zip(names, arrays, strict=True)]
            return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]
        pairs = zip(self.fields, arrays, strict=True)
        listed = [columns.field_values(*pair) for pair in pairs]
        return list(map(self.row_type._make, zip(*listed, strict=True)))

    def times_us(self, path: str, rows: pa.RecordBatch, elements: Sequence[Any]) -> Sequence[int]:
        """The event times of rows.

        Args:
            path: for messages.
            rows: as they are in the file.
            elements: the same, as elements.

        Raises:
            InputError: a row has none.
        """
        if self.time_column is not None:
            columns = Columns(path, self.time_zone)
            array = rows.column(self.time_column)
            return columns.times_us(self.time_column, array, self.unit_us or UNITS_US["s"])
        if self.event_time is not None:
            return event_times_us(path, self.event_time, elements)
        return IntColumn(np.full(len(elements), MIN_TIMESTAMP_US))


def _group_ends(file: pq.ParquetFile) -> list[int]:
    """How many rows a file has up to the end of each row group."""
    groups = range(file.metadata.num_row_groups)
    return list(accumulate(file.metadata.row_group(group).num_rows for group in groups))


class ArrowReader(RecordReader):
    """Makes batches of rows that come as columns of Arrow.

    Args:
        source: which columns are read, and as what.
        began_us: when the input was divided; None: nothing depends on that.
    """

    def __init__(self, source: ParquetSource, began_us: int | None) -> None:
        super().__init__(source, began_us)
        self._source = source
        self.reads_columns = source.is_columnar

    @property
    @abstractmethod
    def path(self) -> str:
        """Where the next row is, for messages."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The columns that are elements."""

    @property
    @abstractmethod
    def row_number(self) -> int:
        """The number of the next row there, from 0."""

    @abstractmethod
    def take(self, max_records: int) -> pa.RecordBatch | None:
        """The next rows, at least one and at most so many, as they are stored; None: there are none."""

    def signs(self, rows: pa.RecordBatch) -> list[int] | None:
        """The signs of rows; None: all are +1.

        Args:
            rows: that were taken.
        """
        del rows
        return None

    def read(self, max_records: int) -> SourceBatch:
        """Rows as elements; where one of them fails, each is looked at alone."""
        first, path = self.row_number + 1, self.path
        rows = self.take(max_records)
        if rows is None:
            return self.batch((), ())
        try:
            elements, timestamps_us = self._converted(path, rows)
            newest_us = self.newest_us(timestamps_us)
        except Exception:  # noqa: BLE001 - which row it was, and what it was, is found one by one
            return self._read_one_by_one(path, rows, first)
        if newest_us is not None and self.is_ahead(newest_us):
            return self._read_one_by_one(path, rows, first)
        return self._signed(self.batch(elements, timestamps_us), self.signs(rows))

    def newest_us(self, timestamps_us: Sequence[int]) -> int | None:
        """The latest event time."""
        if isinstance(timestamps_us, IntColumn) and len(timestamps_us):
            return int(timestamps_us.array.max()) if self._source.has_event_times else None
        return super().newest_us(timestamps_us)

    def _converted(self, path: str, rows: pa.RecordBatch) -> tuple[Sequence[Any], Sequence[int]]:
        elements = self._source.elements(path, self.names, rows)
        return elements, self._source.times_us(path, rows, elements)

    def _read_one_by_one(self, path: str, rows: pa.RecordBatch, first: int) -> SourceBatch:
        values: list[Any] = []
        timestamps_us: list[int] = []
        set_aside: list[SetAside] = []
        signs, kept = self.signs(rows), list[int]()
        for index in range(rows.num_rows):
            row = rows.slice(index, 1)
            try:
                (element,), (timestamp_us,) = self._converted(path, row)
            except InputError as error:
                set_aside.append(_set_aside(row, first + index, error))
                continue
            if self.ahead is not None and self.is_ahead(timestamp_us):
                set_aside.append(self.ahead.set_aside(path, None, element, timestamp_us))
                continue
            values.append(element)
            timestamps_us.append(timestamp_us)
            kept.append(index)
        batch = self.batch(values, timestamps_us, set_aside)
        return self._signed(batch, signs and [signs[index] for index in kept])

    def _signed(self, batch: SourceBatch, signs: Sequence[int] | None) -> SourceBatch:
        return batch if signs is None else attrs.evolve(batch, signs=signs)


def _set_aside(row: pa.RecordBatch, number: int, error: InputError) -> SetAside:
    try:
        (element,) = row.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        element = None
    placed = InputError(
        f"{error.fact}, in row {number}",
        detail="; ".join(filter(None, [error.detail, f"row: {element!r}"])),
        hint=f"{error.hint}; or go on without such rows: df.Pipeline(..., tries_per_record=1) keeps them as dead "
        "letters",
    )
    return SetAside(error=placed, cause=error.__cause__ or error, element=element)


class _ParquetReader(ArrowReader):
    def __init__(
        self, source: ParquetSource, split: ParquetSplit, position: tuple[int, int] | None
    ) -> None:
        super().__init__(source, split.began_us)
        self._split = split
        self._group, self._row = (split.first_group, 0) if position is None else position
        if source.storage.size(split.path) != split.size_bytes:
            raise InputError(
                f"{split.path} has changed since the job began",
                detail=f"it had {split.size_bytes} bytes",
                hint="do not change files while they are read; new rows go into new files",
            )
        self._file = source.parquet_file(split.path)
        try:
            self._names = source.names(split.path, self._file.schema_arrow)
        except InputError:
            self.close()
            raise
        self._ends = _group_ends(self._file)
        self._batches: Iterator[pa.RecordBatch] = iter(())
        #: What is decoded of the row group and not handed over.
        self._rows: pa.RecordBatch | None = None
        self._begin_group(self._row)

    @property
    def path(self) -> str:
        return self._split.path

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @property
    def is_at_end(self) -> bool:
        return self._group >= self._split.end_group

    @property
    def position(self) -> tuple[int, int]:
        return self._group, self._row

    def close(self) -> None:
        self._file.close(force=True)

    @property
    def row_number(self) -> int:
        return (
            self._ends[self._group - 1] if 0 < self._group <= len(self._ends) else 0
        ) + self._row

    def _begin_group(self, skipped: int) -> None:
        """Decode the row group that is the next one, without so many rows of it; those that are empty are done."""
        while not self.is_at_end and not self._rows_of_group():
            self._group += 1
        self._rows = None
        if self.is_at_end:
            return
        group = self._file.metadata.row_group(self._group)
        fitting = _DECODED_BYTES * group.num_rows // max(1, group.total_byte_size)
        self._batches = self._file.iter_batches(
            batch_size=max(1, min(_DECODED_ROWS_MAX, fitting)),
            row_groups=[self._group],
            columns=self._source.needed(self._names),
            # Workers are as many as there are cores.
            use_threads=False,
        )
        while skipped:
            rows = self._decoded()
            passed = min(skipped, rows.num_rows)
            self._rows = rows.slice(passed)
            skipped -= passed

    def _rows_of_group(self) -> int:
        return int(self._file.metadata.row_group(self._group).num_rows)

    def _decoded(self) -> pa.RecordBatch:
        """The next rows of the row group, however many."""
        try:
            if self._rows is None or not self._rows.num_rows:
                self._rows = next(self._batches)
        except (OSError, pa.ArrowException, StopIteration) as error:
            raise InputError(
                f"{self._split.path} cannot be read on",
                detail=f"row group {self._group}: {error_text(error)}",
                hint="the file is damaged; write it again",
            ) from None
        return self._rows

    def take(self, max_records: int) -> pa.RecordBatch | None:
        """The next rows of one row group, as they are in the file; None at the end."""
        if self.is_at_end:
            return None
        rows = self._decoded()
        taken = rows.slice(0, max_records)
        self._rows = rows.slice(taken.num_rows)
        self._row += taken.num_rows
        if self._row == self._rows_of_group():
            self._group, self._row = self._group + 1, 0
            self._begin_group(0)
        return taken


class ReadFromParquet(ReadFromFiles[T]):
    """Rows of Parquet files, as typed rows or as mappings from column name to value.

    Args:
        path, max_disorder, max_ahead, record_ids, filesystem: as for `ReadFromCsv`.
        rows: a row type: a `typing.NamedTuple` class whose fields are columns of the files; other columns are not read.
            With fields of int, float, str, bool or datetime, or one of these or None, elements travel as columns where
            every step can take them so (docs/how-to/work-in-columns.md).  Fields may also be Decimal, date, time,
            timedelta, bytes, list[...], dict or Any: elements then are rows.
        columns: without ``rows``, the names of the columns to read; None: all.
        event_time: a function, as for `ReadFromCsv`, or the name of a column: instants, text as for `df.instant`, or a
            number of ``event_time_unit`` since 1970.  The column need not be part of the elements.
        event_time_unit: ``s``, ``ms`` or ``us``: seconds, milliseconds, microseconds; of a column of numbers.
        time_zone: of times that a file has without one, as some programs write them, e.g. ``UTC``.  Without it they are
            no instants.

    Raises:
        InputError: a file is missing, is no Parquet, has no such column, or one of a type that does not fit: when the
            pipeline is built.  When it is read, a row with a value that is missing or does not fit, with its file and
            number; with ``tries_per_record`` it is a dead letter instead.
        PipelineError: ``rows`` is no row type, or an argument does not suit the others.
    """

    source_class = ParquetSource

    @overload
    def __init__(
        self: ReadFromParquet[dict[str, Any]],
        path: Paths,
        *,
        rows: None = ...,
        columns: Sequence[str] | None = ...,
        event_time: Callable[[dict[str, Any]], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        record_ids: RecordIds | None = ...,
        filesystem: Any = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        path: Paths,
        *,
        rows: type[T],
        event_time: Callable[[T], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        record_ids: RecordIds | None = ...,
        filesystem: Any = ...,
    ) -> None: ...
    def __init__(
        self,
        path: Paths,
        *,
        rows: type | None = None,
        columns: Sequence[str] | None = None,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | str | None = None,
        event_time_unit: str | None = None,
        time_zone: str | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        record_ids: RecordIds | None = None,
        filesystem: Any = None,
    ) -> None:
        column = event_time if isinstance(event_time, str) else None
        super().__init__(
            path,
            event_time=never_called if isinstance(event_time, str) else event_time,
            max_disorder=max_disorder,
            max_ahead=max_ahead,
            record_ids=record_ids,
            filesystem=filesystem,
        )
        if event_time_unit is not None and (event_time_unit not in UNITS_US or column is None):
            raise PipelineError(
                f"{type(self).__name__} was given event_time_unit={event_time_unit!r}",
                hint=f"give one of {', '.join(map(repr, UNITS_US))}, with event_time= the name of a column",
            )
        check_time_zone(type(self).__name__, time_zone)
        assert isinstance(self._source, ParquetSource)
        self._source = attrs.evolve(
            self._source,
            event_time=None if column is not None else self._source.event_time,
            row_type=rows,
            fields=() if rows is None else arrow_fields(rows, type(self).__name__),
            columns=_checked_columns(type(self).__name__, rows, columns),
            time_column=column,
            unit_us=None if event_time_unit is None else UNITS_US[event_time_unit],
            time_zone=time_zone,
        )


def _checked_columns(
    name: str, rows: type | None, columns: Sequence[str] | None
) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if rows is not None:
        raise PipelineError(
            f"{name} was given columns and rows",
            hint="leave columns out: the fields of the row type are the columns that are read",
        )
    if isinstance(columns, str) or not columns or len(set(columns)) != len(columns):
        raise PipelineError(
            f"{name} cannot read the columns {columns!r}",
            hint="give a list of names, at least one, and none twice",
        )
    return tuple(columns)
