"""JsonRowForm: JSON objects as typed rows, many at a time, parsed as columns.

Blocks that the column parser does not take, or that might mean something else to it, are parsed line by line, which
gives the same rows, or the error with its line.
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
from dataflow.io.json_numbers import number_columns
from dataflow.io.json_values import parse_json
from dataflow.io.record_reader import event_times_us
from dataflow.io.text_files import text_of
from dataflow.rows import RowField
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
    TimestampLike,
    to_datetime,
    to_timestamps_us,
)

_EPOCH = to_datetime(0)


@attrs.frozen(kw_only=True)
class JsonRowForm:
    """Rows of ``row_type``, each from one JSON object; other members of the object are passed over.

    Attributes:
        unit: what an object is in the input, for messages.
    """

    row_type: Any
    fields: tuple[RowField, ...]
    unit: str = "line"

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

    def _parsed(self, block: bytes) -> pa.Table | None:
        """The block as a table, with one row for each of its lines; None if it is not certain to be that."""
        types = {each.name: ARROW_TYPES[each.kind] for each in self.fields}
        if {int, float}.issuperset(each.kind for each in self.fields):
            numbers = number_columns(block, types)
            if numbers is not None:
                return numbers
        lines = _lines_of_objects(block)
        if not lines or not _is_utf8(block):
            return None
        schema = pa.schema(types)
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
        value = parse_json(path, line, self.unit)
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
            f"{path} has a {self.unit} that is no {self.row_type.__name__}",
            detail=why,
            hint=f"correct the {self.unit} or the type; a field that may be missing is declared as ... | None",
        )


def field_times_us(path: str, rows: Sequence[Any], name: str, unit_us: int) -> Sequence[int]:
    """The event times of rows, which are in a field.

    Args:
        path: for messages.
        rows: at least one.
        name: of the field: text, or a number of units since 1970.
        unit_us: of such a number, in microseconds.

    Raises:
        InputError: a row has none.
    """
    column = rows.column(name) if isinstance(rows, Rows) else None
    if column is not None and pa.types.is_integer(column.type):
        times = numbers_of(column)
        low, high = int(times.min()) * unit_us, int(times.max()) * unit_us
        if MIN_TIMESTAMP_US <= low and high <= MAX_TIMESTAMP_US:
            return IntColumn(times * unit_us)
    if column is not None and pa.types.is_string(column.type) and len(rows) > 1:
        return to_timestamps_us(column.to_pylist())
    return event_times_us(path, lambda row: _instant(getattr(row, name), unit_us), rows)


def _instant(value: Any, unit_us: int) -> TimestampLike:
    """The instant of a text, or so many units after 1970."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value * unit_us / US_PER_SECOND
    return _EPOCH + timedelta(microseconds=value * unit_us)


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
