"""Typed rows from JSON lines: blocks of lines, parsed as columns.

A block is of whole lines, so a position stays the byte offset of the next line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from dataflow.columns import IntColumn, Rows
from dataflow.io.file_reader import FileReader
from dataflow.io.json_row_form import JsonRowForm, field_times_us
from dataflow.io.json_values import check_first_lines
from dataflow.io.text_files import FileSplit, TextFileSource
from dataflow.rows import RowField
from dataflow.source import SourceReader
from windowing.timestamps import (
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
)

#: A block has at most so many bytes, and then up to the end of its line.
BLOCK_BYTES_MAX = 32 << 20
_BLOCK_BYTES_MIN = 1 << 16
#: A block has a little less than is asked for, so that not much of one is left for the next time.
_FILL = 0.97


@attrs.frozen(kw_only=True)
class JsonRowsSource(TextFileSource):
    """One JSON object per line, as a row of ``row_type``; other members of the object are passed over.

    Attributes:
        time_field: the field that is the event time: text, or a number of ``unit_us`` since 1970.
    """

    row_type: Any
    fields: tuple[RowField, ...]
    time_field: str | None = None
    unit_us: int = US_PER_SECOND

    @property
    def element_type(self) -> Any:
        """The row type."""
        return self.row_type

    @property
    def has_event_times(self) -> bool:
        """Whether there is a field, or a function, of them."""
        return self.time_field is not None or self.event_time is not None

    def check_head(self, path: str) -> None:
        """One of the first lines parses."""
        check_first_lines(self, path)

    def open(self, split: FileSplit, position: int | None, *, fence: int) -> SourceReader:
        """Read from a byte offset on."""
        return _RowsReader(self, split, position)

    def rows(self, path: str, block: bytes) -> Rows | list[Any]:
        """The rows of a block of lines.

        Args:
            path: for messages.
            block: whole lines.

        Raises:
            InputError: a line is not such a row; the message names it.
        """
        return JsonRowForm(row_type=self.row_type, fields=self.fields).rows(path, block)

    def records_of(self, path: str, raw: bytes) -> Sequence[Any]:
        """The row of a line."""
        return self.rows(path, raw)


class _RowsReader(FileReader):
    reads_columns = True

    def __init__(self, source: JsonRowsSource, split: FileSplit, position: int | None) -> None:
        self._source = source
        #: Of a line, about; the first block is a small one, by which it is known.
        self._line_bytes = 0.0
        super().__init__(source, split, position)

    def take(self, max_records: int) -> Sequence[Any]:
        while not self._rows and not self.is_at_end:
            self._read_block(max_records)
        rows = self._rows[:max_records]
        self._pass_over(len(rows))
        return rows

    def begin(self) -> None:
        self._block = b""
        self._rows: Sequence[Any] = ()

    def _read_block(self, max_records: int) -> None:
        """The next lines of the split, about as many as are asked for; their rows may be none."""
        wanted = int(max_records * self._line_bytes * _FILL)
        block = self.lines.piece(min(BLOCK_BYTES_MAX, max(_BLOCK_BYTES_MIN, wanted)))
        if not block:
            return
        self._block, self._rows = block, self._source.rows(self.split.path, block)
        if self._rows:
            self._line_bytes = len(block) / len(self._rows)
        else:
            self.offset += len(block)

    def _pass_over(self, count: int) -> None:
        """Move behind so many rows of the block."""
        if count == len(self._rows):
            self.offset += len(self._block)
            self._block, self._rows = b"", ()
            return
        end = _end_of_line(self._block, count, is_dense=isinstance(self._rows, Rows))
        self.offset += end
        self._block, self._rows = self._block[end:], self._rows[count:]

    def times_us(self, records: Sequence[Any]) -> Sequence[int]:
        source = self._source
        if source.time_field is not None and records:
            return field_times_us(self.split.path, records, source.time_field, source.unit_us)
        if source.event_time is not None:
            return super().times_us(records)
        return IntColumn(np.full(len(records), MIN_TIMESTAMP_US))

    def newest_us(self, timestamps_us: Sequence[int]) -> int | None:
        if self._source.time_field is None:
            return super().newest_us(timestamps_us)
        if isinstance(timestamps_us, IntColumn) and len(timestamps_us):
            return int(timestamps_us.array.max())
        return max(timestamps_us, default=None)


def _end_of_line(block: bytes, count: int, *, is_dense: bool) -> int:
    """Where the line of the ``count``-th row ends; ``is_dense`` if no line is empty."""
    if is_dense and b"\r" not in block:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        return int(ends[count - 1]) + 1
    end = 0
    for line in block.splitlines(keepends=True):
        end += len(line)
        count -= bool(line.strip())
        if not count:
            break
    return end
