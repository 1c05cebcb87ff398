"""RunFile: frames that are written once and read by their place, in a file that no other process sees.

A file of frames (`runners.stored.runs`), each a window, a number of records, and a user's value.  It goes with its last
reader, when it is closed, or with the process, whichever is first: it has no name that could be left behind.

Reading has no position, so any number of readers may be under way at the same time.
"""

import os
import weakref
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from dataflow.errors import TransformError
from runners.stored.runs import RUN_HEAD, decode_own, decode_run_head
from windowing.window import Window

#: Read at once, in search of heads.
_BLOCK_BYTES = 4 << 10

#: First byte and end of a part of a file; whole frames.
Stretch = tuple[int, int]


class Head(NamedTuple):
    """A frame without its content.

    Attributes:
        at: where the frame begins.
        content_at: where its content does.
        end: where both end.
    """

    window: Window
    records: int
    at: int
    content_at: int
    end: int


class RunFile:
    """Frames, appended and read again."""

    def __init__(self) -> None:
        # Closed by the finalizer, which an owner calls sooner where it knows that nothing reads the file any more.
        self._file = TemporaryFile(prefix="dataflow-spill-")  # noqa: SIM115 - closed by its owner, or with the process
        self._size_bytes = 0
        #: Closes the file: its space is free, and nothing can be read.
        self.close = weakref.finalize(self, self._file.close)

    def append(self, frames: Iterable[bytes]) -> Stretch:
        """Write frames, and return their place."""
        start = self._size_bytes
        for each in frames:
            self._file.write(each)
            self._size_bytes += len(each)
        self._file.flush()
        return start, self._size_bytes

    def heads(self, stretch: Stretch) -> Iterator[Head]:
        """The frames of a stretch, without reading what is in large ones."""
        at, end = stretch
        block, block_at = b"", at
        while at < end:
            if at + RUN_HEAD.size > block_at + len(block):
                block, block_at = self._read(at, min(at + _BLOCK_BYTES, end)), at
            found = decode_run_head(block, at - block_at)
            window, window_bytes, records, content_bytes = found
            window_at = at + RUN_HEAD.size
            content_at = window_at + window_bytes
            if window_bytes:
                window = decode_own(self._read(window_at, content_at))
            yield Head(window, records, at, content_at, content_at + content_bytes)
            at = content_at + content_bytes

    def content(self, head: Head) -> Any:
        """The content of a frame."""
        return decode_own(self._read(head.content_at, head.end))

    def _read(self, start: int, end: int) -> bytes:
        if not self.close.alive:
            raise TransformError(
                "the values of a group were read after the task that grouped them had ended",
                detail="they did not fit into memory, so they were in a temporary file, which goes with the task",
                hint="read them in DoFn.process, or keep list(values), which takes the memory",
            )
        parts = []
        while start < end:
            part = os.pread(self._file.fileno(), end - start, start)
            if not part:
                raise OSError("a temporary file of this process has lost its end")
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
