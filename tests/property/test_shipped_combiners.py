"""The combine functions that are shipped: each obeys the laws, and gives what plain Python gives.

Also in pipelines, under any windows, orders and bundles, and where what they combine is retracted.
"""

import heapq
import math
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from operator import itemgetter
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import can_retract_input, combined
from dataflow.element_digests import element_digest
from dataflow.serialization import dumps, loads
from dataflow.testing import TestStream
from dataflow.testing.laws import (
    check_bundle_insensitive,
    check_combine_fn,
    check_retracting_prefixes,
)
from dataflow.testing.strategies import streams
from runners.direct import DirectRunner
from tests.effort import costly
from tests.ids import shown
from windowing import PaneTiming

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
NUMBERS = st.integers(-9, 9)
TEXTS = st.sampled_from(["", "a", "ab", "b"])
PAIRS = st.tuples(TEXTS, NUMBERS)


@attrs.frozen
class Case:
    """A combine function, what it combines, what it gives by plain Python, and how outputs are compared."""

    combine_fn: df.CombineFn
    values: st.SearchStrategy[Any]
    oracle: Callable[[Sequence[Any]], Any]
    by: Callable[[Any], Any] = lambda output: output
    retracts: bool = False


def second_first(pair: tuple[str, int]) -> tuple[int, int]:
    """By the number; of equal ones by what the order among equals is said to be."""
    return -pair[1], element_digest(pair)


def mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else math.nan


def rounded(number: float) -> str:
    return str(round(number, 9))


