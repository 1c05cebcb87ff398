"""Functions instead of a CombineFn: what is emitted for a group depends on its values, and not on how they came."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median, pvariance
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import CallableCombineFn, WholeGroupCombineFn, as_combine_fn
from dataflow.combiners import columns_by_place
from dataflow.graph import Group
from dataflow.testing import TestStream, assert_that, contains_in_any_order
from dataflow.testing.laws import check_bundle_insensitive, check_retracting_prefixes
from dataflow.testing.strategies import streams
from runners.direct import DirectRunner
from tests.effort import stated
from tests.ids import shown

Function = Callable[[list[Any]], Any]


def mean(values: Iterable[int]) -> float:
    several = list(values)
    return sum(several) / len(several)


def spread(values: Iterable[int]) -> int:
    several = sorted(values)
    return several[-1] - several[0]


def takes_the_list_apart(values: list[int]) -> tuple[int, ...]:
    values.sort()
    found = []
    while values:
        found.append(values.pop())
    return tuple(found)


def above_one(values: Iterable[int]) -> int:
    return sum(1 for value in values if value > 1)


#: Functions of which values there are; but for `math.prod` and the known ones none may be called on its own results.
FUNCTIONS: list[Function] = [
    *(mean, spread, above_one, takes_the_list_apart, len, set, sorted, median, pvariance),
    *(math.prod, math.fsum, sum, min, max, any, all),
]
TIMED_VALUES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 9), st.integers(0, 40)))
RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


def by_hand(function: Function, timed: Sequence[tuple[str, int, int]]) -> dict[Any, Any]:
    groups: dict[Any, list[int]] = {}
    for key, value, second in timed:
        groups.setdefault((key, second // 10), []).append(value)
    return {place: function(values) for place, values in groups.items()}


def first(element: tuple[str, int]) -> str:
    return element[0]


def second(element: tuple[str, int]) -> int:
    return element[1]


class Keep(df.DoFn):
    """Appends key, window and result to a list."""

    def __init__(self, emitted: list[Any]) -> None:
        self.emitted = emitted

    def process(self, element: Any, /, window: Any = df.DoFn.WindowParam) -> None:
        key, result = element
        self.emitted.append((key, window.start_us // 10_000_000, result))


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS, ids=shown)
@stated(len(FUNCTIONS))
@given(timed=TIMED_VALUES, bundle_records=st.integers(1, 4))
def test_the_answer_is_that_of_the_whole_group(
    function: Function, timed: list[tuple[str, int, int]], bundle_records: int
) -> None:
    """By `CombinePerKey` and by an aggregate of `GroupBy`, whatever the bundles."""
    emitted: list[Any] = []
    aggregated: list[Any] = []
    elements = [df.TimestampedValue((key, value), at) for key, value, at in timed]
    with df.Pipeline(DirectRunner(bundle_records=bundle_records)) as p:
        windowed = p | df.Create(elements) | df.WindowInto(df.FixedWindows(10))
        windowed | df.CombinePerKey(function) | df.ParDo(Keep(emitted))
        grouping = df.GroupBy(key=first).aggregate_field(second, function, "result")
        windowed | grouping | "keep rows" >> df.ParDo(Keep(aggregated))

    expected = by_hand(function, timed)
    for found in (emitted, aggregated):
        assert {(key, number): result for key, number, result in found} == expected
        assert len(found) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS, ids=shown)
@stated(len(FUNCTIONS))
@given(stream=streams(late=False))
def test_what_is_retracted_is_as_if_it_had_never_been(
    function: Function, stream: TestStream
) -> None:
    """Sums by session are retracted when sessions grow; of those by the minute any function is right at any moment."""

    def build(pcoll: Any) -> Any:
        return (
            pcoll
            | df.WindowInto(df.Sessions(30), trigger=df.Always(), accumulation_mode=RETRACTING)
            | "sum" >> df.CombinePerKey(sum)
            | df.WindowInto(df.FixedWindows(60), trigger=df.Always(), accumulation_mode=RETRACTING)
            | "function" >> df.CombinePerKey(function)
        )

    check_retracting_prefixes(build, stream)


@given(timed=TIMED_VALUES)
def test_windows_of_so_many_elements_are_whole_groups_too(
    timed: list[tuple[str, int, int]],
) -> None:
    elements = [df.TimestampedValue((key, value), at) for key, value, at in timed]
    check_bundle_insensitive(lambda pcoll: pcoll | df.CountWindows(3, combine_fn=mean), elements)


def test_only_known_and_declared_functions_are_called_on_their_own_results() -> None:
    for fast in (sum, min, max, any, all, df.associative(math.prod)):
        assert type(as_combine_fn(fast)) is CallableCombineFn
    for slow in (mean, len, math.prod, lambda values: sum(values) + 0):
        assert type(as_combine_fn(slow)) is WholeGroupCombineFn


def test_known_functions_are_still_folded_as_columns() -> None:
    grouping = df.GroupBy("key").aggregate_field("x", sum, "s").aggregate_field("x", max, "m")
    p = df.Pipeline()
    p | df.Create([]) | grouping
    (group,) = (node for node in p.graph().transforms if isinstance(node.operation, Group))

    assert isinstance(group.operation, Group)
    assert columns_by_place(group.operation.combine_fn) is not None


def test_a_declared_function_is_called_on_parts() -> None:
    sizes: list[int] = []

    @df.associative
    def union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
        several = list(sets)
        sizes.append(len(several))
        return frozenset().union(*several)

    with df.Pipeline(DirectRunner(bundle_records=10)) as p:
        values = [("k", frozenset([value])) for value in range(1_000)]
        found = p | df.Create(values) | df.CombinePerKey(union)
        assert_that(found, contains_in_any_order([("k", frozenset(range(1_000)))]))

    assert union.__name__ == "union"
    assert max(sizes) < 1_000


@pytest.mark.parametrize("given_fn", [7, "sum", df.MeanCombineFn], ids=shown)
def test_what_cannot_combine_is_refused(given_fn: Any) -> None:
    for attempt in (
        lambda: df.CombinePerKey(given_fn),
        lambda: df.GroupBy("key").aggregate_field("x", given_fn, "y"),
        lambda: df.CountWindows(3, combine_fn=given_fn),
    ):
        with pytest.raises(df.PipelineError, match="cannot be combined with"):
            attempt()


@pytest.mark.parametrize("given_fn", [7, df.MeanCombineFn()], ids=shown)
def test_only_functions_are_declared(given_fn: Any) -> None:
    with pytest.raises(df.PipelineError, match="for a function of values"):
        df.associative(given_fn)
