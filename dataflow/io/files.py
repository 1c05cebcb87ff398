"""Reading CSV and JSON lines.

A file is divided at record boundaries, a position is the byte offset of the next record, and a batch ends on a record.
Compressed files are not read.  A record may span lines where the format allows it (quoted CSV fields).
"""

from __future__ import annotations

import csv
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import glob
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs

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
)

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

#: Files are not cut into pieces smaller than this: below it, opening costs more than reading.
SPLIT_BYTES_MIN = 1 << 20
_SCAN_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


@attrs.frozen
class FileSplit:
    """The records of one file that start in ``[start_bytes, end_bytes)``."""

    path: str
    start_bytes: int
    end_bytes: int


@attrs.frozen(kw_only=True)
class FileSource(Source):
    """Records of files that match a pattern; see `ReadFromCsv` for the arguments."""

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

    def open(self, split: FileSplit, position: int | None) -> SourceReader:
        """Read from a byte offset on."""
        return _FileReader(self, split, position)

    @abstractmethod
    def check_head(self, path: str) -> None:
        """Raise `InputError` if the file cannot be of this format."""

    @abstractmethod
    def records(self, path: str, lines: Iterator[str]) -> Iterator[Any]:
        """Records from lines, taking no line before the record that needs it is asked for."""

    @abstractmethod
    def head(self, path: str) -> tuple[int, Any]:
        """Bytes before the first record, and what `records` needs to know of them."""

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
        start, size = self.head(path)[0], Path(path).stat().st_size
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


class _FileReader(SourceReader):
    def __init__(self, source: FileSource, split: FileSplit, position: int | None) -> None:
        self._source, self._split = source, split
        self._offset = split.start_bytes if position is None else position
        self._file: BinaryIO = Path(split.path).open("rb")  # noqa: SIM115 - closed by close()
        self._file.seek(self._offset)
        self._records = source.records(split.path, self._lines())
        self._watermark_us = MIN_TIMESTAMP_US

    def read(self, max_records: int) -> SourceBatch:
        values = list(islice(self._records, max_records))
        is_finished = self._offset >= self._split.end_bytes
        if len(values) < max_records and not is_finished:
            raise InputError(
                f"{self._split.path} became shorter while it was read",
                detail=f"it ended at byte {self._offset}, not {self._split.end_bytes}",
                hint="do not change files while they are read",
            )
        timestamps_us = self._timestamps_us(values)
        return SourceBatch(
            values=values,
            timestamps_us=timestamps_us,
            position=self._offset,
            watermark_us=MAX_TIMESTAMP_US if is_finished else self._watermark_us,
            status=SplitStatus.FINISHED if is_finished else SplitStatus.ACTIVE,
        )

    def close(self) -> None:
        self._file.close()

    def _lines(self) -> Iterator[str]:
        for line in self._file:
            if self._offset >= self._split.end_bytes:
                return
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self._split.path} is not UTF-8 text",
                    detail=f"near byte {self._offset}: {error}",
                    hint="convert the file to UTF-8",
                ) from None
            self._offset += len(line)
            yield text

    def _timestamps_us(self, values: Sequence[Any]) -> list[int]:
        timestamps_us = event_times_us(self._split.path, self._source.event_time, values)
        if values and self._source.event_time and self._source.max_disorder_us is not None:
            newest_us = max(timestamps_us) - self._source.max_disorder_us
            self._watermark_us = max(self._watermark_us, newest_us)
        return timestamps_us


def event_times_us(
    path: str, event_time: Callable[[Any], TimestampLike] | None, values: Iterable[Any]
) -> list[int]:
    """The event time of each record of a file.

    Raises:
        InputError: a record has none.
    """
    if event_time is None:
        return [MIN_TIMESTAMP_US for _ in values]
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


