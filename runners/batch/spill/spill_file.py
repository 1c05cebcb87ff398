"""SpillFile: bytes on their way through a file that no other process sees and that goes with this process."""

import struct
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO

_LENGTH = struct.Struct("<Q")


class SpillFile:
    """A file that is written to its end, then read, from its beginning or at some places."""

    def __init__(self) -> None:
        # Closed by the creator of this object: the file outlives every block here.
        self._file: IO[bytes] = TemporaryFile(prefix="dataflow-spill-")  # noqa: SIM115 - closed by its owner, or with the process

    def write(self, blob: bytes) -> int:
        """Append bytes, and return their place."""
        place = self._file.tell()
        self._file.write(_LENGTH.pack(len(blob)))
        self._file.write(blob)
        return place

    def read_from(self, place: int, count: int) -> Iterator[bytes]:
        """What was written at a place, and behind it; other places may be read meanwhile.

        Args:
            place: of the first piece.
            count: how many pieces.
        """
        for _ in range(count):
            self._file.seek(place)
            (size_bytes,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            yield self._file.read(size_bytes)
            place += _LENGTH.size + size_bytes

    def read(self) -> Iterator[bytes]:
        """Everything that was written, piece by piece."""
        self._file.seek(0)
        while header := self._file.read(_LENGTH.size):
            (size_bytes,) = _LENGTH.unpack(header)
            yield self._file.read(size_bytes)

    def close(self) -> None:
        """Close the file, which frees its space."""
        self._file.close()
