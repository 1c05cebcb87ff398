"""Reading files of records: what their formats have in common.

A file is divided at record boundaries, a position is the byte offset of the next record, and a batch ends on a record.
Compressed files are not read.  A record may span lines where the format allows it (quoted CSV fields).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs

from dataflow.columns import RepeatedColumn
from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.pcollection import PCollection
from dataflow.ptransform import PTransform
from dataflow.record_ids import RecordIds
from dataflow.transforms.create import Read
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    DurationLike,
    TimestampLike,
    to_duration_us,
    to_timestamp_us,
    to_timestamps_us,
)

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

#: Files are not cut into pieces smaller than this: below it, opening costs more than reading.
SPLIT_BYTES_MIN = 2 << 20
_SCAN_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


@attrs.frozen
class FileSplit:
    """The records of one file that start in ``[start_bytes, end_bytes)``."""

    path: str
    start_bytes: int
    end_bytes: int


@attrs.frozen(kw_only=True)
class FileSource(Source):
    """Records of files that match a pattern; see `dataflow.io.csv_files.ReadFromCsv` for the arguments."""

    pattern: str
    event_time: Callable[[Any], TimestampLike] | None = None
    max_disorder_us: int | None = None

    def check(self) -> None:
        """Raise `InputError` where a file is missing, empty of header, or not text."""
        for path in self._paths():
            try:
                self.check_head(path)
            except OSError as error:
                raise InputError(
                    f"{path} cannot be read",
                    detail=str(error),
                    hint="check that it is a file, and that you may read it",
                ) from None

    def splits(self, desired: int) -> Sequence[FileSplit]:
        """Whole files, or pieces of at least `SPLIT_BYTES_MIN` where more are desired than there are files."""
        paths = self._paths()
        pieces = max(1, desired // len(paths))
        return [split for path in paths for split in self._split_file(path, pieces)]

    @abstractmethod
    def check_head(self, path: str) -> None:
        """Raise `InputError` if the file cannot be of this format."""

    def head_bytes(self, path: str) -> int:
        """Bytes before the first record; here those of a byte order mark, which some editors write."""
        with Path(path).open("rb") as file:
            return len(BOM) if file.read(len(BOM)) == BOM else 0

    def is_boundary(self, prefix_quotes: int) -> bool:
        """Whether a line end after so many quote characters ends a record."""
        return True

    def _paths(self) -> list[str]:
        if Path(self.pattern).is_file():  # also where its name has brackets
            return [self.pattern]
        paths = sorted(glob(self.pattern))  # noqa: PTH207 - the pattern may be absolute
        if not paths:
            raise InputError(
                f"there is no file {self.pattern!r}",
                hint="check the path; it is looked up where the pipeline runs",
            )
        return paths

    def _split_file(self, path: str, pieces: int) -> list[FileSplit]:
        start, size = self.head_bytes(path), Path(path).stat().st_size
        pieces = max(1, min(pieces, (size - start) // SPLIT_BYTES_MIN))
        wanted = [start + (size - start) * piece // pieces for piece in range(1, pieces)]
        bounds = [start, *_record_starts(self, path, wanted), size]
        return [FileSplit(path, low, high) for low, high in pairwise(bounds) if low < high] or [
            FileSplit(path, start, size)
        ]


def _record_starts(source: FileSource, path: str, wanted: Sequence[int]) -> Iterator[int]:
    """For each wanted offset the first record start at or after it.

    Counts quotes from the start of the file, because only that tells a line end from one inside a quoted field.
    """
    with Path(path).open("rb") as file:
        quotes = 0
        for offset in wanted:
            while (left := offset - file.tell()) > 0:
                quotes += file.read(min(left, _SCAN_BYTES)).count(b'"')
            while line := file.readline():
                quotes += line.count(b'"')
                if source.is_boundary(quotes):
                    break
            yield file.tell()


class FileReader(SourceReader):
    """Reads a split from front to back; what the next records are is up to the format.

    Args:
        source: how.
        split: what.
        position: from where on; None: from the start.
    """

    def __init__(self, source: FileSource, split: FileSplit, position: int | None) -> None:
        self._event_time, self._max_disorder_us = source.event_time, source.max_disorder_us
        self.split = split
        #: Of the next record.
        self.offset = split.start_bytes if position is None else position
        self.file: BinaryIO = Path(split.path).open("rb")  # noqa: SIM115 - closed by close()
        self.file.seek(self.offset)
        self._watermark_us = MIN_TIMESTAMP_US

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more."""
        return self.offset >= self.split.end_bytes

    @abstractmethod
    def take(self, max_records: int) -> Sequence[Any]:
        """The next records, at most so many and at least one; moves `offset` behind them."""

    def times_us(self, records: Sequence[Any]) -> Sequence[int]:
        """The event time of each record."""
        return event_times_us(self.split.path, self._event_time, records)

    def newest_us(self, timestamps_us: Sequence[int]) -> int | None:
        """The latest of the event times of some records; None if none has one."""
        return max(timestamps_us, default=None) if self._event_time is not None else None

    def read(self, max_records: int) -> SourceBatch:
        """At most ``max_records`` more records."""
        records = () if self.is_at_end else self.take(max_records)
        timestamps_us = self.times_us(records)
        if self._max_disorder_us is not None:
            newest_us = self.newest_us(timestamps_us)
            if newest_us is not None:
                self._watermark_us = max(self._watermark_us, newest_us - self._max_disorder_us)
        return SourceBatch(
            values=records,
            timestamps_us=timestamps_us,
            position=self.offset,
            watermark_us=MAX_TIMESTAMP_US if self.is_at_end else self._watermark_us,
            status=SplitStatus.FINISHED if self.is_at_end else SplitStatus.ACTIVE,
        )

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def cut_short(self) -> InputError:
        """What to say of a file that ends before the split does."""
        return InputError(
            f"{self.split.path} became shorter while it was read",
            detail=f"it ended at byte {self.offset}, not {self.split.end_bytes}",
            hint="do not change files while they are read",
        )


