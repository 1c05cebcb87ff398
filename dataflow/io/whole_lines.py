"""WholeLines: the lines of a part of a file, whatever ends them, in pieces of any size.

A line ends with LF, CR LF or CR, as for Python's text files, and the last line of a file may have no end.
A piece ends where a line does: one that is cut, or whose CR may be the half of a CR LF, waits for the rest.
"""

import io
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from dataflow.errors import InputError

#: Bytes that are read of a file in one go, at least.
READ_BYTES = 1 << 16
#: Of a piece so many times as long, the end is looked for in so many bytes before it is read.
TAIL_BYTES, _TAILS = 1 << 12, 16


class Bytes(Protocol):
    """An open file, of which only this much is needed."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none only at the end."""

    def seek(self, start: int, /) -> object:
        """Go to a byte offset."""

    def close(self) -> None:
        """Close it."""


class WholeLines:
    """Reads lines with their ends, from front to back.

    Args:
        file: the file; closed with the lines.
        path: its path, for messages.
        start: where a line begins, in bytes.
        end: where the part ends: at the end of a line, or of the file; None: where the file does, wherever that is.
        is_growing: the part may end within a line, which then is not read.

    Raises:
        InputError: the file ends before the part does.
    """

    def __init__(
        self, file: Bytes, path: str, start: int, end: int | None, *, is_growing: bool = False
    ) -> None:
        self._path, self._is_growing, self._file = path, is_growing, file
        #: Where the part ends, once that is known.
        self.end = end
        try:
            file.seek(start)
        except BaseException:
            file.close()
            raise
        self._at = start
        #: The beginning of a line, the rest of which is not read yet.
        self._begun = b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def pieces(self, size: int) -> Iterator[bytes]:
        """All of the part, in pieces of about so many bytes."""
        return iter(lambda: self.piece(size), b"")

    def piece(self, size: int) -> bytes:
        """The next lines together, of about so many bytes and at least one line; empty at the end of the part.

        Not to be mixed with reading line by line.

        Raises:
            InputError: the file became shorter while it was read.
        """
        if length := self._whole_lines(size - len(self._begun)):
            # A piece may be many megabytes, which are copied once as they are read.
            size = len(self._begun) + length
        while self.end is None or self._at < self.end:
            # A line that is longer than anybody thought is put together in steps that grow with it.
            wanted = max(size - len(self._begun), len(self._begun), 1)
            found = self._read(wanted)
            if not found:
                begun, self._begun = self._begun, b""
                return begun
            self._at += len(found)
            begun = self._begun
            is_all = self._at == self.end and not self._is_growing
            if length := len(found) if is_all else end_of_lines(found):
                self._begun = found[length:]
                if not begun and length == len(found):
                    return found
                # So it is copied once more.
                return b"".join((begun, memoryview(found)[:length]))
            # There may be an end in front: a CR whose LF has not come.
            together = begun + found
            length = end_of_lines(together)
            self._begun = together[length:]
            if length:
                return together[:length]
        return b""

    def _whole_lines(self, size: int) -> int:
        """How many of the next bytes end where a line does, at most so many; 0 where that is not known yet."""
        file = self._file
        is_inside = self.end is not None and self._at + size < self.end
        is_here = isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO)
        if not is_inside or not is_here or size < _TAILS * TAIL_BYTES:
            return 0
        file.seek(self._at + size - TAIL_BYTES)
        tail = file.read(TAIL_BYTES)
        file.seek(self._at)
        length = end_of_lines(tail)
        return size - TAIL_BYTES + length if length else 0

    def _read(self, wanted: int) -> bytes:
        """The next bytes; none at the end of a file whose end was not known."""
        if self.end is None:
            found = self._file.read(wanted)
            if not found:
                self.end = self._at
            return found
        found = self._file.read(min(wanted, self.end - self._at))
        if not found:
            raise InputError(
                f"{self._path} became shorter while it was read",
                detail=f"it ended at byte {self._at}, not {self.end}",
                hint="do not change files while they are read",
            )
        return found

    def __iter__(self) -> Iterator[bytes]:
        """Line by line to the end of the part; there is one such iterator."""
        return chain.from_iterable(iter(self._lines, []))

    def _lines(self) -> list[bytes]:
        return self.piece(READ_BYTES).splitlines(keepends=True)


def end_of_lines(data: bytes) -> int:
    """Where the last line ends that certainly does, whatever follows; 0 if none does."""
    end = data.rfind(b"\n") + 1
    # What follows a CR at the very end may be the LF that belongs to it.
    return max(end, data.rfind(b"\r", end, len(data) - 1) + 1)


def line_ends(data: bytes) -> int:
    """How many lines end in whole lines; a CR LF is one end."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
