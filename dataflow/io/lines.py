"""Files in which each line is a record: many lines at a time."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import Any

import attrs

from dataflow.io.files import FileReader, FileSource, FileSplit
from dataflow.io.source import SourceReader


@attrs.frozen(kw_only=True)
class LineSource(FileSource):
    """One record per line; a line may also hold none."""

    def open(self, split: FileSplit, position: int | None) -> SourceReader:
        """Read from a byte offset on."""
        return _LineReader(self, split, position)

    @abstractmethod
    def records(self, path: str, lines: Sequence[bytes], offset: int) -> Sequence[Any]:
        """The records of some lines with their ends, the first of which begins at ``offset`` of the file.

        Raises:
            InputError: a line is malformed.
        """


class _LineReader(FileReader):
    def __init__(self, source: LineSource, split: FileSplit, position: int | None) -> None:
        super().__init__(source, split, position)
        self._source = source

    def take(self, max_records: int) -> Sequence[Any]:
        records: Sequence[Any] = ()
        while not records and not self.is_at_end:
            lines = list(islice(self.file, max_records))
            sizes = list(map(len, lines))
            size, left = sum(sizes), self.split.end_bytes - self.offset
            while size > left:
                # The next split begins with this line.
                size -= sizes.pop()
            if len(lines) < max_records and size < left:
                self.offset += size
                raise self.cut_short()
            records = self._source.records(self.split.path, lines[: len(sizes)], self.offset)
            self.offset += size
        return records
