"""The paper's file injector: the low watermark is the minimum creation time among unfinished files.

Each file is a split, so several workers read them; every split reports from the beginning how far back its file goes,
and the runner takes the minimum (MillWheel, section 5.2 and figure 10).  A file that is *expected* holds the low
watermark at its time before it is there, so a log that is delayed, or whose machine is down, makes nothing late.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.csv_files import CsvSource
from dataflow.io.file_reader import unreadable_file
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD, MaxAhead
from dataflow.io.text_files import TextFileSource
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    DurationLike,
    TimestampLike,
    clamp_timestamp_us,
    to_duration_us,
    to_timestamp_us,
)


@attrs.frozen
class InjectorSplit:
    """One file, the event time before which it has no record, and when the input was divided."""

    path: str
    begins_us: int
    began_us: int | None = None


class FileInjector(Source):
    """The base of `CsvInjector` and `JsonLinesInjector`, which define the format of the files.

    Args:
        pattern: path of the files, with ``*`` and ``?``.
        event_time: from a record to its event time.
        max_disorder: how far event times go back in a file.
        max_ahead: how far event times may be ahead of the clock; None: as far as they are.
        created: from a path to the earliest event time in the file.
        expected: the earliest event time of each file that is still to come, by its name.

    Raises:
        PipelineError: ``event_time`` is no function, or a duration is negative.
    """

    source_class: ClassVar[type[TextFileSource]]

    def __init__(
        self,
        pattern: str | Path,
        *,
        event_time: Callable[[Any], TimestampLike],
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        created: Callable[[Path], TimestampLike] | None = None,
        expected: Mapping[str, TimestampLike] | None = None,
    ) -> None:
        if not callable(event_time):
            raise PipelineError(
                f"{type(self).__name__} needs a function of a record for event_time, not {event_time!r}"
            )
        self._pattern, self._event_time, self._created = str(pattern), event_time, created
        self._disorder_us = None if max_disorder is None else to_duration_us(max_disorder)
        if self._disorder_us is not None and self._disorder_us < 0:
            raise PipelineError(
                f"{type(self).__name__} was given a negative max_disorder, {max_disorder!r}",
                hint="it is how far event times go back in a file: zero or more",
            )
        ahead = MaxAhead.of(type(self).__name__, max_ahead)
        self._ahead = None if self._disorder_us is None else ahead
        self._is_repeatable = False
        folder = Path(pattern).parent
        self._expected_us = {
            str(folder / name): to_timestamp_us(begins) for name, begins in (expected or {}).items()
        }

    @property
    def is_bounded(self) -> bool:
        """Whether all files are there."""
        return all(Path(path).is_file() for path in self._expected_us)

    @property
    def input_name(self) -> str:
        """The pattern."""
        return self._pattern

    @property
    def has_trusted_watermark(self) -> bool:
        """True: it looks at each record, if there is a limit for event times."""
        return True

    @property
    def keeps_set_aside(self) -> bool:
        """Whether there is a limit for event times."""
        return self._ahead is not None

    def repeatable(self) -> Self:
        """Return a copy whose limit for event times is fixed for each split, so that reading again decides alike."""
        repeatable = copy.copy(self)
        repeatable._is_repeatable = True  # noqa: SLF001 - its own class
        return repeatable

    def check(self) -> None:
        """Raise `InputError` where a file cannot be read, or there is none and none is expected."""
        if self._existing() or not self._expected_us:
            self._files(self._pattern).check()

    def splits(self, desired: int) -> Sequence[InjectorSplit]:
        """Whole files: those that are there, and those that are expected."""
        begins_us = {path: self._begins_us(path) for path in self._existing()}
        begins_us |= self._expected_us
        if not begins_us:
            self._files(self._pattern).check()
        began_us = None if self._ahead is None else self._ahead.now_us()
        return [InjectorSplit(*each, began_us) for each in sorted(begins_us.items())]

    def open(self, split: InjectorSplit, position: int | None, *, fence: int) -> SourceReader:
        """Read from a byte offset on, once the file is there.

        Args:
            split: a path.
            position: the byte offset to go on from; None: the start.
            fence: files need none.
        """
        files = self._files(split.path)
        if files.max_ahead is not None and self._is_repeatable and split.began_us is not None:
            files = attrs.evolve(files, max_ahead=files.max_ahead.since(split.began_us))
        return _InjectorReader(split, position, files)

    def _existing(self) -> list[str]:
        try:
            splits = self._files(self._pattern).splits(1)
        except InputError:
            return []
        return [split.path for split in splits]

    def _begins_us(self, path: str) -> int:
        if path in self._expected_us:
            return self._expected_us[path]
        if self._created is not None:
            return to_timestamp_us(self._created(Path(path)))
        files = self._files(path)
        (split,) = files.splits(1)
        with closing(files.open(split, None, fence=0)) as reader:
            batch = reader.read(1)
            while not batch.values and batch.status is not SplitStatus.FINISHED:
                batch = reader.read(1)
        first_us = min(batch.timestamps_us, default=MAX_TIMESTAMP_US)
        return clamp_timestamp_us(first_us - (self._disorder_us or 0))

    def _files(self, pattern: str) -> TextFileSource:
        return self.source_class(
            pattern=pattern,
            event_time=self._event_time,
            max_disorder_us=self._disorder_us,
            max_ahead=self._ahead,
        )


class _InjectorReader(SourceReader):
    def __init__(self, split: InjectorSplit, position: int | None, files: TextFileSource) -> None:
        self._split, self._position, self._files = split, position, files
        self._inner: SourceReader | None = None

    def read(self, max_records: int) -> SourceBatch:
        begins_us = self._split.begins_us
        if self._inner is None:
            if not Path(self._split.path).is_file():
                return SourceBatch(
                    values=[], timestamps_us=[], position=self._position, watermark_us=begins_us
                )
            unreadable = unreadable_file(self._files, Path(self._split.path))
            if unreadable is not None:
                return SourceBatch(
                    values=[],
                    timestamps_us=[],
                    position=self._position,
                    watermark_us=MAX_TIMESTAMP_US,
                    status=SplitStatus.FINISHED,
                    set_aside=[unreadable],
                )
            (whole,) = self._files.splits(1)
            self._inner = self._files.open(whole, self._position, fence=0)
        batch = self._inner.read(max_records)
        return attrs.evolve(batch, watermark_us=max(batch.watermark_us, begins_us))

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class CsvInjector(FileInjector):
    """Rows of the CSV files of a folder, for `Topology.injector` and `Read`.

    The low watermark is the minimum over the unfinished files of the time at which each begins.

    Args:
        pattern: a file, or a pattern such as ``logs/*.csv``; files that appear later are read only if expected.
            A file must be complete when it appears under its name: write it under another, and rename it.
        event_time: gives a record's event time (an aware datetime, text, or seconds since 1970).
        max_disorder: how far event times go back within a file, at most, as you expect; the low watermark then follows
            the records of an unfinished file at this distance, instead of waiting for its end.
        max_ahead: as for `CsvWatcher`.
        created: gives a file's beginning, an instant that no record of it is before; without it that is the event time
            of its first record, less ``max_disorder``.
        expected: files, by their names in the folder of the pattern, that are read as soon as they are there, and where
            each begins.  Until it has been read to its end, the low watermark is not past that.

    Raises:
        PipelineError: an argument is of another kind.
        TimeError: ``max_disorder``, or the beginning of an expected file, is no time.
        InputError: no file is there or expected, or one is malformed.

    MillWheel, figure 10.
    """

    source_class = CsvSource


class JsonLinesInjector(FileInjector):
    """Values of files with one JSON value per line; arguments as for `CsvInjector`."""

    source_class = JsonLinesSource
