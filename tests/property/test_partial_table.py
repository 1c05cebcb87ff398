"""PartialTable: many bundles in one table come to what they come to one by one, and it knows how large it is."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import WindowColumn
from dataflow.combine_fn import CombineFn, ListCombineFn, as_combine_fn
from dataflow.graph import MAIN, Group, TransformNode
from runners.core.ground.bundle import Bundle
from runners.core.partials import occurrences
from runners.core.partials import table as partial_table
from runners.core.partials.folding import Accumulation
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from runners.core.partials.table import PartialTable
from tests.oracle.evaluator import Windowing
from tests.oracle.laws import window_fn
from tests.strategies import KEYS, TIMES_US, windowings
from triggers.windowing_strategy import WindowingStrategy
from windowing import merging
from windowing.window import GLOBAL_WINDOW, Window

Row = tuple[str, int, int]
BUNDLES = st.lists(
    st.lists(st.tuples(KEYS, TIMES_US, st.integers(-5, 5)), min_size=1, max_size=8), max_size=8
)


def lifter_of(combine_fn: CombineFn, strategy: WindowingStrategy) -> Lifter:
    node = TransformNode(
        label="sum",
        location="here.py:1",
        operation=Group(combine_fn),
        inputs=(0,),
        outputs={MAIN: 1},
    )
    return Lifter(node, Accumulation(combine_fn, strategy))


def lifted(
    lifter: Lifter, strategy: WindowingStrategy, rows: Sequence[Row], *, in_arrays: bool = False
) -> Sequence[Partial]:
    times_us = [time_us for _, time_us, _ in rows]
    assigned = strategy.window_fn.assign_bundle(times_us, rows)
    homes = [
        (row, window) for row, windows in zip(rows, assigned, strict=True) for window in windows
    ]
    windows: Sequence[Window] = [window for _, window in homes]
    if in_arrays:
        starts_us, ends_us = np.array(windows, np.int64).reshape(-1, 2).T
        windows = WindowColumn(starts_us, ends_us)
    bundle = Bundle(
        [(key, value) for (key, _, value), _ in homes],
        [time_us for (_, time_us, _), _ in homes],
        windows,
    )
    return lifter.lift(bundle, watermark_us=-1)


def by_place(partials: Sequence[Partial]) -> dict[Any, Any]:
    assert len({partial[:2] for partial in partials}) == len(partials)
    return {partial[:2]: (sorted(partial[2]), partial[3]) for partial in partials}


@given(
    windowing=windowings(),
    bundles=BUNDLES,
    waiting_max=st.sampled_from([1, 5, 1_000]),
    folded=st.sets(st.integers(0, 7)),
    in_arrays=st.sets(st.integers(0, 7)) | st.just(set(range(8))),
    arrays_min=st.sampled_from([1, 512]),
)
@example(
    windowing=Windowing("sessions", 8, 0, 0),
    bundles=[[("a", 1, 1)], [("b", 2, 2)]],
    waiting_max=1_000,
    folded=set(),
    in_arrays={1},
    arrays_min=1,
)
def test_many_bundles_are_one_table(
    windowing: Any,
    bundles: list[list[Row]],
    waiting_max: int,
    folded: set[int],
    in_arrays: set[int],
    arrays_min: int,
) -> None:
    """However often it folds, and whether bundles come folded or not, and their windows as arrays or not."""
    strategy = WindowingStrategy(window_fn=window_fn(windowing))
    lifter = lifter_of(ListCombineFn(), strategy)
    everything = [row for rows in bundles for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_table, "WAITING_MAX", waiting_max)
        patch.setattr(merging, "_ARRAYS_MIN", arrays_min)
        table = PartialTable(lifter)
        for index, rows in enumerate(bundles):
            partials = lifted(lifter, strategy, rows, in_arrays=index in in_arrays)
            table.add(list(partials) if index in folded else partials)
        records = table.records
        taken = table.take()

    expected = list(lifted(lifter, strategy, everything)) if everything else []
    assert by_place(expected) == by_place(taken)
    assert records == sum(partial[3] for partial in expected)
    assert (table.records, table.size, table.take()) == (0, 0, [])


@given(bundles=BUNDLES)
def test_values_of_a_key_stay_in_their_order(bundles: list[list[Row]]) -> None:
    table = PartialTable(lifter_of(ListCombineFn(), WindowingStrategy()))
    expected: dict[str, list[int]] = defaultdict(list)
    for rows in bundles:
        bundle = Bundle([(key, value) for key, _, value in rows], [0] * len(rows))
        table.add(lifter_of(ListCombineFn(), WindowingStrategy()).lift(bundle, watermark_us=-1))
        for key, _, value in rows:
            expected[key].append(value)

    assert {key: values for key, _, values, _ in table.take()} == expected


class RowCount(df.CountCombineFn):
    """Folds its inputs, as a subclass that may have changed how."""


class RowSum(df.SumCombineFn):
    """Likewise."""


@df.associative
def row_sum(values: list[Any]) -> Any:
    return sum(values)


@pytest.mark.parametrize(
    ("counting", "folding"),
    [
        (df.CountCombineFn(), RowCount()),
        (df.SumCombineFn(), RowSum()),
        (as_combine_fn(sum), as_combine_fn(row_sum)),
    ],
)
@given(
    bundles=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "a", "b", "\ud800", "", 1, True, 1.0, None, (1, "a"), b"a"]),
                st.just(1) | st.sampled_from([1, True, 1.0, 2, -1]),
            ),
            min_size=1,
            max_size=6,
        )
        | st.lists(st.tuples(KEYS, st.just(1)), min_size=1),
        max_size=8,
    ),
    taken_at=st.integers(0, 7),
    waiting_max_bytes=st.sampled_from([1, 40, occurrences.WAITING_MAX_BYTES]),
)
def test_counting_occurrences_comes_to_the_same(
    counting: CombineFn,
    folding: CombineFn,
    bundles: list[list[tuple[Any, Any]]],
    taken_at: int,
    waiting_max_bytes: int,
) -> None:
    """In value and type, whatever else the keys and inputs are; and so do digests, which count records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "WAITING_MAX_BYTES", waiting_max_bytes)
        found = [_taken(each, bundles, taken_at) for each in (counting, folding)]
    assert found[0] == found[1]