def last_of_each(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    return {key: max((v for k, v in pairs if k == key), key=element_digest) for key, _ in pairs}


def latest(timed: Sequence[tuple[str, int]]) -> str | None:
    newest = max((at for _, at in timed), default=None)
    return max((v for v, at in timed if at == newest), key=element_digest, default=None)


def arg_min(ranked: Sequence[tuple[str, int]]) -> str | None:
    return latest([(value, -rank) for value, rank in ranked])


CASES = {
    "count": Case(df.CountCombineFn(), NUMBERS, len, retracts=True),
    "sum": Case(df.SumCombineFn(), NUMBERS, sum, retracts=True),
    "sum of fractions": Case(df.SumCombineFn(), st.fractions(), sum, retracts=True),
    "mean": Case(df.MeanCombineFn(), NUMBERS, mean, rounded, retracts=True),
    "top": Case(df.TopCombineFn(3), NUMBERS, lambda values: heapq.nlargest(3, values)),
    "top, reverse": Case(
        df.TopCombineFn(2, reverse=True), NUMBERS, lambda values: heapq.nsmallest(2, values)
    ),
    "top by key": Case(
        df.TopCombineFn(3, key=itemgetter(1)),
        PAIRS,
        lambda pairs: sorted(pairs, key=second_first)[:3],
    ),
    "top of few keys": Case(
        df.TopCombineFn(2, key=len, reverse=True),
        TEXTS,
        lambda texts: sorted(texts, key=lambda text: (len(text), element_digest(text)))[:2],
    ),
    "sample": Case(
        df.SampleCombineFn(3, seed=5),
        PAIRS,
        lambda pairs: sorted(pairs, key=lambda pair: element_digest(pair, 5))[:3],
    ),
    "latest": Case(df.LatestCombineFn(), PAIRS, latest),
    "greatest rank": Case(df.ArgMaxCombineFn(), PAIRS, latest),
    "least rank": Case(df.ArgMinCombineFn(), PAIRS, arg_min),
    "list": Case(df.ToListCombineFn(), NUMBERS, sorted, sorted),
    "set": Case(df.ToSetCombineFn(), NUMBERS, set),
    "dict": Case(df.ToDictCombineFn(), PAIRS, last_of_each),
    "tuple": Case(
        df.TupleCombineFn(df.ToSetCombineFn(), df.MeanCombineFn()),
        PAIRS,
        lambda pairs: ({text for text, _ in pairs}, mean([each for _, each in pairs])),
        lambda output: (output[0], rounded(output[1])),
    ),
    "tuple that retracts": Case(
        df.TupleCombineFn(df.CountCombineFn(), df.SumCombineFn()),
        PAIRS,
        lambda pairs: (len(pairs), sum(each for _, each in pairs)),
        retracts=True,
    ),
    "single input": Case(
        df.SingleInputTupleCombineFn(df.CountCombineFn(), df.TopCombineFn(1), sum),
        NUMBERS,
        lambda values: (len(values), heapq.nlargest(1, values), sum(values)),
    ),
    "single input that retracts": Case(
        df.SingleInputTupleCombineFn(df.CountCombineFn(), df.SumCombineFn()),
        NUMBERS,
        lambda values: (len(values), sum(values)),
        retracts=True,
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


@every_case
@given(data=st.data())
def test_the_laws_hold(case: Case, data: st.DataObject) -> None:
    check_combine_fn(case.combine_fn, data.draw(st.lists(case.values, max_size=8)), by=case.by)


@every_case
@given(data=st.data())
def test_the_result_is_that_of_plain_python(case: Case, data: st.DataObject) -> None:
    values = data.draw(st.lists(case.values, max_size=90))

    assert case.by(case.oracle(values)) == case.by(combined(case.combine_fn, values))
    accumulator = case.combine_fn.create_accumulator()
    for value in values:
        accumulator = case.combine_fn.add_input(accumulator, value)
    assert case.by(case.oracle(values)) == case.by(case.combine_fn.extract_output(accumulator))


@every_case
def test_it_retracts_where_an_inverse_exists(case: Case) -> None:
    assert case.retracts == can_retract_input(case.combine_fn)


def long(values: Sequence[Any]) -> list[Any]:
    return [*values] * 50


@pytest.mark.parametrize("name", ["top", "top by key", "top of few keys", "sample"])
@given(data=st.data())
def test_accumulators_of_what_is_chosen_stay_short(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    accumulator = case.combine_fn.create_accumulator()
    values = long(data.draw(st.lists(case.values, min_size=1, max_size=9)))
    for value in values:
        accumulator = case.combine_fn.add_input(accumulator, value)

    assert len(accumulator) < 80
    assert case.oracle(values) == case.combine_fn.extract_output(accumulator)


class Keep(df.DoFn):
    """Appends key, number of the window and result to a list."""

    def __init__(self, emitted: list[Any]) -> None:
        self.emitted = emitted

    def process(self, element: Any, /, window: Any = df.DoFn.WindowParam) -> None:
        self.emitted.append((*element, window.start_us // 10_000_000))


@pytest.mark.slow
@every_case
@costly(17)
@given(data=st.data(), bundle_records=st.integers(1, 4))
def test_pipelines_give_that_too(case: Case, data: st.DataObject, bundle_records: int) -> None:
    """By key, of all, by an aggregate of a field, and of hot keys, whatever the bundles."""
    timed = data.draw(
        st.lists(st.tuples(st.sampled_from("ab"), case.values, st.integers(0, 40)), max_size=12)
    )
    elements = [df.TimestampedValue((key, value), at) for key, value, at in timed]
    by_key: list[Any] = []
    in_shards: list[Any] = []
    by_field: list[Any] = []
    of_all: list[Any] = []
    with df.Pipeline(DirectRunner(bundle_records=bundle_records)) as p:
        windowed = p | df.Create(elements) | df.WindowInto(df.FixedWindows(10))
        combine: Any = df.CombinePerKey(case.combine_fn)
        windowed | combine | df.ParDo(Keep(by_key))
        windowed | combine.with_hot_key_fanout(3) | "2" >> df.ParDo(Keep(in_shards))
        grouping = df.GroupBy(key=itemgetter(0)).aggregate_field(
            itemgetter(1), case.combine_fn, "result"
        )
        windowed | grouping | "3" >> df.ParDo(Keep(by_field))
        (
            windowed
            | df.Map(itemgetter(1))
            | df.CombineGlobally(case.combine_fn).without_defaults()
            | df.Map(lambda result: ("all", result))
            | "4" >> df.ParDo(Keep(of_all))
        )

    places = {(key, at // 10) for key, _, at in timed}
    expected = {
        (key, number): case.by(
            case.oracle([v for k, v, at in timed if (k, at // 10) == (key, number)])
        )
        for key, number in places
    }
    for found in (by_key, in_shards, by_field):
        assert {(key, number): case.by(result) for key, result, number in found} == expected
        assert len(found) == len(expected)
    whole = {number: [v for _, v, at in timed if at // 10 == number] for _, number in places}
    assert {number: case.by(result) for _, result, number in of_all} == {
        number: case.by(case.oracle(values)) for number, values in whole.items()
    }


COMBINING: list[Any] = [
    df.Count.PerKey(),
    df.Sum.PerKey(),
    df.Mean.PerKey(),
    df.Min.PerKey(),
    df.Max.PerKey(),
    df.Top.PerKey(2),
    df.Top.SmallestPerKey(2),
    df.Top.PerKey(2, key=lambda value: value // 5),
    df.Sample.FixedSizePerKey(2),
    df.Latest.PerKey(),
    df.ToSet.PerKey(),
    df.CombinePerKey(df.SingleInputTupleCombineFn(df.CountCombineFn(), max)),
    df.Sum.PerKey().with_hot_key_fanout(2),
    df.Max.PerKey().with_hot_key_fanout(3),
    df.Sample.FixedSizePerKey(2).with_hot_key_fanout(2),
    df.Latest.PerKey().with_hot_key_fanout(3),
]


@pytest.mark.slow
@pytest.mark.parametrize("combining", COMBINING, ids=lambda each: each.default_label())
@costly(16)
@given(stream=streams(late=False))
def test_what_is_retracted_is_as_if_it_had_never_been(combining: Any, stream: TestStream) -> None:
    """Sums by session are retracted when sessions grow; what is made of those by the minute is right at any moment."""
    is_divided = getattr(getattr(combining, "_combine", combining), "_fanout", None)

    def build(pcoll: Any) -> Any:
        trigger = None if is_divided else df.Always()
        return (
            pcoll
            | df.WindowInto(df.Sessions(30), trigger=df.Always(), accumulation_mode=RETRACTING)
            | "sum" >> df.CombinePerKey(sum)
            | df.WindowInto(df.FixedWindows(60), trigger=trigger, accumulation_mode=RETRACTING)
            | combining
        )

    check_retracting_prefixes(build, stream)


@pytest.mark.parametrize(
    "combine", [df.Count.Globally(), df.Top.Largest(2), df.Sample.FixedSizeGlobally(2)], ids=shown
)
@costly(3)
@given(
    timed=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), max_size=8),
    trigger=st.sampled_from([df.DefaultTrigger(), df.Repeatedly(df.AfterCount(2)), df.Always()]),
)
def test_of_all_time_there_is_always_one_last_result(
    combine: Any, timed: list[tuple[int, int]], trigger: df.Trigger
) -> None:
    """In the global window, also of nothing, whatever the trigger and the bundles."""

    def build(pcoll: Any) -> Any:
        windows = df.WindowInto(df.GlobalWindows(), trigger=trigger, accumulation_mode=RETRACTING)
        return pcoll | windows | combine

    elements = [df.TimestampedValue(*each) for each in timed]
    check_bundle_insensitive(build, elements)
    emitted = changes(build, elements)
    assert sum(change.sign for change in emitted) == 1
    if not timed:
        assert [change.value for change in emitted] in ([0], [[]])


def changes(build: Any, elements: list[Any]) -> list[df.Change[Any]]:
    found: list[df.Change[Any]] = []
    with df.Pipeline() as p:
        p | df.Create(elements) | build_as(build) | df.ToChangelog() | df.Map(found.append)
    return found


class build_as(df.PTransform[Any, Any]):  # noqa: N801 - a function, but for the type
    def __init__(self, build: Any) -> None:
        self._build = build

    def expand(self, pcoll: Any) -> Any:
        return self._build(pcoll)


@given(st.lists(TEXTS | NUMBERS, max_size=20))
def test_elements_are_counted_by_their_values(elements: list[Any]) -> None:
    found: list[Any] = []
    with df.Pipeline() as p:
        p | df.Create(elements) | df.Count.PerElement() | df.Map(found.append)

    assert dict(found) == Counter(elements)


@given(st.lists(st.tuples(TEXTS, NUMBERS), min_size=1, max_size=20), st.integers(1, 4))
def test_a_sample_is_of_the_elements_and_of_the_size_and_of_the_seed(
    elements: list[Any], size: int
) -> None:
    for seed in (0, 1):
        sample = combined(df.SampleCombineFn(size, seed=seed), elements)
        assert len(sample) == min(size, len(elements))
        assert not Counter(sample) - Counter(elements)
        assert sample == combined(df.SampleCombineFn(size, seed=seed), elements[::-1])


def test_every_element_is_as_likely_in_a_sample() -> None:
    chosen: Counter[int] = Counter()
    for seed in range(2_000):
        chosen.update(combined(df.SampleCombineFn(3, seed=seed), range(10)))

    assert sorted(chosen) == list(range(10))
    assert all(500 < count < 700 for count in chosen.values())


PLAIN: Any = st.recursive(
    st.none() | st.integers(-3, 3) | st.floats() | st.text(max_size=2) | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(PLAIN, PLAIN)
def test_equal_elements_have_one_digest_and_others_another(one: Any, other: Any) -> None:
    assert (one == other) <= (element_digest(one) == element_digest(other))
    if element_digest(one) == element_digest(other):
        assert one == other or "nan" in repr(one)


def test_equal_elements_of_several_types_have_one_digest() -> None:
    for equals in (
        [1, 1.0, True],
        [(1, [2]), (True, [2.0])],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [{1, 2}, frozenset([2, 1])],
        [("x" * 3_000,), ("x" * 3_000,)],
        [(b"x" * 3_000, "\ud800"), (b"x" * 3_000, "\ud800")],
        [PaneTiming.LATE, PaneTiming.LATE],
        [HTTPStatus.OK, 200, 200.0],
        [1 << 20_000, 1 << 20_000],
    ):
        assert len({element_digest(each) for each in equals}) == 1
    assert element_digest(Fraction(1, 3)) == element_digest(Fraction(2, 6))
    assert element_digest(Fraction(1, 3)) != element_digest(Fraction(1, 2))
    assert element_digest([1]) != element_digest((1,))


@attrs.frozen
class Event:
    """An object of a user."""

    name: Any
    parts: Any


@pytest.mark.slow
def test_a_digest_does_not_depend_on_the_process_or_on_what_is_the_same_object() -> None:
    """A retraction finds the shard of what it retracts, wherever that was stored meanwhile."""
    text = "text"
    same, other = Event((text, 1.5), [text]), Event((text[:2] + text[2:], 1.5), [text[::-1][::-1]])
    assert element_digest(same) == element_digest(other) == element_digest(loads(dumps(same)))
    assert element_digest(same) != element_digest(Event((text, 1.5), []))
    script = (
        "import pickle, sys; from dataflow.element_digests import element_digest; "
        "print([element_digest(each) for each in pickle.load(sys.stdin.buffer)])"
    )
    plain = [({"a", "b", "c", "d"}, [Decimal("1.5")]), UUID(int=7), np.arange(3), timedelta(1)]
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", script],
            input=pickle.dumps(plain),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        assert found.decode().strip() == repr([element_digest(each) for each in plain])
