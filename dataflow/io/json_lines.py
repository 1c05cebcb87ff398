"""ReadFromJsonLines, and the source behind it where lines are typed rows: blocks of lines, parsed as columns.

A block ends at a line end, so a position stays the byte offset of the next line.  Blocks that the column parser does
not take, or that might mean something else to it, are parsed line by line, which gives the same rows, or the error with
its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from dataflow.columns import ARROW_TYPES, IntColumn, Rows
from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.files import FileSplit, JsonLinesSource, ReadFromFiles, event_times_us, parse_json
from dataflow.io.source import SourceBatch, SourceReader, SplitStatus
from dataflow.record_ids import RecordIds
from dataflow.rows import RowField, row_fields
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
    DurationLike,
    TimestampLike,
    to_datetime,
)

#: A block has at most so many bytes, and then up to the end of its line.
BLOCK_BYTES_MAX = 32 << 20
_BLOCK_BYTES_MIN = 1 << 16
#: Bytes of a line, before one has been read.
_LINE_BYTES_FIRST = 64
#: A block has a little less than is asked for, so that not much of one is left for the next time.
_FILL = 0.97

_EPOCH = to_datetime(0)
_UNITS_US = {"s": US_PER_SECOND, "ms": 1_000, "us": 1}


@attrs.frozen(kw_only=True)
class JsonRowsSource(JsonLinesSource):
    """One JSON object per line, as a row of ``row_type``; other members of the object are passed over.

    ``time_field``: the field that is the event time, in units of ``unit_us`` since 1970.
    """

    row_type: Any
    fields: tuple[RowField, ...]
    time_field: str | None = None
    unit_us: int = US_PER_SECOND

    def open(self, split: FileSplit, position: int | None) -> SourceReader:
        """Read from a byte offset on."""
        return _RowsReader(self, split, position)

    def rows(self, path: str, block: bytes) -> Rows | list[Any]:
        """The rows of a block of lines.

        Raises:
            InputError: a line is not such a row; it says which.
        """
        table = self._parsed(block)
        if table is not None:
            return Rows(table.combine_chunks().to_batches()[0], self.row_type)
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text", detail=str(error), hint="convert the file to UTF-8"
            ) from None
        return [self._row(path, line) for line in text.split("\n") if line.strip()]

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
            raise self._refusal(path, line, "it is no object")
        return self.row_type._make([self._field(path, line, value, each) for each in self.fields])

    def _field(self, path: str, line: str, members: Mapping[str, Any], field: RowField) -> Any:
        value = members.get(field.name)
        if value is None:
            if field.is_optional:
                return None
            raise self._refusal(path, line, f"the field {field.name!r} is missing")
        if type(value) is field.kind:
            return value
        if field.kind is float and type(value) is int:
            return float(value)
        raise self._refusal(
            path,
            line,
            f"the field {field.name!r} is {value!r}, and not of type {field.kind.__name__}",
        )

    def _refusal(self, path: str, line: str, why: str) -> InputError:
        return InputError(
            f"{path} has a line that is no {self.row_type.__name__}",
            detail=f"{why}; line: {line[:200]!r}",
            hint="correct the line or the type; a field that may be missing is declared as ... | None",
        )


def _lines_of_objects(block: bytes) -> int:
    """The number of lines, if each begins with a brace; else 0."""
    characters = np.frombuffer(block, np.uint8)
    is_end, is_brace = characters == ord("\n"), characters == ord("{")
    # What is behind the last line end, if anything, is a line too.
    ends = np.count_nonzero(is_end[:-1])
    is_dense = is_brace[0] and np.count_nonzero(is_end[:-1] & is_brace[1:]) == ends
    return int(ends) + 1 if is_dense else 0


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _RowsReader(SourceReader):
    reads_columns = True

    def __init__(self, source: JsonRowsSource, split: FileSplit, position: int | None) -> None:
        self._source, self._split = source, split
        #: Of the next row.
        self._offset = split.start_bytes if position is None else position
        self._file: BinaryIO = Path(split.path).open("rb")  # noqa: SIM115 - closed by close()
        self._file.seek(self._offset)
        self._watermark_us = MIN_TIMESTAMP_US
        self._line_bytes: float = _LINE_BYTES_FIRST
        self._block = b""
        self._rows: Sequence[Any] = ()

    def read(self, max_records: int) -> SourceBatch:
        while not self._rows and self._offset < self._split.end_bytes:
            self._read_block(max_records)
        rows = self._rows[:max_records]
        self._pass_over(len(rows))
        is_finished = self._offset >= self._split.end_bytes and not self._rows
        timestamps_us = self._timestamps_us(rows)
        return SourceBatch(
            values=rows,
            timestamps_us=timestamps_us,
            position=self._offset,
            watermark_us=MAX_TIMESTAMP_US if is_finished else self._watermark_us,
            status=SplitStatus.FINISHED if is_finished else SplitStatus.ACTIVE,
        )

    def close(self) -> None:
        self._file.close()

    def _read_block(self, max_records: int) -> None:
        """The next lines of the split, about as many as are asked for; their rows may be none."""
        left = self._split.end_bytes - self._offset
        wanted = int(max_records * self._line_bytes * _FILL)
        size = min(left, BLOCK_BYTES_MAX, max(_BLOCK_BYTES_MIN, wanted))
        block = self._file.read(size)
        if len(block) < left and not block.endswith(b"\n"):
            block += self._file.readline()
        if len(block) < size:
            raise InputError(
                f"{self._split.path} became shorter while it was read",
                detail=f"it ended at byte {self._offset + len(block)}, not {self._split.end_bytes}",
                hint="do not change files while they are read",
            )
        self._block, self._rows = block, self._source.rows(self._split.path, block)
        if self._rows:
            self._line_bytes = len(block) / len(self._rows)
        else:
            self._offset += len(block)

    def _pass_over(self, count: int) -> None:
        """Move behind so many rows of the block."""
        if count == len(self._rows):
            self._offset += len(self._block)
            self._block, self._rows = b"", ()
            return
        end = _end_of_line(self._block, count, is_dense=isinstance(self._rows, Rows))
        self._offset += end
        self._block, self._rows = self._block[end:], self._rows[count:]

    def _timestamps_us(self, rows: Sequence[Any]) -> Sequence[int]:
        source = self._source
        timestamps_us: IntColumn | list[int]
        if not rows:
            return []
        if source.time_field is not None:
            timestamps_us = self._field_times_us(rows, source.time_field)
        elif source.event_time is not None:
            timestamps_us = event_times_us(self._split.path, source.event_time, rows)
        else:
            return IntColumn(np.full(len(rows), MIN_TIMESTAMP_US))
        if source.max_disorder_us is not None:
            newest_us = _newest_us(timestamps_us) - source.max_disorder_us
            self._watermark_us = max(self._watermark_us, newest_us)
        return timestamps_us

    def _field_times_us(self, rows: Sequence[Any], name: str) -> IntColumn | list[int]:
        unit_us = self._source.unit_us
        column = rows.column(name) if isinstance(rows, Rows) else None
        if column is not None and pa.types.is_integer(column.type):
            times = column.to_numpy()
            low, high = int(times.min()) * unit_us, int(times.max()) * unit_us
            if MIN_TIMESTAMP_US <= low and high <= MAX_TIMESTAMP_US:
                return IntColumn(times * unit_us)
        return event_times_us(
            self._split.path, lambda row: _instant(getattr(row, name), unit_us), rows
        )


def _newest_us(timestamps_us: IntColumn | list[int]) -> int:
    if isinstance(timestamps_us, IntColumn):
        return int(timestamps_us.array.max())
    return max(timestamps_us)


def _instant(value: Any, unit_us: int) -> TimestampLike:
    """The instant so many units after 1970."""
    if isinstance(value, float):
        return value * unit_us / US_PER_SECOND
    return _EPOCH + timedelta(microseconds=value * unit_us)


def _end_of_line(block: bytes, count: int, *, is_dense: bool) -> int:
    """Where the line of the ``count``-th row ends; ``is_dense`` if no line is empty."""
    if is_dense:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        return int(ends[count - 1]) + 1
    end = 0
    while count:
        newline = block.index(b"\n", end) + 1
        count -= bool(block[end:newline].strip())
        end = newline
    return end


class ReadFromJsonLines(ReadFromFiles):
    """Values of files with one JSON value per line, or typed rows.

    Args:
        path: as for `ReadFromCsv`, and so are ``max_disorder`` and ``record_ids``.
        rows: a row type: a `typing.NamedTuple` class with fields of int, float, str or bool, or one of these or None.
            Each line then is an object with at least these members (one that may be None may be missing), and elements
            are instances of the type.  They travel as columns where every step can take them so, which is many times
            faster; see docs/how-to/work-in-columns.md.
        event_time: as for `ReadFromCsv`; with ``rows`` also the name of a field, a number of ``event_time_unit`` since
            1970.
        event_time_unit: ``s``, ``ms`` or ``us``: seconds, milliseconds, microseconds.

    Raises:
        InputError: a file is missing or malformed: when the pipeline is built as far as the first line tells, else when
            it is read; names the file and shows the line.
        PipelineError: ``rows`` is no row type, or an argument does not suit the others.
    """

    source_class = JsonLinesSource

    def __init__(
        self,
        path: str | Path,
        *,
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | str | None = None,
        event_time_unit: str | None = None,
        max_disorder: DurationLike | None = None,
        record_ids: RecordIds | None = None,
    ) -> None:
        field = event_time if isinstance(event_time, str) else None
        time_of = _never_called if isinstance(event_time, str) else event_time
        super().__init__(path, event_time=time_of, max_disorder=max_disorder, record_ids=record_ids)
        if rows is None:
            if field is not None or event_time_unit is not None:
                raise PipelineError(
                    "ReadFromJsonLines takes the name of a field, and a unit, with rows=... only",
                    hint="give the row type, or a function that gives an instant for each value",
                )
            return
        fields = row_fields(rows, "ReadFromJsonLines")
        _check_fields(rows, fields, field, event_time_unit)
        self._source = JsonRowsSource(
            pattern=self._source.pattern,
            event_time=None if field is not None else self._source.event_time,
            max_disorder_us=self._source.max_disorder_us,
            row_type=rows,
            fields=fields,
            time_field=field,
            unit_us=_UNITS_US[event_time_unit or "s"],
        )


def _never_called(row: Any) -> TimestampLike:
    raise AssertionError(row)


def _check_fields(
    row_type: type, fields: Sequence[RowField], time_field: str | None, unit: str | None
) -> None:
    if unit is not None and (unit not in _UNITS_US or time_field is None):
        raise PipelineError(
            f"ReadFromJsonLines was given event_time_unit={unit!r}",
            hint=f"give one of {', '.join(map(repr, _UNITS_US))}, with event_time= the name of a field",
        )
    if wrong := [each.name for each in fields if each.kind is datetime]:
        raise PipelineError(
            f"ReadFromJsonLines cannot read the fields {wrong} of {row_type.__name__}",
            detail="JSON has no instants",
            hint="read them as str or int, and convert them in a df.Map",
        )
    kinds = {each.name: each.kind for each in fields if not each.is_optional}
    if time_field is not None and kinds.get(time_field) not in {int, float}:
        raise PipelineError(
            f"ReadFromJsonLines cannot take event times from the field {time_field!r} of {row_type.__name__}",
            detail=f"fields: {', '.join(each.name for each in fields)}",
            hint="name a field of type int or float that is never None, or give a function of the row",
        )
