"""PickleFile: values on their way through a file that nobody else sees and that goes with this process."""

import struct
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Any

from dataflow.serialization import dumps, loads

_LENGTH = struct.Struct("<Q")


class PickleFile:
    """Written to its end, then read, from its beginning or at some places."""

    def __init__(self) -> None:
        # Closed by whoever made this: it outlives every block here.
        self._file: IO[bytes] = TemporaryFile(prefix="dataflow-spill-")  # noqa: SIM115 - closed by its owner, or with the process

    def write(self, value: Any) -> int:
        """Append a value; the answer is its place."""
        place, blob = self._file.tell(), dumps(value)
        self._file.write(_LENGTH.pack(len(blob)))
        self._file.write(blob)
        return place

    def read_at(self, place: int) -> Any:
        """The value that is there."""
        self._file.seek(place)
        (size_bytes,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        return loads(self._file.read(size_bytes))

    def read(self) -> Iterator[tuple[Any, int]]:
        """Every value, and the size of its pickle."""
        self._file.seek(0)
        while header := self._file.read(_LENGTH.size):
            (size_bytes,) = _LENGTH.unpack(header)
            yield loads(self._file.read(size_bytes)), size_bytes

    def close(self) -> None:
        """Give the space back."""
        self._file.close()
