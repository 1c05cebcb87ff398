"""Columns of integers are read back as they were, in however few bytes they were stored."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.columns import packed, unpacked
from runners.stored import narrow
from runners.stored.narrow import narrowed, widened
from windowing import column_order

LOW, HIGH = -(1 << 63), (1 << 63) - 1
#: Offsets on both sides of each size that a column can have.
EDGES = [(1 << bits) + more for bits in (8, 16, 32, 62) for more in (-2, -1, 0, 1)]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "NARROW_ROWS_MIN", 1)
    monkeypatch.setattr(column_order, "_STEP_SAMPLE", 2)


def round_trip(*columns: pa.Array) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The columns, and what is read of them when they have been stored."""
    batch = pa.RecordBatch.from_arrays(list(columns), names=[str(n) for n in range(len(columns))])
    stored, scales = narrowed(batch)
    return batch, widened(unpacked(packed(stored)), scales)


@st.composite
def numbers(draw: st.DrawFn) -> list[int]:
    """Integers that are close together, or multiples of something, or anything."""
    low = draw(st.sampled_from([LOW, -7, 0, 1, 1_700_000_000_000_000]))
    step = draw(st.sampled_from([1, 2, 60_000_000]))
    offsets = draw(st.lists(st.sampled_from([0, 1, 3, *EDGES]), min_size=1, max_size=6))
    return [min(low + step * each, HIGH) for each in offsets]


@given(column=numbers(), before=st.integers(0, 2))
@example(column=[LOW, HIGH], before=0)
@example(column=[LOW, LOW + 3 * (1 << 62) - 1], before=0)
@example(column=[LOW, -1], before=0)
@example(column=[LOW, 0], before=1)
@example(column=[0, 0, 1, 1 << 20], before=0)
@example(column=[0, 60_000_000, 60_000_001], before=0)
@example(column=[5, 5 + 255], before=0)
@example(column=[5, 5 + 256], before=0)
@example(column=[5, 5 + 65_535], before=1)
@example(column=[5, 5 + 65_536], before=0)
@example(column=[5, 5 + (1 << 32) - 1], before=0)
@example(column=[5, 5 + (1 << 32)], before=0)
def test_integers_are_read_back(column: list[int], before: int) -> None:
    """Also where they are a part of a longer array."""
    batch, found = round_trip(pa.array([0] * before + column, pa.int64())[before:])

    assert column == found.column(0).to_pylist()
    assert batch.schema == found.schema


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None], pa.int64()),
        pa.array([1.5, 2.5]),
        pa.array([True, False]),
        pa.array(["a", "b"]),
        pa.array([1, 2], pa.uint8()),
        pa.array([1, 2], pa.int32()),
    ],
    ids=lambda column: str(column.type),
)
def test_all_else_is_left_as_it_is(column: pa.Array) -> None:
    batch, found = round_trip(column, pa.array([1, 2], pa.int64()))

    assert batch.equals(found)


@pytest.mark.parametrize(
    ("column", "size"),
    [
        ([LOW, LOW + 255], 1),
        ([7, 7 + 256], 2),
        ([7, 8, 7 + 65_536], 4),
        ([7, 7 + 60_000_000 * 255], 1),
        ([7, 7 + 60_000_000, 7 + 60_000_000 * 256], 2),
        ([7, 8, 7 + (1 << 32)], 8),
    ],
)
def test_so_many_bytes_are_stored_of_each(column: list[int], size: int) -> None:
    stored: Any = narrowed(pa.record_batch([pa.array(column, pa.int64())], names=["0"]))[0]

    assert size == stored.column(0).type.bit_width // 8


def test_few_rows_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "NARROW_ROWS_MIN", 3)
    batch = pa.record_batch([pa.array([1, 2])], names=["0"])

    assert narrowed(batch) == (batch, None)
