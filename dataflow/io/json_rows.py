"""Typed rows from JSON lines: blocks of lines, parsed as columns.

A block is of whole lines, so a position stays the byte offset of the next line.  Blocks that the column parser does
not take, or that might mean something else to it, are parsed line by line, which gives the same rows, or the error with
its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from dataflow.arrow_numbers import numbers_of
from dataflow.columns import ARROW_TYPES, IntColumn, Rows
from dataflow.errors import InputError
from dataflow.io.file_reader import FileReader
from dataflow.io.json_values import check_first_lines, parse_json
from dataflow.io.record_reader import event_times_us
from dataflow.io.text_files import FileSplit, TextFileSource, text_of
from dataflow.rows import RowField
from dataflow.source import SourceReader
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
    TimestampLike,
    to_datetime,
    to_timestamps_us,
)

#: A block has at most so many bytes, and then up to the end of its line.
BLOCK_BYTES_MAX = 32 << 20
_BLOCK_BYTES_MIN = 1 << 16
#: Bytes of a line, before one has been read.
_LINE_BYTES_FIRST = 64
#: A block has a little less than is asked for, so that not much of one is left for the next time.
_FILL = 0.97

_EPOCH = to_datetime(0)


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
        block = _with_line_feeds(block)
        table = self._parsed(block)
        if table is not None:
            return Rows(table.combine_chunks().to_batches()[0], self.row_type)
        lines = text_of(path, block).split("\n")
        return [self._row(path, line) for line in lines if line.strip()]

    def records_of(self, path: str, raw: bytes) -> Sequence[Any]:
        """The row of a line."""
        return self.rows(path, raw)

    def _parsed(self, block: bytes) -> pa.Table | None:
        """The block as a table, with one row for each of its lines; None if it is not certain to be that."""
        lines = _lines_of_objects(block)
        if not lines or not _is_utf8(block):
            return None
        schema = pa.schema([(each.name, ARROW_TYPES[each.kind]) for each in self.fields])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block),
                # One piece, on this thread: workers are as many as there are cores.
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            return None
        has_hole = any(not each.is_optional and table[each.name].null_count for each in self.fields)
        return None if has_hole or table.num_rows != lines else table

    def _row(self, path: str, line: str) -> Any:
        value = parse_json(path, line)
        if not isinstance(value, Mapping):
            raise self._refusal(path, "it is no object")
        return self.row_type._make([self._field(path, value, each) for each in self.fields])

    def _field(self, path: str, members: Mapping[str, Any], field: RowField) -> Any:
        value = members.get(field.name)
        if value is None:
            if field.is_optional:
                return None
            raise self._refusal(path, f"the field {field.name!r} is missing")
        if type(value) is field.kind:
            return value
        if field.kind is float and type(value) is int:
            return float(value)
        raise self._refusal(
            path, f"the field {field.name!r} is {value!r}, and not of type {field.kind.__name__}"
        )

    def _refusal(self, path: str, why: str) -> InputError:
        return InputError(
            f"{path} has a line that is no {self.row_type.__name__}",
            detail=why,
            hint="correct the line or the type; a field that may be missing is declared as ... | None",
        )


def _lines_of_objects(block: bytes) -> int:
    """The number of lines, if each begins with a brace; else 0."""
    characters = np.frombuffer(block, np.uint8)
    # What is behind the last line end, if anything, is a line too.
    is_end = characters[:-1] == ord("\n")
    are_objects = characters[0] == ord("{") and (characters[1:][is_end] == ord("{")).all()
    return int(np.count_nonzero(is_end)) + 1 if are_objects else 0


def _with_line_feeds(block: bytes) -> bytes:
    """The lines of a block, each ended by LF."""
    if b"\r" not in block:
        return block
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _RowsReader(FileReader):
    reads_columns = True

    def __init__(self, source: JsonRowsSource, split: FileSplit, position: int | None) -> None:
        self._source = source
        self._line_bytes: float = _LINE_BYTES_FIRST
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
            return self._field_times_us(records, source.time_field)
        if source.event_time is not None:
            return super().times_us(records)
        return IntColumn(np.full(len(records), MIN_TIMESTAMP_US))

    def newest_us(self, timestamps_us: Sequence[int]) -> int | None:
        if self._source.time_field is None:
            return super().newest_us(timestamps_us)
        if isinstance(timestamps_us, IntColumn) and len(timestamps_us):
            return int(timestamps_us.array.max())
        return max(timestamps_us, default=None)

    def _field_times_us(self, rows: Sequence[Any], name: str) -> Sequence[int]:
        unit_us = self._source.unit_us
        column = rows.column(name) if isinstance(rows, Rows) else None
        if column is not None and pa.types.is_integer(column.type):
            times = numbers_of(column)
            low, high = int(times.min()) * unit_us, int(times.max()) * unit_us
            if MIN_TIMESTAMP_US <= low and high <= MAX_TIMESTAMP_US:
                return IntColumn(times * unit_us)
        if column is not None and pa.types.is_string(column.type) and len(rows) > 1:
            return to_timestamps_us(column.to_pylist())
        return event_times_us(
            self.split.path, lambda row: _instant(getattr(row, name), unit_us), rows
        )


def _instant(value: Any, unit_us: int) -> TimestampLike:
    """The instant of a text, or so many units after 1970."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value * unit_us / US_PER_SECOND
    return _EPOCH + timedelta(microseconds=value * unit_us)


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