def _taken(
    combine_fn: CombineFn, bundles: list[list[tuple[Any, Any]]], taken_at: int
) -> list[tuple[dict[str, str], dict[str, int], int]]:
    """Results, counts and number of records of a table that is taken in between, and at the end."""
    lifter = lifter_of(combine_fn, WindowingStrategy())
    table, found = PartialTable(lifter), []
    for index, pairs in enumerate([*bundles, []]):
        if index == min(taken_at, len(bundles)) or index == len(bundles):
            digested, size = Counter[str](), table.size
            for key, window, count in table.counted():
                digested[repr((key, window))] += count
            # Or a task that is repeated, and commits at other moments, would send something else.
            assert table.size == size
            records, partials = table.records, table.take()
            results = {
                repr(each[:2]): repr(combine_fn.extract_output(each[2])) for each in partials
            }
            counts = {repr(each[:2]): each[3] for each in partials}
            assert len(counts) == len(partials)
            assert counts == digested
            assert (table.size, table.records) == (0, 0)
            found.append((results, counts, records))
        if pairs:
            table.add(lifter.lift(Bundle(pairs, [0] * len(pairs)), watermark_us=-1))
    return found


def test_words_are_counted_without_a_value_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the law above would hold because all of them are folded, which shows in no size."""
    monkeypatch.setattr(occurrences, "WAITING_MAX_BYTES", 1)
    lifter = lifter_of(df.SumCombineFn(), WindowingStrategy())
    table = PartialTable(lifter)
    pairs = [("a", 1), ("b", 1), ("a", 1)]
    table.add(lifter.lift(Bundle(pairs, [0] * 3), watermark_us=-1))
    assert table.size == 2


@given(bundles=BUNDLES)
def test_a_sum_is_folded_once_for_each_key(bundles: list[list[Row]]) -> None:
    lifter = lifter_of(df.SumCombineFn(), WindowingStrategy())
    table = PartialTable(lifter)
    totals, counts = Counter[str](), Counter[str]()
    for rows in bundles:
        # None of them is 1, which would be counted.
        bundle = Bundle([(key, 2 * value) for key, _, value in rows], [0] * len(rows))
        table.add(lifter.lift(bundle, watermark_us=-1))
        for key, _, value in rows:
            totals[key] += 2 * value
            counts[key] += 1
    table.fold()

    assert table.size == len(counts)
    assert table.take() == [(key, GLOBAL_WINDOW, totals[key], counts[key]) for key in counts]


@pytest.mark.parametrize(("value", "waiting"), [(1, 99), ((1, 2.5), 99), ("text", 4), ({}, 4)])
def test_few_records_of_unknown_size_wait(
    value: Any, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is a number is not large; of anything else a twentieth is kept as it came."""
    monkeypatch.setattr(partial_table, "WAITING_MAX", 100)
    lifter = lifter_of(ListCombineFn(), WindowingStrategy())
    table, folded = PartialTable(lifter), []
    for index in range(200):
        table.add(lifter.lift(Bundle([(index, value)], [0]), watermark_us=-1))
        folded.append(table.size)

    assert folded[:waiting] == [0] * waiting
    assert folded[waiting] == waiting + 1


@pytest.mark.parametrize(
    ("accumulators", "are"),
    [
        ([], True),
        ([1, 2.5, True], True),
        ([(1, 2), [3]], True),
        ([([4], 2), 0], True),
        ([list(range(8))], True),
        ([list(range(9))], False),
        ([(1, list(range(9)))], False),
        (["text"], False),
        ([1, "text"], False),
        ([(1, "text")], False),
        ([{1, 2}], False),
        ([None], False),
    ],
)
def test_whether_accumulators_grow_can_be_seen(accumulators: list[Any], are: bool) -> None:
    table = PartialTable(lifter_of(as_combine_fn(sum), WindowingStrategy()))
    table.add([(index, GLOBAL_WINDOW, each, 1) for index, each in enumerate(accumulators)])

    assert table.is_of_numbers() is are


def test_what_cannot_be_folded_is_named_when_it_is_folded() -> None:
    lifter = lifter_of(df.SumCombineFn(), WindowingStrategy())
    table = PartialTable(lifter)
    table.add(lifter.lift(Bundle([("k", 1), ("k", "x")], [0, 0]), watermark_us=-1))

    with pytest.raises(df.TransformError, match=r"here.py:1\) raised TypeError") as caught:
        table.take()

    assert caught.value.detail == "while combining 2 values, the first 1"
