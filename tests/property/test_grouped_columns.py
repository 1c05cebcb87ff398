"""The groups of rows of columns are those that Python finds, row by row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.columns import WindowColumn
from runners.core.columns.partials import grouped
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Close together and far apart: the codes of several columns are multiplied, and sorted by digits of 16 bits.
INTS = st.sampled_from([0, 1, 2, 1 << 16, (1 << 31) + 1, (1 << 32) - 1, 1 << 40, -(1 << 63)])
STARTS = st.sampled_from([0, 1, 2, 1 << 16, 1 << 33, MIN_TIMESTAMP_US, MAX_TIMESTAMP_US - 4])
TYPES = {
    int: (pa.int64(), INTS),
    bool: (pa.bool_(), st.booleans()),
    str: (pa.string(), st.text("ab")),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[type], list[tuple[tuple[Any, ...], int, int]]]:
    """The types of the key columns, and rows (key, start, length)."""
    types = draw(st.lists(st.sampled_from([int, int, bool, str]), min_size=1, max_size=3))
    key = st.tuples(*(TYPES[each][1] for each in types))
    lengths = draw(st.sampled_from([st.just(3), st.integers(1, 3)]))
    return types, draw(st.lists(st.tuples(key, STARTS, lengths), min_size=1, max_size=16))


def check(types: Sequence[type], rows: Sequence[tuple[tuple[Any, ...], int, int]]) -> None:
    """Check that each group has all rows with a key and window, in their order, and a key its windows in theirs."""
    keys = [
        pa.array([key[index] for key, _, _ in rows], TYPES[each][0])
        for index, each in enumerate(types)
    ]
    starts_us = np.array([start_us for _, start_us, _ in rows], np.int64)
    lengths_us = np.array([length_us for _, _, length_us in rows], np.int64)
    size_us = int(lengths_us[0]) if len(set(lengths_us)) == 1 else None
    windows = WindowColumn(starts_us, starts_us + lengths_us, size_us)
    groups = grouped(keys, windows, is_merging=False)
    assert groups is not None
    expected: dict[tuple[Any, ...], list[int]] = {}
    for index, row in enumerate(rows):
        expected.setdefault(row, []).append(index)
    found = [part.tolist() for part in np.split(groups.order, groups.bounds[1:])]

    assert sorted(found) == sorted(expected.values())
    windows_of: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for part in found:
        key, start_us, length_us = rows[part[0]]
        windows_of.setdefault(key, []).append((start_us, length_us))
    assert all(each == sorted(each) for each in windows_of.values())


@given(drawn=columns())
@example(drawn=([int], [((0,), 0, 1), ((0,), 0, 2), ((0,), 0, 1)]))
@example(drawn=([int, int], [((0, 1), 0, 3), ((1, 0), 0, 3)]))
# The product of what the codes of these columns can be is more than a number of 64 bits.
@example(
    drawn=(
        [int, int, int],
        [((first, each, each), 0, 3) for first in (0, 1, 0, 1) for each in (0, (1 << 32) - 1)],
    )
)
# And so is that of a key's code and the time between the first window and the last.
@example(
    drawn=(
        [int],
        [
            ((1 << 28,), MAX_TIMESTAMP_US - 4, 3),
            ((1 << 28,), 1 << 16, 3),
            ((0,), MIN_TIMESTAMP_US, 3),
        ],
    )
)
@example(drawn=([int], [((each,), 0, 3) for each in (1 << 16, 0, 1, (1 << 16) + 1, 1)]))
def test_rows_of_a_key_and_window_are_a_group(
    drawn: tuple[list[type], list[tuple[tuple[Any, ...], int, int]]],
) -> None:
    check(*drawn)
