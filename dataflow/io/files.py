"""Reading files of records: the common part of all formats.

A file is divided at record boundaries, a position is the byte offset of the next record, and a batch ends on a record.
Compressed files are not read.  A record may span lines where the format allows it (quoted CSV fields).

A line ends with LF, CR LF or CR.  Where a record ends is certain for one that is malformed, too: it depends on the file
alone, so the others are the same however the file is divided.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.create import Read
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD, MaxAhead
from dataflow.io.whole_lines import WholeLines
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.record_ids import RecordIds
from dataflow.source import Source, SourceReader
from dataflow.type_vars import T
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

#: Files are not cut into pieces smaller than this: below it, opening costs more than reading.
SPLIT_BYTES_MIN = 2 << 20
#: Bytes that are searched in one go.
PIECE_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"

#: How the names of compressed files end.
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")


@attrs.frozen
class FileSplit:
    """The records of one file that start in ``[start_bytes, end_bytes)``.

    Attributes:
        began_us: when the input was divided, which is when the job began, if anything depends on that.
    """

    path: str
    start_bytes: int
    end_bytes: int
    began_us: int | None = None


@attrs.frozen
class RecordBytes:
    """A record as it is in a file, well-formed or not: ``size`` bytes, of which ``raw`` are the first, or all."""

    raw: bytes
    size: int


@attrs.frozen(kw_only=True)
class FileSource(Source):
    """Records of files that match a pattern; see `dataflow.io.csv_files.ReadFromCsv` for the arguments.

    Attributes:
        max_ahead: which records are set aside because they are too far ahead; None: none is.
        is_repeatable: the limit is measured from the time when the job began.
    """

    pattern: str
    event_time: Callable[[Any], TimestampLike] | None = None
    max_disorder_us: int | None = None
    max_ahead: MaxAhead | None = None
    is_repeatable: bool = False

    @property
    def input_name(self) -> str:
        """The path, or pattern."""
        return self.pattern

    @property
    def has_event_times(self) -> bool:
        """Whether it is configured where event times are."""
        return self.event_time is not None

    @property
    def has_trusted_watermark(self) -> bool:
        """True: it looks at each record, if there is a limit for event times."""
        return True

    @property
    def keeps_set_aside(self) -> bool:
        """Whether there is a limit for event times."""
        return self.max_ahead is not None

    def check(self) -> None:
        """Check the beginning of every file.

        Raises:
            InputError: a file is missing or cannot be read, or its beginning is not of this format.
        """
        for path in self._paths():
            try:
                self.check_head(path)
            except OSError as error:
                raise not_opened(path, error) from None

    def splits(self, desired: int) -> Sequence[FileSplit]:
        """Whole files, or pieces of at least `SPLIT_BYTES_MIN` where more are desired than there are files."""
        paths = self._paths()
        pieces = max(1, desired // len(paths))
        return [split for path in paths for split in self._split_file(path, pieces)]

    def repeatable(self) -> Self:
        """Return a copy whose limit for event times is fixed for each split, so that reading again decides alike."""
        return attrs.evolve(self, is_repeatable=True)

    def ceiling(self, split: FileSplit) -> MaxAhead | None:
        """The limit for event times in a split."""
        if self.max_ahead is None or not self.is_repeatable or split.began_us is None:
            return self.max_ahead
        return self.max_ahead.since(split.began_us)

    @abstractmethod
    def open(self, split: FileSplit, position: int | None, *, fence: int) -> SourceReader:
        """Read from a byte offset on."""

    @abstractmethod
    def check_head(self, path: str) -> None:
        """Raise `InputError` if the file cannot be of this format, as far as its beginning shows."""

    def check_format(self, path: str) -> None:
        """Raise `InputError` if no record of the file can be read, whatever the records are."""

    @abstractmethod
    def records_of(self, path: str, raw: bytes) -> Sequence[Any]:
        """The record in some bytes; none where a line is empty.  Raises `InputError` if they are malformed.

        Args:
            path: for messages.
            raw: the bytes of one record, as `record_end` or the lines divide them.
        """

    def units(self, lines: Iterable[bytes]) -> Iterator[RecordBytes]:
        """Lines, the first of which begins a record, as records; here each is one."""
        return (RecordBytes(line, len(line)) for line in lines)

    def head_bytes(self, path: str) -> int:
        """Bytes before the first record; here those of a byte order mark, which some editors write."""
        with Path(path).open("rb") as file:
            return len(BOM) if file.read(len(BOM)) == BOM else 0

    def record_starts(
        self, path: str, start: int, wanted: Sequence[int], size: int
    ) -> Iterator[int]:
        """For each wanted offset, ascending, a record start at or after it.

        Args:
            path: of the file.
            start: where its first record begins.
            wanted: offsets behind that.
            size: of the file.
        """
        for offset in wanted:
            with closing(WholeLines(path, offset, size)) as lines:
                # Where the offset is between CR and LF, the LF is the rest of the line.
                yield offset + len(next(iter(lines), b""))

    def record_end(self, path: str, start: int, end: int) -> int:
        """Where the last record ends that is whole in these bytes of a file that may grow; ``start`` if none is.

        Args:
            path: of the file.
            start: a byte offset at which a record begins.
            end: the number of bytes that may be read.
        """
        with closing(WholeLines(path, start, end, is_growing=True)) as lines:
            return start + sum(map(len, lines.pieces(PIECE_BYTES)))

    def _paths(self) -> list[str]:
        is_file = Path(self.pattern).is_file()  # also where its name has brackets
        paths = [self.pattern] if is_file else sorted(glob(self.pattern))  # noqa: PTH207 - the pattern may be absolute
        if not paths:
            raise InputError(
                f"there is no file {self.pattern!r}",
                hint=_hint_on(self.pattern),
            )
        packed = [path for path in paths if path.endswith(_PACKED)]
        if packed:
            raise InputError(
                f"{packed[0]!r} is compressed, and files are read as they are",
                detail="a compressed file cannot be read in parts, or from where a reader stopped",
                hint="unpack it before: gzip -dk, bzip2 -dk, xz -dk, zstd -d, unzip",
            )
        return paths

    def _split_file(self, path: str, pieces: int) -> list[FileSplit]:
        start, size = self.head_bytes(path), Path(path).stat().st_size
        pieces = max(1, min(pieces, (size - start) // SPLIT_BYTES_MIN))
        wanted = [start + (size - start) * piece // pieces for piece in range(1, pieces)]
        bounds = [start, *self.record_starts(path, start, wanted, size), size]
        began_us = None if self.max_ahead is None else self.max_ahead.now_us()
        return [
            FileSplit(path, low, high, began_us) for low, high in pairwise(bounds) if low < high
        ] or [FileSplit(path, start, size, began_us)]


def not_opened(path: str, error: OSError) -> InputError:
    """The error about a file that cannot be opened.

    Args:
        path: of the file.
        error: of the operating system.
    """
    return InputError(
        f"{path} cannot be read",
        detail=str(error),
        hint="check that it is a file, and that you may read it",
    )


def text_of(path: str, raw: bytes) -> str:
    """Bytes of a file as text.

    Args:
        path: for messages.
        raw: the bytes.

    Raises:
        InputError: they are not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text", detail=str(error), hint="convert the file to UTF-8"
        ) from None