@attrs.frozen(kw_only=True)
class CsvSource(FileSource):
    """Rows of CSV files (RFC 4180) with a header line, as mappings from column name to text."""

    def check_head(self, path: str) -> None:
        """A header has at least one name, none twice, and no binary bytes."""
        header = _header(path)
        if not header.removeprefix(_BOM).strip() or b"\0" in header:
            raise InputError(
                f"{path} has no CSV header",
                detail="the first line is empty or binary" if header else "the file is empty",
                hint="the first line must name the columns, separated by commas",
            )
        names = self._names(path, header)
        if len(set(names)) != len(names):
            raise InputError(f"{path} names a column twice", detail=f"header: {names}")

    def records(self, path: str, lines: Iterator[str]) -> Iterator[Mapping[str, str]]:
        """One mapping per row.  Raises `InputError` on a row with another number of fields than the header."""
        names = self.head(path)[1]
        width = len(names)
        rows = csv.reader(lines, strict=True)
        try:
            for row in rows:
                if len(row) != width:
                    if not row:
                        continue
                    raise InputError(
                        f"{path} has a row with {len(row)} fields, its header has {width}",
                        detail=f"row: {row!r}",
                        hint="correct the row; a field with a comma or a line break must be quoted",
                    )
                yield dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise InputError(
                f"{path} is not well-formed CSV",
                detail=f"line {rows.line_num} of the part being read: {error}",
                hint="correct the file; quotes inside a quoted field are doubled",
            ) from error

    def head(self, path: str) -> tuple[int, list[str]]:
        """The length of the header line, and its names."""
        header = _header(path)
        return len(header), self._names(path, header)

    def is_boundary(self, prefix_quotes: int) -> bool:
        """A line end inside quotes belongs to a field."""
        return prefix_quotes % 2 == 0

    def _names(self, path: str, header: bytes) -> list[str]:
        lines = header.removeprefix(_BOM).splitlines(keepends=True)
        try:
            return next(csv.reader([line.decode("utf-8") for line in lines], strict=True))
        except csv.Error as error:
            raise InputError(
                f"{path} has a header that is not well-formed CSV",
                detail=str(error),
                hint="correct the file; quotes inside a quoted field are doubled",
            ) from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text", detail=str(error), hint="convert the file to UTF-8"
            ) from None


def _header(path: str) -> bytes:
    """The first line, or lines where a quoted name spans several."""
    with Path(path).open("rb") as file:
        header = file.readline()
        while header.count(b'"') % 2 and (line := file.readline()):
            header += line
    return header


@attrs.frozen(kw_only=True)
class JsonLinesSource(FileSource):
    """One JSON value per line; empty lines are passed over."""

    def check_head(self, path: str) -> None:
        """The first line parses."""
        with Path(path).open("rb") as file:
            line = file.readline().removeprefix(_BOM)
        if line.strip():
            parse_json(path, line.decode("utf-8", errors="replace"))

    def records(self, path: str, lines: Iterator[str]) -> Iterator[Any]:
        """One value per line.  Raises `InputError` on a line that is not JSON."""
        return (parse_json(path, line) for line in lines if line.strip())

    def head(self, path: str) -> tuple[int, None]:
        """Nothing but a byte order mark, which some editors write."""
        with Path(path).open("rb") as file:
            return (len(_BOM) if file.read(len(_BOM)) == _BOM else 0), None


def parse_json(path: str, line: str) -> Any:
    """The value on a line.  Raises `InputError` if there is none."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path} has a line that is not JSON",
            detail=f"{error}; line: {line[:200]!r}",
            hint="write one JSON value per line",
        ) from None


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


class ReadFromCsv(ReadFromFiles):
    """Rows of CSV files as mappings from column name to text.

    Args:
        path: a file, or a pattern such as ``data/*.csv``.
        event_time: gives a row's event time (an aware datetime, or seconds since 1970).
            `ARRIVAL_TIME`: a row happens when it is read.  Without it every row is at the beginning of time.
        max_disorder: how far event times go back behind the newest one seen so far, at most, as
            you expect; the watermark
            follows at this distance, and a row further behind is late.  Without it, the watermark
            waits for the end of the file.
        record_ids: how rows are known that are in a file more than once; as for `Read`.

    Raises:
        InputError: a file is missing or malformed: when the pipeline is built as far as the header
            tells, else when it is read.
    """

    source_class = CsvSource
