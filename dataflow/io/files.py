"""Reading files of records: what all formats have in common, which is how files are found and when records happened."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self

import attrs

from dataflow.errors import PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.create import Read
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD, MaxAhead
from dataflow.io.packing import check_compression
from dataflow.io.storage import Storage, not_opened
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.record_ids import RecordIds
from dataflow.source import Source, SourceReader
from dataflow.type_vars import T
from windowing.timestamps import US_PER_SECOND, DurationLike, TimestampLike, to_duration_us

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

#: Units of event times that are numbers since 1970, in microseconds.
UNITS_US = {"s": US_PER_SECOND, "ms": 1_000, "us": 1}

#: Files whose sizes are asked for; of more, each is a part of the input anyway.
SIZES_MAX = 64
#: What a packed file is taken to be when it is unpacked.
UNPACKED_TIMES = 4

#: One path or pattern, or several.
Paths = str | Path | Sequence[str | Path]


@attrs.frozen(kw_only=True)
class FileSource(Source):
    """Records of files that match a pattern; see `dataflow.io.csv_files.ReadFromCsv` for the arguments.

    Attributes:
        pattern: a path, or several: files, folders, and patterns.
        filesystem: an Arrow file system, in which the paths are; None: this machine, or what an address says.
        compression: how files are packed, for formats that have no compression of their own.
        max_ahead: which records are set aside because they are too far ahead; None: none is.
        is_repeatable: the limit is measured from the time when the job began.
    """

    pattern: str | tuple[str, ...]
    event_time: Callable[[Any], TimestampLike] | None = None
    max_disorder_us: int | None = None
    max_ahead: MaxAhead | None = None
    is_repeatable: bool = False
    filesystem: Any = None
    compression: str = "auto"

    @property
    def input_name(self) -> str:
        """The path, or pattern, or all of them."""
        return ", ".join(self._patterns)

    @property
    def storage(self) -> Storage:
        """Where the files are."""
        return Storage(self.filesystem)

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
        for path in self.paths():
            try:
                self.check_head(path)
            except OSError as error:
                raise not_opened(path, error) from None

    def splits(self, desired: int) -> Sequence[Any]:
        """Whole files, or parts of them where more are desired than there are files."""
        paths = self.paths()
        parts = max(1, desired // len(paths))
        return [split for path in paths for split in self.split_file(path, parts)]

    def is_packed(self, path: str) -> bool:
        """Whether a file is compressed, as those of binary formats are.

        Args:
            path: of the file.
        """
        del path
        return True

    def estimate_size(self) -> int | None:
        """The bytes of the files, as they would be unpacked; None where they cannot be asked for, or are very many."""
        paths = self.paths()
        if len(paths) > SIZES_MAX:
            return None
        try:
            sizes = self.storage.sizes(paths)
        except OSError:
            return None
        return sum(
            size * (UNPACKED_TIMES if self.is_packed(path) else 1)
            for path, size in zip(paths, sizes, strict=True)
        )

    @abstractmethod
    def split_file(self, path: str, parts: int) -> Sequence[Any]:
        """Divide a file into at least one part, and at most so many.

        Args:
            path: of the file.
            parts: the desired number.
        """

    def paths(self) -> list[str]:
        """The files, in the order of the patterns, and by name.

        Raises:
            InputError: a pattern matches none.
        """
        storage = self.storage
        return list(dict.fromkeys(path for each in self._patterns for path in storage.find(each)))

    @property
    def _patterns(self) -> tuple[str, ...]:
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern

    def began_us(self) -> int | None:
        """The time now, for splits, if anything depends on when the input was divided."""
        return None if self.max_ahead is None else self.max_ahead.now_us()

    def repeatable(self) -> Self:
        """Return a copy whose limit for event times is fixed for each split, so that reading again decides alike."""
        return attrs.evolve(self, is_repeatable=True)

    def ceiling(self, began_us: int | None) -> MaxAhead | None:
        """The limit for event times in a split.

        Args:
            began_us: when the input was divided, as the split has it.
        """
        if self.max_ahead is None or not self.is_repeatable or began_us is None:
            return self.max_ahead
        return self.max_ahead.since(began_us)

    @abstractmethod
    def open(self, split: Any, position: Any | None, *, fence: int) -> SourceReader:
        """Read a split from a position on."""

    @abstractmethod
    def check_head(self, path: str) -> None:
        """Raise `InputError` if the file cannot be of this format, as far as its beginning shows."""


class ReadFromFiles(OneOutput["Pipeline", T], Generic[T]):
    """The base class of the transforms that read files.

    Args:
        path: files, folders, and patterns of files.
        event_time: from a record to its event time; `ARRIVAL_TIME`; None: records have none.
        max_disorder: how far event times go back in a file.
        max_ahead: how far event times may be ahead of the clock; None: as far as they are.
        record_ids: how copies of records are recognized; None: not at all.
        filesystem: an Arrow file system, in which the paths are; None: this machine, or what an address says.
        compression: how files are packed; ``auto``: as their names say.

    Raises:
        PipelineError: ``path`` is no path, ``compression`` is unknown, a duration is negative, or ``max_disorder`` is
            given where no event time is taken from records.
    """

    source_class: type[FileSource]

    def __init__(
        self,
        path: Paths,
        *,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        record_ids: RecordIds | None = None,
        filesystem: Any = None,
        compression: str = "auto",
    ) -> None:
        check_compression(type(self).__name__, compression)
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
            pattern=_pattern(type(self).__name__, path),
            event_time=time_of,
            max_disorder_us=disorder_us,
            # Without max_disorder the watermark does not follow the event times, so none can mislead it.
            max_ahead=None if disorder_us is None else ahead,
            filesystem=filesystem,
            compression=compression,
        )

    @property
    def source(self) -> FileSource:
        """How files are read."""
        return self._source

    @property
    def arrival(self) -> ArrivalTime | None:
        """Whether records happen when they are read."""
        return self._arrival

    @property
    def record_ids(self) -> RecordIds | None:
        """How copies of records are recognized."""
        return self._record_ids

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Check the beginnings of the files, and read them."""
        self._source.check()
        return pcoll | Read(self._source, event_time=self._arrival, record_ids=self._record_ids)


def never_called(row: Any) -> TimestampLike:
    """Stands for a function of event times where these are a field, while arguments are checked."""
    raise AssertionError(row)


def _pattern(name: str, path: Paths) -> str | tuple[str, ...]:
    if isinstance(path, str | Path):
        return str(path)
    are_paths = isinstance(path, Sequence) and all(isinstance(each, str | Path) for each in path)
    if not are_paths or not path:
        raise PipelineError(
            f"{name} cannot read {path!r}", hint="give a path or a pattern, or a list of them"
        )
    return tuple(map(str, path))
