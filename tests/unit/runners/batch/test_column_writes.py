"""Columns of result rows: kept between commits, packed for the wire, the same as rows."""

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.columns import ARROW_TYPES, Rows, column_values
from dataflow.table import TableSpec, TableWrite
from runners.batch.range_writer import _TableBuffer
from runners.core.tables.columns import TableColumns
from runners.millwheel.store.postgres.arrays import (
    BoolArray,
    ByteaArray,
    Float8Array,
    Int8Array,
    PackedArray,
    TextArray,
    TimestamptzArray,
    packed_rows,
)
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

TABLE = TableSpec(name="t", columns={"key": int, "value": int}, key=("key",))
PLAIN = TableSpec(name="t", columns={"key": int, "value": int})
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers()), min_size=1, max_size=4).map(
    lambda pairs: [(key, value % 100) for key, value in pairs]
)


def columns(table: TableSpec, pairs: list[tuple[int, int]]) -> TableColumns:
    arrays = [pa.array(each) for each in zip(*pairs, strict=True)]
    found = TableColumns.of(table, Rows.of(None, ["key", "value"], arrays))
    assert found is not None
    return found


@given(parts=st.lists(st.tuples(PAIRS, st.booleans()), min_size=1))
def test_the_last_word_for_a_key_counts_however_it_came(parts: list[tuple[Any, bool]]) -> None:
    buffer, wanted = _TableBuffer(TABLE), {}
    for pairs, is_column in parts:
        last = dict(pairs)
        if is_column:
            buffer.add(TableWrite(table=TABLE, upserts=columns(TABLE, pairs)))
        else:
            buffer.add(TableWrite(table=TABLE, upserts=list(last.items())))
        wanted.update(last)

    write = buffer.table_write()

    assert dict(write.upserts) == wanted
    assert len(write.upserts) <= buffer.size


TEXTS = TableSpec(name="t", columns={"text": str, "at": datetime}, key=("text",))


@pytest.mark.parametrize(
    ("text", "at_us", "is_certain"),
    [
        ("a", 0, True),
        ("a" * 200, MIN_TIMESTAMP_US, True),
        ("a", MAX_TIMESTAMP_US, True),
        ("a" * 201, 0, False),
        ("a\0", 0, False),
        ("a", MIN_TIMESTAMP_US - 1, False),
        ("a", MAX_TIMESTAMP_US + 1, False),
    ],
)
def test_columns_are_taken_where_they_fit_for_certain(
    text: str, at_us: int, is_certain: bool
) -> None:
    """What may not fit is looked at as rows, and refused in words."""
    at = pa.array([0, at_us]).cast(ARROW_TYPES[datetime])
    rows = Rows.of(None, ["text", "at"], [pa.array(["b", text]), at])

    assert (TableColumns.of(TEXTS, rows) is not None) == is_certain


@given(parts=st.lists(st.tuples(PAIRS, st.booleans()), min_size=1))
def test_every_insert_is_kept(parts: list[tuple[Any, bool]]) -> None:
    buffer = _TableBuffer(PLAIN)
    for pairs, is_column in parts:
        rows = columns(PLAIN, pairs) if is_column else pairs
        buffer.add(TableWrite(table=PLAIN, inserts=rows))

    assert list(buffer.table_write().inserts) == [pair for pairs, _ in parts for pair in pairs]


KINDS: list[tuple[type[PackedArray], type, st.SearchStrategy[Any]]] = [
    (Int8Array, int, st.integers(-(2**63), 2**63 - 1)),
    (Float8Array, float, st.floats(allow_nan=False)),
    (BoolArray, bool, st.booleans()),
    (TextArray, str, st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
    (TimestamptzArray, datetime, st.datetimes(timezones=st.just(UTC))),
]


@given(data=st.data())
def test_a_column_is_packed_as_its_values_are(data: st.DataObject) -> None:
    packed, kind, values = data.draw(st.sampled_from(KINDS))
    listed = data.draw(st.lists(values | st.none() if data.draw(st.booleans()) else values))
    column = pa.array(listed, ARROW_TYPES[kind])

    assert packed.of_column(column) == packed.of(listed)
    assert column_values(column) == listed


@given(data=st.data())
def test_rows_for_copy_are_the_rows_however_they_came(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    has_nulls = data.draw(st.booleans())
    row = st.tuples(*[values | st.none() if has_nulls else values for _, _, values in chosen])
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    listed = list(zip(*rows, strict=True))
    arrays = [
        pa.array(each, ARROW_TYPES[kind]) for (_, kind, _), each in zip(chosen, listed, strict=True)
    ]
    if len(rows) > 1:
        # Part of an array, which begins in the middle of its memory.
        arrays = [pa.concat_arrays([each[:1], each]).slice(1) for each in arrays]
    kinds = [packed for packed, _, _ in chosen]

    packed = packed_rows(kinds, listed)

    assert packed == packed_rows(kinds, arrays)
    assert unpacked(packed, len(kinds)) == [
        [
            None if value is None else kind.pack((value,))[4:]
            for kind, value in zip(kinds, row, strict=True)
        ]
        for row in rows
    ]


def unpacked(packed: bytes, columns: int) -> list[list[bytes | None]]:
    """The values of each column, read by what the documentation of COPY says about the format."""
    assert packed.startswith(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    at, rows = 19, []
    while (count := struct.unpack_from("!h", packed, at)[0]) >= 0:
        assert count == columns
        at, row = at + 2, list[bytes | None]()
        for _ in range(count):
            size = struct.unpack_from("!i", packed, at)[0]
            at += 4
            row.append(None if size < 0 else packed[at : at + size])
            at += max(0, size)
        rows.append(row)
    assert at + 2 == len(packed)
    return rows


def test_copy_of_bytes() -> None:
    assert unpacked(packed_rows([ByteaArray], [[b"", None, b"\0\xff"]]), 1) == [
        [b""],
        [None],
        [b"\0\xff"],
    ]
