"""Windows that overlap are merged alike: by key, all at once, as they arrive, in their order, and as columns."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import ListCombineFn
from dataflow.graph import MAIN, Group, TransformNode
from runners.core.partials.folding import Accumulation
from runners.core.partials.merging import PartialMerging
from triggers.windowing_strategy import WindowingStrategy
from windowing import column_merging, column_order, merging
from windowing.column_merging import begins_chain
from windowing.column_order import NUMBER_MAX, by_key_and_start
from windowing.merging import (
    chains,
    chains_in_order,
    joined_chains,
    merge_arrival,
    merge_overlapping,
    reaching_into_others,
)
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

WINDOWS = st.lists(
    st.builds(
        lambda start_us, size_us: df.Window(start_us, start_us + size_us),
        st.integers(0, 20),
        st.integers(1, 8),
    )
)

#: Windows that only touch, and one that reaches over several.
TOUCHING = [df.Window(0, 1), df.Window(1, 2)]
COVERED = [df.Window(0, 9), df.Window(1, 2), df.Window(4, 5)]


def spanned(windows: Sequence[df.Window]) -> list[df.Window]:
    """What remains of windows by definition: the bounds of each run of instants that are covered."""
    found: list[df.Window] = []
    inside = {(at, at + 1) for window in windows for at in range(window.start_us, window.end_us)}
    # Windows that only touch cover instants that follow each other, and nothing covers the step between them.
    steps = {at for window in windows for at in range(window.start_us + 1, window.end_us)}
    for start_us, end_us in sorted(inside):
        if found and start_us in steps:
            found[-1] = df.Window(found[-1].start_us, end_us)
        else:
            found.append(df.Window(start_us, end_us))
    return found


def remaining(windows: Sequence[df.Window], merges: Sequence[df.Merge]) -> list[df.Window]:
    gone = {source for merge in merges for source in merge.sources}
    return sorted(
        {*windows, *(merge.merged for merge in merges)} - gone | {m.merged for m in merges}
    )


@given(WINDOWS)
@example(TOUCHING)
@example(COVERED)
def test_all_at_once(windows: list[df.Window]) -> None:
    assert remaining(windows, merge_overlapping(windows)) == spanned(windows)


@given(WINDOWS)
@example(TOUCHING)
@example(COVERED)
def test_as_they_arrive(windows: list[df.Window]) -> None:
    found: list[df.Window] = []
    for window in windows:
        found = remaining([*found, window], merge_arrival(found, window))

    assert found == spanned(windows)


@given(WINDOWS, WINDOWS)
@example(TOUCHING, COVERED)
def test_by_key(windows: list[df.Window], others: list[df.Window]) -> None:
    keys = ["a"] * len(windows) + ["b"] * len(others)
    found = list(chains(keys, [*windows, *others], [*windows, *others]))

    for key, given_windows in (("a", windows), ("b", others)):
        mine = [(window, items) for owner, window, items in found if owner == key]
        assert sorted(window for window, _ in mine) == spanned(given_windows)
        assert sorted(item for _, items in mine for item in items) == sorted(given_windows)


@given(WINDOWS.filter(bool), st.data())
@example(TOUCHING, None)
@example(COVERED, None)
def test_many_are_sorted_as_arrays_to_the_same_chains(
    windows: list[df.Window], data: st.DataObject | None
) -> None:
    """With the items of each in the same order."""
    size = len(windows)
    drawn = st.lists(st.sampled_from(["a", ("b", 1), 2]), min_size=size, max_size=size)
    keys = ["a"] * size if data is None else data.draw(drawn)
    one_by_one = list(chains(keys, windows, range(size)))

    with patch.object(merging, "_ARRAYS_MIN", 1):
        as_arrays = list(chains(keys, windows, range(size)))

    assert sorted(as_arrays, key=repr) == sorted(one_by_one, key=repr)
    assert all(type(bound) is int for _, window, _ in as_arrays for bound in window)
    of_each = [[chain for chain in as_arrays if chain[0] == key] for key in set(keys)]
    assert all([each[1] for each in some] == sorted(each[1] for each in some) for some in of_each)


@given(WINDOWS, st.data(), st.sampled_from([1, 512]), st.booleans())
def test_what_is_alone_in_its_chain_stays_and_the_rest_is_joined(
    windows: list[df.Window], data: st.DataObject, arrays_min: int, has_room: bool
) -> None:
    """Each chain is one item, whether its key and bounds have room in one number or not."""
    size = len(windows)
    keys = data.draw(st.lists(st.sampled_from(["a", ("b", 1), 2]), min_size=size, max_size=size))
    joins: list[tuple[Any, df.Window]] = []

    def join(key: Any, window: df.Window, items: Sequence[list[int]]) -> list[int]:
        joins.append((key, window))
        assert len(items) > 1
        return [each for some in items for each in some]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(merging, "_ARRAYS_MIN", arrays_min)
        for module in (column_merging, column_order):
            monkeypatch.setattr(module, "NUMBER_MAX", NUMBER_MAX if has_room else 0)
        joined = joined_chains(keys, windows, [[index] for index in range(size)], join)

    expected = list(chains(keys, windows, range(size)))
    assert sorted(joined) == sorted(items for _, _, items in expected)
    several = [(key, window) for key, window, items in expected if len(items) > 1]
    assert sorted(joins, key=repr) == sorted(several, key=repr)


#: At both ends of time, and moments of which all are multiples of something, or all but one.
STARTS = st.sampled_from([MIN_TIMESTAMP_US, -7, 0, 7, 14, 15, 7_000_000, MAX_TIMESTAMP_US - 1])


@given(
    rows=st.lists(st.tuples(st.sampled_from([0, 1, 2**16, 2**31]), STARTS), min_size=1),
    sample=st.sampled_from([2, 64]),
)
@example(rows=[(0, 0), (0, 14), (1, 7), (0, 15)], sample=2)
@example(rows=[(2**31, MAX_TIMESTAMP_US - 1), (0, MIN_TIMESTAMP_US), (0, 0)], sample=64)
def test_the_order_is_that_of_keys_and_starts_and_stable(
    rows: list[tuple[int, int]], sample: int
) -> None:
    keys, starts_us = np.array(rows, np.int64).T

    with patch.object(column_order, "_STEP_SAMPLE", sample):
        order = by_key_and_start(keys, starts_us)

    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@given(WINDOWS)
@example(TOUCHING)
@example(COVERED)
def test_one_after_the_other_they_are_what_they_are_all_at_once(windows: list[df.Window]) -> None:
    """Also in the order of the items, of which a sorted stream keeps those of one chain."""
    numbered = list(enumerate(windows))
    ordered = sorted(numbered, key=lambda each: each[1].start_us)
    together = chains(["a"] * len(windows), windows, numbered)

    in_order = chains_in_order(((window, [(n, window)]) for n, window in ordered), operator.add)

    assert list(in_order) == [(window, items) for _, window, items in together]


def test_of_a_sorted_stream_one_chain_is_read_at_a_time() -> None:
    """A chain is there as soon as a window is read that does not belong to it."""
    read: list[df.Window] = []

    def items() -> Iterator[tuple[df.Window, int]]:
        for window in [*COVERED, df.Window(9, 10), df.Window(9, 11)]:
            read.append(window)
            yield window, 1

    found = chains_in_order(items(), operator.add)

    assert next(found) == (df.Window(0, 9), 3)
    assert read == [*COVERED, df.Window(9, 10)]
    assert list(found) == [(df.Window(9, 11), 2)]


@given(WINDOWS)
@example(TOUCHING)
@example(COVERED)
def test_in_their_order(windows: list[df.Window]) -> None:
    fn: Any = ListCombineFn()
    node = TransformNode(
        label="group", location="job.py:1", operation=Group(fn), inputs=(0,), outputs={MAIN: 1}
    )
    accumulation = Accumulation(fn, WindowingStrategy(window_fn=df.Sessions(1)))
    merging = PartialMerging(node, accumulation)
    partials = [("a", window, [window], 1) for window in windows]
    assert merging.order is not None

    joined = list(merging.joined(sorted(partials, key=merging.order), lambda a, b: [*a, *b]))
    combined = merging.combined(partials)

    for found in (joined, combined):
        assert sorted(window for _, window, _, _ in found) == spanned(windows)
        assert sorted(each for _, _, items, _ in found for each in items) == sorted(windows)


@given(WINDOWS, WINDOWS, st.booleans())
@example(TOUCHING, COVERED, True)
@example(COVERED, COVERED, False)
def test_as_columns(windows: list[df.Window], others: list[df.Window], has_room: bool) -> None:
    ordered = [(0, *window) for window in sorted(windows)]
    ordered += [(1, *window) for window in sorted(others)]
    columns = np.array(ordered, np.int64).reshape(-1, 3).T

    with patch.object(column_merging, "NUMBER_MAX", NUMBER_MAX if has_room else 0):
        is_new = begins_chain(*columns, is_one_size=False)

    found: list[list[tuple[int, ...]]] = []
    for begins, each in zip(is_new, ordered, strict=True):
        found += [[]] if begins else []
        found[-1].append(each)
    spans = [
        (chain[0][0], df.Window(chain[0][1], max(end_us for _, _, end_us in chain)))
        for chain in found
    ]
    assert spans == [
        *((0, window) for window in spanned(windows)),
        *((1, window) for window in spanned(others)),
    ]
    sizes = {end_us - start_us for _, start_us, end_us in ordered}
    if len(sizes) == 1:
        assert (begins_chain(*columns, is_one_size=True) == is_new).all()


@given(st.lists(WINDOWS.filter(bool), min_size=1, max_size=4))
@example([[df.Window(0, 3)], [df.Window(3, 5)], [df.Window(2, 3)]])
@example([TOUCHING, [df.Window(2, 3)]])
def test_what_does_not_reach_into_another_part_overlaps_none_of_its_windows(
    parts: list[list[df.Window]],
) -> None:
    """And what does overlaps the time that the other part spans."""
    found = reaching_into_others(parts)

    for number, (windows, are_reaching) in enumerate(zip(parts, found, strict=True)):
        others = parts[:number] + parts[number + 1 :]
        for window, is_reaching in zip(windows, are_reaching, strict=True):
            spans = [(min(w.start_us for w in p), max(w.end_us for w in p)) for p in others]
            assert is_reaching == any(
                window.start_us < to_us and from_us < window.end_us for from_us, to_us in spans
            )
