"""Whatever is kept of a key range goes into entries that the store takes, and comes back from them as it was."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combiner_columns import SumColumns
from runners.core.columns.partials import PartialColumns
from runners.core.stages.entries import Changes, Noted, Released, Whole
from runners.millwheel.worker.state.entry_pieces import EntryPieces
from runners.stored.journal import decode_entry, encode_changes, encode_released
from runners.stored.partials import encode_partials
from tests.property.test_single_firing import columns_of
from tests.property.test_stored_format import CELLS, MAYBE, WINDOWS, spelled
from windowing.time_domain import TimeDomain

WHERE = "transform 'sum' (main.py:7)"
#: None equals one of another type: of those the first would be all of them, in each entry.
KEYS = st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.text(max_size=3), st.dates()))
CELL_IDS = st.tuples(KEYS, st.one_of(st.none(), WINDOWS))
CHANGES = st.lists(st.tuples(CELL_IDS, st.one_of(st.none(), CELLS)), max_size=8)
#: Many timers beside few cells, and the other way round.
TIMERS = st.lists(
    st.tuples(st.tuples(CELL_IDS, WINDOWS, st.sampled_from(TimeDomain)), MAYBE), max_size=20
)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=40
)
#: How much larger than its largest part an entry may be: not at all, or so that some parts or all fit into one.
MORE = st.integers(0, 1_500)
COMBINERS = (SumColumns(),)


def read(blobs: Iterable[bytes]) -> list[Any]:
    return [decode_entry(each, COMBINERS) for each in blobs]


def rows_of(contents: Iterable[Any]) -> list[Any]:
    parts = [
        part
        for content in contents
        for part in (content.parts if isinstance(content, Whole) else [content])
    ]
    return [row for part in parts for row in part]


def largest_row(parts: Sequence[PartialColumns], encode: Callable[[Any], bytes]) -> int:
    """The bytes of the largest row by itself; a slice, as a piece is, which can have more than a copy."""
    return max(len(encode(part[at : at + 1])) for part in parts for at in range(len(part)))


@given(cells=CHANGES, timers=TIMERS, more=MORE)
def test_changes_of_cells_and_timers(
    cells: list[Any], timers: list[tuple[Any, int | None]], more: int
) -> None:
    """However many timers change beside a few cells; each changes once."""
    alone = [len(encode_changes([each], [])) for each in cells]
    alone += [len(encode_changes([], [each])) for each in timers]
    bytes_max = max(alone, default=0) + more

    pieces = EntryPieces(WHERE, bytes_max).changes(cells, timers)

    found = read(payload for _, payload, _ in pieces)
    assert all(len(payload) <= bytes_max for _, payload, _ in pieces)
    assert all(isinstance(each, Changes) for each in found)
    assert spelled([cell for each in found for cell in each.cells]) == spelled(cells)
    assert spelled([timer for each in found for timer in each.timers]) == spelled(timers)
    assert [len(piece) for piece, _, _ in pieces] == [len(each.cells) for each in found]
    if alone and bytes_max > min(alone):
        with pytest.raises(df.TransformError, match=r"'sum' .* cannot keep the state of key"):
            EntryPieces(WHERE, max(alone) - 1).changes(cells, timers)


@given(windows=st.lists(WINDOWS, min_size=1, max_size=30), more=MORE)
def test_windows_that_go_to_cells(windows: list[Any], more: int) -> None:
    bytes_max = max(len(encode_released(Released([each]))) for each in windows) + more

    pieces = EntryPieces(WHERE, bytes_max).noted(Noted("range", Released(windows)))

    found = read(payload for _, payload in pieces)
    assert all(len(payload) <= bytes_max for _, payload in pieces)
    assert spelled([window for each in found for window in each.windows]) == spelled(windows)
    assert all(size == 0 for size, _ in pieces)


@given(rows=ROWS, more=MORE)
def test_columns_that_are_added(rows: list[tuple[int, int, int]], more: int) -> None:
    """Where they are only a part of what was received, and so are encoded anew."""
    added = columns_of(rows)
    bytes_max = largest_row([added], encode_partials) + more

    pieces = EntryPieces(WHERE, bytes_max).noted(Noted("range", added))

    found = read(payload for _, payload in pieces)
    assert all(len(payload) <= bytes_max for _, payload in pieces)
    assert rows_of(found) == list(added)
    assert [size for size, _ in pieces] == list(map(len, found))
    assert EntryPieces(WHERE, 1).noted(Noted("range", added, b"as it came")) == [
        (len(added), b"as it came")
    ]
    with pytest.raises(df.TransformError, match=r"'sum' .* cannot keep the state of key"):
        EntryPieces(WHERE, bytes_max - more - 1).noted(Noted("range", added))


@given(several=st.lists(ROWS, min_size=1, max_size=3), more=MORE)
def test_all_columns_of_a_range(several: list[list[tuple[int, int, int]]], more: int) -> None:
    """The first entry is in place of all before it, which is not to make it too large; and no other one is."""
    parts = list(map(columns_of, several))
    bytes_max = largest_row(parts, encode_partials) + more

    pieces = list(EntryPieces(WHERE, bytes_max).whole(parts))

    found = read(payload for _, payload in pieces)
    assert all(len(payload) <= bytes_max for _, payload in pieces)
    assert [isinstance(each, Whole) for each in found] == [True] + [False] * (len(found) - 1)
    assert rows_of(found) == [row for part in parts for row in part]
    assert sum(size for size, _ in pieces) == sum(map(len, parts))


def test_an_entry_may_be_exactly_as_large_as_the_store_takes() -> None:
    """And one byte less makes two of it."""
    part = columns_of([(key, 0, 1) for key in range(40)])

    def sizes(bytes_max: int) -> list[int]:
        return [size for size, _ in EntryPieces(WHERE, bytes_max).noted(Noted("range", part))]

    assert sizes(len(encode_partials(part))) == [40]
    assert sizes(len(encode_partials(part)) - 1) == [20, 20]