def texts_of(path: str, lines: Iterable[bytes], offset: int) -> Iterator[str]:
    """Lines of a file, the first of which begins at ``offset``, as text.  Raises `InputError` where they are not."""
    for line in lines:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text",
                detail=f"near byte {offset}: {error}",
                hint="convert the file to UTF-8",
            ) from None
        offset += len(line)
        yield text


def event_times_us(
    path: str, event_time: Callable[[Any], TimestampLike] | None, values: Sequence[Any]
) -> Sequence[int]:
    """The event time of each record of a file.

    Raises:
        InputError: a record has none.
    """
    if event_time is None:
        return RepeatedColumn(MIN_TIMESTAMP_US, len(values))
    with suppress(Exception):  # what follows finds the record, and raises
        return to_timestamps_us(list(map(event_time, values)))
    timestamps_us = []
    for value in values:
        try:
            timestamps_us.append(to_timestamp_us(event_time(value)))
        except Exception as error:
            raise InputError(
                f"{path} has a record without an event time",
                detail=f"event_time raised {type(error).__name__}: {error}; record: {value!r}",
                hint="correct the record, or return an instant for it from event_time and sort "
                "it out in the pipeline",
            ) from error
    return timestamps_us


class ReadFromFiles(PTransform["Pipeline", PCollection[Any]]):
    """What the transforms that read files have in common."""

    source_class: type[FileSource]

    def __init__(
        self,
        path: str | Path,
        *,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | None = None,
        max_disorder: DurationLike | None = None,
        record_ids: RecordIds | None = None,
    ) -> None:
        self._record_ids = record_ids
        self._arrival = event_time if isinstance(event_time, ArrivalTime) else None
        time_of = None if isinstance(event_time, ArrivalTime) else event_time
        if max_disorder is not None and self._arrival is not None:
            raise PipelineError(
                f"{type(self).__name__} was given max_disorder with the arrival as event time",
                hint="leave max_disorder out: records arrive in the order of their arrival",
            )
        if max_disorder is not None and event_time is None:
            raise PipelineError(
                f"{type(self).__name__} was given max_disorder without event_time",
                hint="say with event_time=... where a record's event time is",
            )
        disorder_us = None if max_disorder is None else to_duration_us(max_disorder)
        if disorder_us is not None and disorder_us < 0:
            raise PipelineError(
                f"{type(self).__name__} was given a negative max_disorder, {max_disorder!r}",
                hint="it says how far event times go back: zero or more",
            )
        self._source: FileSource = self.source_class(
            pattern=str(path), event_time=time_of, max_disorder_us=disorder_us
        )

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Check the files as far as their heads tell, and read them."""
        self._source.check()
        return pcoll | Read(self._source, event_time=self._arrival, record_ids=self._record_ids)
