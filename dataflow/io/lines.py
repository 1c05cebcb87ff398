"""Files in which each line is a record: many lines at a time."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import Any

import attrs

from dataflow.io.file_reader import FileReader
from dataflow.io.text_files import FileSplit, TextFileSource
from dataflow.source import SourceReader


@attrs.frozen(kw_only=True)
class LineSource(TextFileSource):
    """One record per line; a line may also hold none."""

    def open(self, split: FileSplit, position: int | None, *, fence: int) -> SourceReader:
        """Read from a byte offset on."""
        return _LineReader(self, split, position)

    def records_of(self, path: str, raw: bytes) -> Sequence[Any]:
        """The records of one line."""
        return self.records(path, [raw])

    @abstractmethod
    def records(self, path: str, lines: Sequence[bytes]) -> Sequence[Any]:
        """The records of some lines with their ends.

        Args:
            path: for messages.
            lines: each with its line end.

        Raises:
            InputError: a line is malformed.
        """


class _LineReader(FileReader):
    def __init__(self, source: LineSource, split: FileSplit, position: int | None) -> None:
        self._source = source
        super().__init__(source, split, position)

    def begin(self) -> None:
        self._next_lines = iter(self.lines)

    def take(self, max_records: int) -> Sequence[Any]:
        records: Sequence[Any] = ()
        while not records and not self.is_at_end:
            lines = list(islice(self._next_lines, max_records))
            records = self._source.records(self.split.path, lines)
            self.offset += sum(map(len, lines))
        return records
