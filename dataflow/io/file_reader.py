"""FileReader: reads a part of a file from front to back, and sets malformed records aside.

Records are read many at a time.  Where that fails, or one of them is too far ahead of the clock, the same bytes are
read again record by record: those that can be handed over are, and each of the others is set aside with its place.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dataflow.columns import RepeatedColumn
from dataflow.errors import InputError, TimeError
from dataflow.io.files import PIECE_BYTES, FileSource, FileSplit, not_opened
from dataflow.io.whole_lines import WholeLines, line_ends
from dataflow.set_aside import RAW_BYTES_MAX, Origin, SetAside
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from windowing.errors import error_text
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    TimestampLike,
    to_timestamp_us,
    to_timestamps_us,
)

_SHOWN_CHARACTERS = 200
_SET_ASIDE_HINT = (
    "or go on without such records: df.Pipeline(..., tries_per_record=1) keeps them as dead letters"
)


class FileReader(SourceReader):
    """Reads one split of a file, in the format of its source, and sets aside what it cannot read.

    Args:
        source: the source, with the format.
        split: the part of a file to read.
        position: the byte offset to read from; None: from the start.
    """

    def __init__(self, source: FileSource, split: FileSplit, position: int | None) -> None:
        self._format, self.split = source, split
        #: The byte offset of the next record.
        self.offset = split.start_bytes if position is None else position
        self._ahead = source.ceiling(split)
        self._watermark_us = MIN_TIMESTAMP_US
        self._line_numbers = _LineNumbers(split.path)
        self._open_lines()

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more."""
        return self.offset >= self.split.end_bytes

    def restart(self) -> None:
        """Go on from `offset`, even if more has been read."""
        self.lines.close()
        self._open_lines()

    def begin(self) -> None:
        """Prepare for new `lines`, of which nothing has been read."""

    @abstractmethod
    def take(self, max_records: int) -> Sequence[Any]:
        """The next records, at most so many and at least one if there is any; moves `offset` behind them.

        Raises:
            Exception: one of them is malformed; the format's `FileSource.records_of` then finds out which one.
        """

    def times_us(self, records: Sequence[Any]) -> Sequence[int]:
        """The event time of each record.  Raises `InputError` if one has none."""
        return event_times_us(self.split.path, self._format.event_time, records)

    def newest_us(self, timestamps_us: Sequence[int]) -> int | None:
        """The latest of the event times of some records; None if none has one."""
        return max(timestamps_us, default=None) if self._format.event_time is not None else None

    def read(self, max_records: int) -> SourceBatch:
        """At most ``max_records`` more records."""
        start = self.offset
        try:
            records = () if self.is_at_end else self.take(max_records)
            timestamps_us = self.times_us(records)
            newest_us = self.newest_us(timestamps_us)
        except Exception:  # noqa: BLE001 - which record it was, and what it was, is found one by one
            return self._read_one_by_one(start, max_records)
        is_ahead = newest_us is not None and self._is_ahead(newest_us)
        if is_ahead:
            return self._read_one_by_one(start, max_records)
        return self._batch(records, timestamps_us)

    def close(self) -> None:
        """Close the file."""
        self.lines.close()

    def _open_lines(self) -> None:
        self.lines = WholeLines(self.split.path, self.offset, self.split.end_bytes)
        self.begin()

    def _is_ahead(self, timestamp_us: int) -> bool:
        return self._ahead is not None and timestamp_us > self._ahead.ceiling_us()

    def _batch(
        self,
        records: Sequence[Any],
        timestamps_us: Sequence[int],
        set_aside: Sequence[SetAside] = (),
    ) -> SourceBatch:
        disorder_us = self._format.max_disorder_us
        if disorder_us is not None:
            newest_us = self.newest_us(timestamps_us)
            if newest_us is not None:
                self._watermark_us = max(self._watermark_us, newest_us - disorder_us)
        return SourceBatch(
            values=records,
            timestamps_us=timestamps_us,
            position=self.offset,
            watermark_us=MAX_TIMESTAMP_US if self.is_at_end else self._watermark_us,
            status=SplitStatus.FINISHED if self.is_at_end else SplitStatus.ACTIVE,
            set_aside=set_aside,
        )

    def _read_one_by_one(self, start: int, max_records: int) -> SourceBatch:
        values: list[Any] = []
        timestamps_us: list[int] = []
        set_aside: list[SetAside] = []
        self.offset = start
        self.restart()
        for unit in self._format.units(self.lines):
            found = self._read_unit(unit.raw, unit.size)
            self.offset += unit.size
            if isinstance(found, SetAside):
                set_aside.append(found)
            elif found is not None:
                values.append(found[0])
                timestamps_us.append(found[1])
            if len(values) + len(set_aside) == max_records:
                break
        self.restart()
        return self._batch(values, timestamps_us, set_aside)

    def _read_unit(self, raw: bytes, size: int) -> tuple[Any, int] | SetAside | None:
        """A record with its event time, or why it cannot be handed over; None if the bytes are none."""
        path = self.split.path
        try:
            records = self._format.records_of(path, raw)
            if not records:
                return None
            (timestamp_us,) = self.times_us(records)
        except InputError as error:
            origin = self._origin(raw, size)
            return SetAside(
                error=_placed(error, origin), cause=error.__cause__ or error, origin=origin
            )
        (record,) = records
        if self._ahead is not None and self._is_ahead(timestamp_us):
            return self._ahead.set_aside(path, self._origin(raw, size), record, timestamp_us)
        return record, timestamp_us

    def _origin(self, raw: bytes, size: int) -> Origin:
        return Origin(
            path=self.split.path,
            line=self._line_numbers.at(self.offset),
            start_bytes=self.offset,
            end_bytes=self.offset + size,
            raw=raw[:RAW_BYTES_MAX],
        )


