"""PickleFile: values on their way through a file that nobody else sees and that goes with this process."""

import struct
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Any

from dataflow.serialization import dumps, loads

_LENGTH = struct.Struct("<Q")


class PickleFile:
    """Written to its end, then read from its beginning."""

    def __init__(self) -> None:
        # Closed by whoever made this: it outlives every block here.
        self._file: IO[bytes] = TemporaryFile(prefix="dataflow-spill-")  # noqa: SIM115

    def write(self, value: Any) -> None:
        """Append a value."""
        blob = dumps(value)
        self._file.write(_LENGTH.pack(len(blob)))
        self._file.write(blob)

    def read(self) -> Iterator[tuple[Any, int]]:
        """Every value, and the size of its pickle."""
        self._file.seek(0)
        while header := self._file.read(_LENGTH.size):
            (size_bytes,) = _LENGTH.unpack(header)
            yield loads(self._file.read(size_bytes)), size_bytes

    def close(self) -> None:
        """Give the space back."""
        self._file.close()
