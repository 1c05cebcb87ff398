"""FileReader: reads a part of a file from front to back, and sets malformed records aside.

Records are read many at a time.  Where that fails, or one of them is too far ahead of the clock, the same bytes are
read again record by record: those that can be handed over are, and each of the others is set aside with its place.
"""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dataflow.errors import InputError
from dataflow.io.record_reader import RecordReader, event_times_us
from dataflow.io.storage import not_opened
from dataflow.io.text_files import PIECE_BYTES, FileSplit, TextFileSource
from dataflow.io.whole_lines import line_ends
from dataflow.set_aside import RAW_BYTES_MAX, Origin, SetAside
from dataflow.source import Backlog, SourceBatch

_SHOWN_CHARACTERS = 200
_SET_ASIDE_HINT = (
    "or go on without such records: df.Pipeline(..., tries_per_record=1) keeps them as dead letters"
)


class FileReader(RecordReader):
    """Reads one split of a file, in the format of its source, and sets aside what it cannot read.

    Args:
        source: the source, with the format.
        split: the part of a file to read.
        position: the byte offset to read from; None: from the start.
    """

    def __init__(self, source: TextFileSource, split: FileSplit, position: int | None) -> None:
        super().__init__(source, split.began_us)
        self._format, self.split = source, split
        #: The byte offset of the next record.
        self.offset = split.start_bytes if position is None else position
        self._line_numbers = _LineNumbers(source, split.path)
        self._open_lines(split.end_bytes)

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more, as far as that is known."""
        return self.lines.end is not None and self.offset >= self.lines.end

    @property
    def position(self) -> int:
        """The byte offset of the next record."""
        return self.offset

    @property
    def backlog(self) -> Backlog | None:
        """How many bytes are left; of a packed file that is known when it is at its end."""
        end = self.lines.end
        return None if end is None else Backlog(size_bytes=max(0, end - self.offset))

    def restart(self) -> None:
        """Go on from `offset`, even if more has been read."""
        end = self.lines.end
        self.lines.close()
        self._open_lines(end)

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

    def read(self, max_records: int) -> SourceBatch:
        """At most ``max_records`` more records."""
        start = self.offset
        try:
            records = () if self.is_at_end else self.take(max_records)
            timestamps_us = self.times_us(records)
            newest_us = self.newest_us(timestamps_us)
        except Exception:  # noqa: BLE001 - which record it was, and what it was, is found one by one
            return self._read_one_by_one(start, max_records)
        if newest_us is not None and self.is_ahead(newest_us):
            return self._read_one_by_one(start, max_records)
        return self.batch(records, timestamps_us)

    def close(self) -> None:
        """Close the file."""
        self.lines.close()

    def _open_lines(self, end: int | None) -> None:
        self.lines = self._format.lines(self.split.path, self.offset, end)
        self.begin()

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
        return self.batch(values, timestamps_us, set_aside)

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
        if self.ahead is not None and self.is_ahead(timestamp_us):
            return self.ahead.set_aside(path, self._origin(raw, size), record, timestamp_us)
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

    def __init__(self, source: TextFileSource, path: str) -> None:
        self._source, self._path = source, path
        self._offset, self._line = 0, 1

    def at(self, offset: int) -> int:
        if offset < self._offset:
            self._offset, self._line = 0, 1
        with closing(self._source.lines(self._path, self._offset, offset)) as lines:
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


def unreadable_file(files: TextFileSource, path: Path) -> SetAside | None:
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
        files.open_file(str(path)).close()
        files.check_format(str(path))
    except InputError as error:
        size = path.stat().st_size
        origin = Origin(path=str(path), line=1, start_bytes=0, end_bytes=size, raw=raw)
        return SetAside(error=_placed(error, origin), cause=error, origin=origin)
    return None