class _LineNumbers:
    """The numbers of lines of a file, from 1, by where they begin; cheap for ascending places."""

    def __init__(self, path: str) -> None:
        self._path, self._offset, self._line = path, 0, 1

    def at(self, offset: int) -> int:
        if offset < self._offset:
            self._offset, self._line = 0, 1
        with closing(WholeLines(self._path, self._offset, offset)) as lines:
            self._line += sum(map(line_ends, lines.pieces(PIECE_BYTES)))
        self._offset = offset
        return self._line


def _placed(error: InputError, origin: Origin) -> InputError:
    shown = origin.raw.decode("utf-8", "backslashreplace")[:_SHOWN_CHARACTERS]
    return InputError(
        f"{error.fact}, in line {origin.line}",
        detail=f"{origin}: {error.detail}; in the file: {shown!r}",
        hint=f"{error.hint}; {_SET_ASIDE_HINT}",
    )


def unreadable_file(files: FileSource, path: Path) -> SetAside | None:
    """The error about a file of another format, none of whose records can be read; None if the format is right.

    Args:
        files: the source, which checks its format.
        path: of the file in question.

    Raises:
        InputError: it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(RAW_BYTES_MAX)
    except OSError as error:
        raise not_opened(str(path), error) from None
    try:
        files.check_format(str(path))
    except InputError as error:
        size = path.stat().st_size
        origin = Origin(path=str(path), line=1, start_bytes=0, end_bytes=size, raw=raw)
        return SetAside(error=_placed(error, origin), cause=error, origin=origin)
    return None


def event_times_us(
    path: str, event_time: Callable[[Any], TimestampLike] | None, values: Sequence[Any]
) -> Sequence[int]:
    """The event time of each record of a file.

    Args:
        path: for messages.
        event_time: from a record to its event time, as the user gave it; None: records have none.
        values: the records.

    Raises:
        InputError: a record has none.
    """
    if event_time is None:
        return RepeatedColumn(MIN_TIMESTAMP_US, len(values))
    if len(values) > 1:
        # Where one fails, it is found when each is asked for alone.
        return to_timestamps_us(list(map(event_time, values)))
    return [_time_us(path, event_time, value) for value in values]


def _time_us(path: str, event_time: Callable[[Any], TimestampLike], value: Any) -> int:
    what = "raised"
    try:
        found = event_time(value)
        what = f"gave {found!r}:"
        return to_timestamp_us(found)
    except Exception as error:
        why, hint = error_text(error), ""
        if isinstance(error, TimeError):
            why, hint = error.fact, f"{error.hint}; or "
        raise InputError(
            f"{path} has a record without an event time",
            detail=f"event_time {what} {type(error).__name__}: {why}; record: {value!r}",
            hint=f"{hint}correct the record, or return an instant for it from event_time and sort "
            "it out in the pipeline",
        ) from error
