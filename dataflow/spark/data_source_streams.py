"""SparkStreamSource: the stream reader of a Python data source of Spark, as an input without end.

Spark plans a micro-batch by two offsets, and reads what is between them in partitions.  Here the two, the partitions
that are left and the rows of the first that were read are the position.  So whoever goes on reads the same partitions
again, as Spark does when it repeats a micro-batch, and an offset is committed when everything before it is durable.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError
from dataflow.io.max_ahead import newest_up_to
from dataflow.serialization import dumps_code, loads_code
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from dataflow.spark.data_source_rows import SparkRows
from windowing.errors import error_text
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader

#: The offset up to which all is read, the end of the micro-batch that is read (None: none is), the partitions of that
#: which are left, and the rows of the first of these that were read.  Offsets are JSON.
Position = tuple[str, str | None, tuple[bytes, ...], int]


@attrs.frozen(kw_only=True)
class SparkStreamSource(SparkRows):
    """Reads a stream; see `ReadFromSparkDataSource`.

    Attributes:
        max_disorder_us: how far the watermark stays behind, in microseconds.
    """

    max_disorder_us: int = 0

    @property
    def is_bounded(self) -> bool:
        """False: there may be more micro-batches."""
        return False

    @property
    def acknowledges(self) -> bool:
        """True: the reader of Spark commits offsets."""
        return True

    def splits(self, desired: int) -> Sequence[str]:
        """One, which begins at the initial offset, as it is now.

        Raises:
            InputError: it is not said.
        """
        with _named(self, "does not say where its stream begins"):
            stream = _stream(self)
            try:
                return [_text(stream.initial())]
            finally:
                stream.close()

    def open(self, split: str, position: Position | None, *, fence: int) -> SourceReader:
        """Go on behind a row of a partition, between two offsets."""
        return _StreamReader(self, split, position)


class _StreamReader(SourceReader):
    def __init__(self, source: SparkStreamSource, split: str, position: Position | None) -> None:
        self._source, self._first = source, split
        self._start, self._end, self._left, self._row = position or (split, None, (), 0)
        with _named(source, "cannot be read as a stream"):
            self._stream = _stream(source)
        self._rows: Iterator[Any] | None = None
        self._watermark_us, self._ceiling_us = MIN_TIMESTAMP_US, MAX_TIMESTAMP_US

    def ignore_after(self, ceiling_us: int) -> bool:
        self._ceiling_us = ceiling_us
        return self._source.has_event_times

    def read(self, max_records: int) -> SourceBatch:
        with _named(self._source, "cannot be read on"):
            is_planned = self._end is not None or self._plan()
            rows = self._taken(max_records) if is_planned else []
        found = self._source.elements(rows)
        newest_us = newest_up_to(found.times_us, self._ceiling_us)
        if self._source.has_event_times and newest_us is not None:
            self._watermark_us = max(self._watermark_us, newest_us - self._source.max_disorder_us)
        return SourceBatch(
            values=found.values,
            timestamps_us=found.times_us,
            set_aside=found.aside,
            position=(self._start, self._end, self._left, self._row),
            watermark_us=self._watermark_us,
            status=SplitStatus.ACTIVE if is_planned else SplitStatus.IDLE,
        )

    def committed(self, position: Position | None) -> None:
        # Of a micro-batch that is not read to its end, Spark would not say anything either.
        if position is not None and position[0] != self._first:
            self._stream.commit(json.loads(position[0]))

    def close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
        self._stream.close()

    def _plan(self) -> bool:
        """Ask for a micro-batch; False: there is nothing now."""
        start = json.loads(self._start)
        found = self._stream.latest(start)
        end = self._start if found is None else _text(found)
        if end == self._start:
            return False
        planned = self._stream.partitions(start, json.loads(end))
        what = f"a partition of {self._source.input_name}"
        self._left, self._row = tuple(dumps_code(each, what) for each in planned), 0
        self._end = end
        self._end_of_batch()
        return True

    def _taken(self, most: int) -> list[Any]:
        rows: list[Any] = []
        while self._left and len(rows) < most:
            if self._rows is None:
                self._rows = self._partition()
            found = list(islice(self._rows, most - len(rows)))
            rows += found
            self._row += len(found)
            if len(rows) < most:
                self._left, self._row, self._rows = self._left[1:], 0, None
        self._end_of_batch()
        return rows

    def _end_of_batch(self) -> None:
        if not self._left and self._end is not None:
            self._start, self._end = self._end, None

    def _partition(self) -> Iterator[Any]:
        """The rows of the next partition that are not read."""
        assert self._end is not None
        offsets = json.loads(self._start), json.loads(self._end)
        rows = self._source.single_rows(self._stream.rows(loads_code(self._left[0]), *offsets))
        return behind(self._source, rows, self._row)


def behind(source: SparkRows, rows: Iterator[Any], number: int) -> Iterator[Any]:
    """The rows behind so many of a partition.

    Args:
        source: that is read.
        rows: all of the partition.
        number: how many were read before.

    Raises:
        InputError: it has fewer.
    """
    found = sum(1 for _ in islice(rows, number))
    if found < number:
        raise InputError(
            f"{source.title} has not the rows of a partition again that were read of it",
            detail=f"{number} rows were read, and it has {found} now",
            hint="a partition must have the same rows in the same order whenever it is read, until its offset is "
            "committed; does what is behind it keep them so long?",
        )
    return rows


class _Stream(ABC):
    """What the two kinds of stream readers of Spark have in common."""

    @abstractmethod
    def initial(self) -> Any: ...
    @abstractmethod
    def latest(self, start: Any) -> Any: ...
    @abstractmethod
    def partitions(self, start: Any, end: Any) -> Sequence[Any]: ...
    @abstractmethod
    def rows(self, partition: Any, start: Any, end: Any) -> Iterable[Any]: ...
    @abstractmethod
    def commit(self, end: Any) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class _Partitioned(_Stream):
    def __init__(self, reader: DataSourceStreamReader) -> None:
        self._reader = reader

    def initial(self) -> Any:
        return self._reader.initialOffset()

    def latest(self, start: Any) -> Any:
        # Until 4.1 it was asked without knowing from where.
        asked: Any = self._reader.latestOffset
        if not signature(asked).parameters:
            return asked()
        return asked(start, self._reader.getDefaultReadLimit())

    def partitions(self, start: Any, end: Any) -> Sequence[Any]:
        return self._reader.partitions(start, end)

    def rows(self, partition: Any, start: Any, end: Any) -> Iterable[Any]:
        return self._reader.read(partition)

    def commit(self, end: Any) -> None:
        self._reader.commit(end)

    def close(self) -> None:
        self._reader.stop()


class _Simple(_Stream):
    """One that reads while it is asked how far there is something: what it had then is used once."""

    def __init__(self, source: SparkRows, reader: SimpleDataSourceStreamReader) -> None:
        self._source, self._reader = source, reader
        self._read: tuple[str, str, Iterator[Any]] | None = None

    def initial(self) -> Any:
        return self._reader.initialOffset()

    def latest(self, start: Any) -> Any:
        rows, end = self._reader.read(start)
        if _text(end) == _text(start):
            if next(iter(rows), None) is not None:
                raise InputError(
                    f"{self._source.title} has rows, and its offset does not move on",
                    detail=f"it stays at {_text(end)}",
                    hint="have read return the offset behind the rows that it returns",
                )
            return start
        self._read = _text(start), _text(end), iter(rows)
        return end

    def partitions(self, start: Any, end: Any) -> Sequence[Any]:
        return [None]

    def rows(self, partition: Any, start: Any, end: Any) -> Iterable[Any]:
        read, self._read = self._read, None
        if read is not None and read[:2] == (_text(start), _text(end)):
            return read[2]
        return self._reader.readBetweenOffsets(start, end)

    def commit(self, end: Any) -> None:
        self._reader.commit(end)

    def close(self) -> None:
        self._read = None


def _stream(source: SparkRows) -> _Stream:
    from pyspark.errors import PySparkNotImplementedError  # noqa: PLC0415 - only these jobs need it

    try:
        return _Partitioned(source.data_source.streamReader(source.struct))
    except PySparkNotImplementedError:
        return _Simple(source, source.data_source.simpleStreamReader(source.struct))


def _text(offset: Any) -> str:
    """An offset as it is kept, and compared: JSON, as Spark keeps it."""
    return json.dumps(offset, sort_keys=True)


@contextmanager
def _named(source: SparkRows, what: str) -> Iterator[None]:
    """Whatever a reader of Spark raises is an error of the input."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{source.title} {what}",
            detail=f"{type(error).__name__}: {error_text(error)}",
            hint="correct it, or what it reads, and run the job again: it goes on where it was; is it made for "
            "spark.readStream?",
        ) from error
