"""Files of bytes that lines divide into records: the common part of CSV, JSON lines and text.

A file is divided at record boundaries, a position is the byte offset of the next record, and a batch ends on a record.
A record may span lines where the format allows it (quoted CSV fields).  A packed file is one split, and its offsets are
of what was packed (`dataflow.io.packing`).

A line ends with LF, CR LF or CR.  Where a record ends is certain for one that is malformed, too: it depends on the file
alone, so the others are the same however the file is divided.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import attrs

from dataflow.errors import InputError
from dataflow.io.files import FileSource
from dataflow.io.packing import Unpacked, codec_of, is_packed
from dataflow.io.whole_lines import Bytes, WholeLines

#: Files are not cut into pieces smaller than this: below it, opening costs more than reading.
SPLIT_BYTES_MIN = 2 << 20
#: Bytes that are searched in one go.
PIECE_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


@attrs.frozen
class FileSplit:
    """The records of one file that start in ``[start_bytes, end_bytes)``.

    Attributes:
        end_bytes: where the part ends; None: where the file does, which is not known before it has been unpacked.
        began_us: when the input was divided, which is when the job began, if anything depends on that.
    """

    path: str
    start_bytes: int
    end_bytes: int | None
    began_us: int | None = None


@attrs.frozen
class RecordBytes:
    """A record as it is in a file, well-formed or not: ``size`` bytes, of which ``raw`` are the first, or all."""

    raw: bytes
    size: int


@attrs.frozen(kw_only=True)
class TextFileSource(FileSource):
    """Records of files of bytes that lines divide."""

    def open_file(self, path: str) -> Bytes:
        """Open a file, unpacked, at its start.

        Args:
            path: of the file.

        Raises:
            InputError: it is packed in a way that is not read.
            OSError: it cannot be opened.
        """
        codec = codec_of(path, self.compression)
        file = self.storage.open(path)
        return file if codec is None else Unpacked(file, path, codec)

    def is_packed(self, path: str) -> bool:
        """Whether a file is compressed."""
        return is_packed(path, self.compression)

    def lines(
        self, path: str, start: int, end: int | None = None, *, is_growing: bool = False
    ) -> WholeLines:
        """The lines of a part of a file.

        Args:
            path: of the file.
            start: where a line begins, in bytes.
            end: where the part ends, at the end of a line; None: where the file does.
            is_growing: the part may end within a line, which then is not read.
        """
        return WholeLines(self.open_file(path), path, start, end, is_growing=is_growing)

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
        with closing(self.open_file(path)) as file:
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
            with closing(self.lines(path, offset, size)) as lines:
                # Where the offset is between CR and LF, the LF is the rest of the line.
                yield offset + len(next(iter(lines), b""))

    def record_end(self, path: str, start: int, end: int) -> int:
        """Where the last record ends that is whole in these bytes of a file that may grow; ``start`` if none is.

        Args:
            path: of the file.
            start: a byte offset at which a record begins.
            end: the number of bytes that may be read.
        """
        with closing(self.lines(path, start, end, is_growing=True)) as lines:
            return start + sum(map(len, lines.pieces(PIECE_BYTES)))

    def split_file(self, path: str, parts: int) -> list[FileSplit]:
        """Pieces of at least `SPLIT_BYTES_MIN`; a packed file is whole."""
        start, began_us = self.head_bytes(path), self.began_us()
        if self.is_packed(path):
            return [FileSplit(path, start, None, began_us)]
        size = self.storage.size(path)
        parts = max(1, min(parts, (size - start) // SPLIT_BYTES_MIN))
        wanted = [start + (size - start) * part // parts for part in range(1, parts)]
        bounds = [start, *self.record_starts(path, start, wanted, size), size]
        return [
            FileSplit(path, low, high, began_us) for low, high in pairwise(bounds) if low < high
        ] or [FileSplit(path, start, size, began_us)]


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