class ReadFromFiles(OneOutput["Pipeline", T], Generic[T]):
    """The base class of the transforms that read files.

    Args:
        path: of the files, with ``*`` and ``?``.
        event_time: from a record to its event time; `ARRIVAL_TIME`; None: records have none.
        max_disorder: how far event times go back in a file.
        max_ahead: how far event times may be ahead of the clock; None: as far as they are.
        record_ids: how copies of records are recognized; None: not at all.

    Raises:
        PipelineError: ``max_disorder`` is negative, or given where no event time is taken from records; or
            ``max_ahead`` is negative.
    """

    source_class: type[FileSource]

    def __init__(
        self,
        path: str | Path,
        *,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
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
                hint="give with event_time=... where a record's event time is",
            )
        disorder_us = None if max_disorder is None else to_duration_us(max_disorder)
        if disorder_us is not None and disorder_us < 0:
            raise PipelineError(
                f"{type(self).__name__} was given a negative max_disorder, {max_disorder!r}",
                hint="it is how far event times go back: zero or more",
            )
        ahead = MaxAhead.of(type(self).__name__, max_ahead)
        self._source: FileSource = self.source_class(
            pattern=str(path),
            event_time=time_of,
            max_disorder_us=disorder_us,
            # Without max_disorder the watermark does not follow the event times, so none can mislead it.
            max_ahead=None if disorder_us is None else ahead,
        )

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Check the beginnings of the files, and read them."""
        self._source.check()
        return pcoll | Read(self._source, event_time=self._arrival, record_ids=self._record_ids)


def _hint_on(pattern: str) -> str:
    scheme, found, _ = pattern.partition("://")
    if found:
        return (
            f"files are read from a path of this machine, not from {scheme}://; mount or copy them, or write a Source "
            "(docs/how-to/write-a-source.md)"
        )
    return "check the path; it is looked up where the pipeline runs"
