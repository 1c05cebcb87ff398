"""Lifted combines: partial accumulators from any split of the input come to the same as one."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import CallableCombineFn, CombineFn, ListCombineFn, as_combine_fn
from dataflow.graph import MAIN, Group, TransformNode
from runners.core.ground.bundle import Bundle
from runners.core.partials.folding import Accumulation
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from runners.direct import DirectRunner
from tests.ids import shown
from tests.oracle.evaluator import Arrivals, Record, Windowing
from tests.oracle.laws import window_fn, windowed
from tests.pane_log import run_logged
from tests.strategies import KEYS, TIMES_US, windowings
from triggers.windowing_strategy import WindowingStrategy


class Mean(CombineFn):
    """An accumulator that is not its output, changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        merged = [0, 0]
        for total, count in accumulators:
            merged[0] += total
            merged[1] += count
        return merged

    def extract_output(self, accumulator: list[int]) -> float:
        total, count = accumulator
        return total / count if count else 0.0


class Histogram(CombineFn):
    """The accumulator itself is the output."""

    def create_accumulator(self) -> Counter[int]:
        return Counter()

    def add_input(self, accumulator: Counter[int], value: int) -> Counter[int]:
        accumulator[value] += 1
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Counter[int]]) -> Counter[int]:
        first, *others = accumulators
        for other in others:
            first.update(other)
        return first

    def extract_output(self, accumulator: Counter[int]) -> Counter[int]:
        return accumulator


FNS = [Mean(), Histogram(), CallableCombineFn(sum), CallableCombineFn(max), ListCombineFn()]
PARTS = st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=80), min_size=1, max_size=4)


def output(fn: CombineFn, accumulator: Any) -> Any:
    result = fn.extract_output(accumulator)
    return sorted(result) if isinstance(result, list) else result


@pytest.mark.parametrize("fn", FNS, ids=lambda fn: type(fn).__name__)
@given(parts=PARTS)
def test_parts_come_to_what_the_whole_comes_to(fn: CombineFn, parts: list[list[int]]) -> None:
    """One by one, as a whole, or in parts that are merged; and asking changes nothing."""
    values = [value for part in parts for value in part]
    whole = fn.add_inputs(fn.create_accumulator(), values)
    one_by_one = fn.create_accumulator()
    for value in values:
        one_by_one = fn.add_input(one_by_one, value)
    merged = fn.merge_accumulators([fn.add_inputs(fn.create_accumulator(), part) for part in parts])

    assert output(fn, whole) == output(fn, one_by_one) == output(fn, merged)
    assert output(fn, merged) == output(fn, merged)


@given(values=st.lists(st.integers(), min_size=1, max_size=300))
def test_callable_is_called_on_folded_parts(values: list[int]) -> None:
    """`sum` over any number of values, through its bounded buffer."""
    fn = as_combine_fn(sum)
    accumulator = fn.create_accumulator()
    for value in values:
        accumulator = fn.add_input(accumulator, value)

        assert len(accumulator) < 65
    assert sum(values) == fn.extract_output(accumulator)
    assert as_combine_fn(fn) is fn


def test_a_pane_does_not_change_when_its_accumulator_grows() -> None:
    """What was emitted stays as it was, although the accumulator is the output."""
    arrivals = [
        Arrivals((Record("a", 1, 0),), 20),
        Arrivals((Record("a", 2, 1),), 20),
        Arrivals((Record("a", 3, 2),), 20),
    ]
    pipeline = df.Pipeline(DirectRunner())
    windowed(
        pipeline,
        Windowing("fixed", 10, 0, 100),
        arrivals,
        df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    ) | df.CombinePerKey(Histogram())
    emitted = [(pane.sign, sorted(pane.value)) for pane in run_logged(pipeline).panes]

    assert [(1, [1]), (-1, [1]), (1, [1, 2]), (-1, [1, 2]), (1, [1, 2, 3])] == emitted


NODE = TransformNode(
    label="sum",
    location="here.py:1",
    operation=Group(ListCombineFn()),
    inputs=(0,),
    outputs={MAIN: 1},
)
ROWS = st.lists(st.tuples(KEYS, TIMES_US), max_size=25)


def lift(
    lifter: Lifter, strategy: WindowingStrategy, rows: list[tuple[str, int, int]], watermark_us: int
) -> Sequence[Partial]:
    times_us = [time_us for _, time_us, _ in rows]
    windows = [each[0] for each in strategy.window_fn.assign_bundle(times_us, rows)]
    bundle = Bundle([(key, number) for key, _, number in rows], times_us, windows)
    return lifter.lift(bundle, watermark_us=watermark_us)


@given(
    # A record has one home here, so it is in one window.
    windowing=windowings().filter(lambda windowing: windowing.kind != "sliding"),
    rows=ROWS,
    watermark_us=st.integers(-1, 41),
    cut=st.integers(0, 25),
)
def test_partials_hold_every_record_once(
    windowing: Any, rows: list[tuple[str, int]], watermark_us: int, cut: int
) -> None:
    """Each record is in one partial, whose window covers its time; late ones have their own.

    And partials of several bundles can be combined into the fewest.
    """
    strategy = WindowingStrategy(window_fn=window_fn(windowing))
    lifter = Lifter(NODE, Accumulation(ListCombineFn(), strategy))
    numbered = [(key, time_us, number) for number, (key, time_us) in enumerate(rows)]
    partials = lift(lifter, strategy, numbered, watermark_us)
    check_partials(partials, numbered)
    for _, time_us, number in numbered:
        if time_us < watermark_us:
            assert any(values == [number] for _, _, values, _ in partials)
    in_order = [
        *lift(lifter, strategy, numbered[:cut], -1),
        *lift(lifter, strategy, numbered[cut:], -1),
    ]
    fewer = lifter.merging.combined(in_order)
    check_partials(fewer, numbered)

    assert len({partial[:2] for partial in fewer}) == len(fewer)
    expected = lift(lifter, strategy, numbered, -1)
    assert sorted(partial[:2] for partial in expected) == sorted(partial[:2] for partial in fewer)


def check_partials(partials: Sequence[Partial], numbered: list[tuple[str, int, int]]) -> None:
    home = {number: (key, window) for key, window, values, _ in partials for number in values}
    assert sorted(home) == sorted(n for _, _, values, _ in partials for n in values)
    assert [number for _, _, number in numbered] == sorted(home)
    assert all(count == len(values) for _, _, values, count in partials)
    for key, time_us, number in numbered:
        assert key == home[number][0]
        assert time_us in home[number][1]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (5, "needs (key, value) pairs"),
        ("ab", "needs (key, value) pairs"),
        (["k", 1], "needs (key, value) pairs"),
        ({"k": 1, "l": 2}, "needs (key, value) pairs"),
        (("k", 1, 2), "needs (key, value) pairs"),
        ((["k"], 1), "was given a key that cannot be hashed"),
        (({"k"}, 1), "was given a key that cannot be hashed"),
    ],
    ids=shown,
)
@pytest.mark.parametrize("watermark_us", [0, 100])
def test_what_is_not_a_pair_is_refused(value: Any, what: str, watermark_us: int) -> None:
    """Also what would unpack by accident, such as text of two letters."""
    lifter = Lifter(NODE, Accumulation(ListCombineFn(), WindowingStrategy()))
    with pytest.raises(df.TransformError) as caught:
        list(lifter.lift(Bundle([("k", 1), value], [5, 5]), watermark_us=watermark_us))

    assert f"transform 'sum' (here.py:1) {what}" == caught.value.fact


def _fail(*_: Any) -> Any:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    "break_it",
    [
        lambda fn: setattr(fn, "add_inputs", _fail),
        lambda fn: setattr(fn, "merge_accumulators", _fail),
    ],
    ids=["add_inputs", "merge_accumulators"],
)
def test_errors_of_the_combine_fn_name_the_transform(break_it: Callable[[Any], None]) -> None:
    fn = ListCombineFn()
    break_it(fn)
    lifter = Lifter(NODE, Accumulation(fn, WindowingStrategy(window_fn=df.Sessions(1))))
    fine = df.Sessions(1).assign_bundle
    windows = [each[0] for each in fine([0, 1], [0, 1])]
    bundle = Bundle([("k", 1), ("k", 2)], [0, 1], windows)
    with pytest.raises(df.TransformError, match=r"here.py:1\) raised ZeroDivisionError: by zero"):
        lifter.merging.combined(
            [*lifter.lift(bundle, watermark_us=0), *lifter.lift(bundle, watermark_us=0)]
        )
