"""Combiners as transforms: what they emit, what they refuse, and their panes where keys are divided."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.testing import TestStream, assert_that, contains_in_any_order
from runners.direct import DirectRunner
from tests.ids import shown
from tests.pane_log import run_logged

ACCUMULATING = df.AccumulationMode.ACCUMULATING
DISCARDING = df.AccumulationMode.DISCARDING
RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
PAIRS = [("a", 3), ("b", 5), ("a", 1), ("a", 1)]


def results(transform: Any, elements: Any) -> list[Any]:
    found: list[Any] = []
    with df.Pipeline(DirectRunner(bundle_records=2)) as p:
        p | df.Create(elements) | transform | df.Map(found.append)
    return found


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (df.CombineGlobally(sum), 10),
        (df.CombineGlobally(lambda values: sum(values) / len(values)), 2.5),
        (df.CombineGlobally(sum).with_fanout(3), 10),
        (df.Count.Globally(), 4),
        (df.Count.Globally().without_defaults(), 4),
        (df.Sum.Globally(), 10),
        (df.Mean.Globally(), 2.5),
        (df.Min.Globally(), 1),
        (df.Max.Globally(), 5),
        (df.Top.Of(2), [5, 3]),
        (df.Top.Of(2, reverse=True), [1, 1]),
        (df.Top.Of(1, key=lambda value: -value), [1]),
        (df.Top.Largest(1), [5]),
        (df.Top.Smallest(3), [1, 1, 3]),
        (df.ToSet.Globally(), {1, 3, 5}),
        (df.Latest.Globally(), 1),
    ],
    ids=shown,
)
def test_one_result_of_all(transform: Any, expected: Any) -> None:
    values = [df.TimestampedValue(value, at) for at, (_, value) in enumerate(PAIRS)]

    assert [expected] == results(transform, values)


@pytest.mark.parametrize(
    ("transform", "a", "b"),
    [
        (df.Count.PerKey(), 3, 1),
        (df.Sum.PerKey(), 5, 5),
        (df.Mean.PerKey(), 5 / 3, 5.0),
        (df.Min.PerKey(), 1, 5),
        (df.Max.PerKey(), 3, 5),
        (df.Top.PerKey(2), [3, 1], [5]),
        (df.Top.LargestPerKey(1), [3], [5]),
        (df.Top.SmallestPerKey(1), [1], [5]),
        (df.Latest.PerKey(), 1, 5),
        (df.ToSet.PerKey(), {1, 3}, {5}),
        (df.CombinePerKey(sum).with_hot_key_fanout(lambda key: 3 if key == "a" else 1), 5, 5),
        (df.CombinePerKey(df.SingleInputTupleCombineFn(min, max)), (1, 3), (5, 5)),
    ],
    ids=shown,
)
def test_one_result_for_each_key(transform: Any, a: Any, b: Any) -> None:
    pairs = [df.TimestampedValue(pair, at) for at, pair in enumerate(PAIRS)]

    assert {"a": a, "b": b} == dict(results(transform, pairs))


def test_containers_and_lists_that_are_there() -> None:
    assert [{"a": 1, "b": 2}] == results(df.ToDict.Globally(), [("a", 1), ("b", 2)])
    assert [("k", {"a": 1})] == results(df.ToDict.PerKey(), [("k", ("a", 1))])
    assert [[1, 3]] == [sorted(each) for each in results(df.ToList.Globally(), [3, 1])]
    assert [("k", [7])] == results(df.ToList.PerKey(), [("k", 7)])
    assert [("k", 2.0), ("l", 5.0)] == results(
        df.CombineValues(df.MeanCombineFn()), [("k", [1, 3]), ("l", (5,))]
    )
    assert [("k", 4)] == results(df.CombineValues(sum), [("k", [1, 3])])


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (df.Count.Globally(), [0]),
        (df.Count.Globally().with_fanout(2), [0]),
        (df.Count.Globally().without_defaults(), []),
        (df.Count.Globally().without_defaults().with_defaults(), [0]),
        (df.CombineGlobally(sum), [0]),
        (df.Top.Of(3), [[]]),
        (df.Sample.FixedSizeGlobally(3), [[]]),
        (df.Sample.FixedSizeGlobally(3).without_defaults(), []),
        (df.ToList.Globally(), [[]]),
        (df.Latest.Globally(), [None]),
        (df.Max.Globally(), []),
        (df.CombineGlobally(lambda values: sum(values) / len(values)), []),
        (df.Count.PerElement(), []),
    ],
    ids=shown,
)
def test_the_result_of_nothing(transform: Any, expected: list[Any]) -> None:
    assert expected == results(transform, [])


def test_what_has_all_been_retracted_is_nothing() -> None:
    """Also where a grouping has emitted before that there was something."""
    found: list[Any] = []
    stream = TestStream().add_elements([("a", 1)]).add_elements([("a", 1)]).add_elements([("a", 1)])
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=RETRACTING)
    with df.Pipeline() as p:
        ones: df.PCollection[Any] = (
            p
            | stream
            | always
            | df.CombinePerKey(df.CountCombineFn())
            | df.Filter(lambda pair: pair[1] < 3)
        )
        (
            ones
            | df.Count.Globally()
            | df.ToChangelog()
            | df.Map(lambda c: found.append((c.value, c.sign)))
        )

    assert [(1, 1), (1, -1), (1, 1), (1, -1), (0, 1)] == found


def timed_windows(**kwargs: Any) -> df.WindowInto:
    return df.WindowInto(df.FixedWindows(10), **kwargs)


def test_defaults_are_for_the_global_window_alone() -> None:
    with pytest.raises(df.PipelineError, match="does not know which are empty") as caught:
        (
            df.Pipeline()
            | df.Create([df.TimestampedValue(1, 1)])
            | timed_windows()
            | df.Count.Globally()
        )

    assert "without_defaults" in str(caught.value)


def test_grouped_windows_are_those_from_before_the_grouping() -> None:
    """In the global window a count of counts has a default, in others it has none."""
    grouped = df.Pipeline() | df.Create([("a", 1)]) | df.Count.PerKey()
    grouped | df.Count.Globally()
    timed = df.Pipeline() | df.Create([df.TimestampedValue(("a", 1), 1)]) | timed_windows()
    with pytest.raises(df.PipelineError, match="does not know which are empty"):
        timed | df.Count.PerKey() | df.Count.Globally()


@pytest.mark.parametrize("mode", [DISCARDING, ACCUMULATING, RETRACTING], ids=lambda each: each.name)
def test_panes_of_a_divided_key_are_those_of_the_key(mode: df.AccumulationMode) -> None:
    """On time, and for late elements, in each mode: what was counted once is not counted twice."""
    stream = (
        TestStream()
        .add_elements([df.TimestampedValue(("k", value), value) for value in range(8)])
        .advance_watermark_to(10)
        .add_elements([df.TimestampedValue(("k", 5), 5)])
        .add_elements([df.TimestampedValue(("k", 7), 7)])
    )

    def panes(combine: Any) -> list[Any]:
        pipeline = df.Pipeline()
        windows = timed_windows(allowed_lateness=100, accumulation_mode=mode)
        whole = pipeline | stream | windows | "sum" >> combine
        whole | "grouped" >> df.GroupByKey()
        log = run_logged(pipeline)
        assert not log.late_records()
        return [
            (pane.sign, pane.key, pane.value, pane.window, pane.pane, pane.timestamp_us)
            for pane in log.panes
            if pane.transform in ("sum", "sum/whole")
        ]

    expected = panes(df.CombinePerKey(sum))
    assert len(expected) > 2
    assert expected == panes(df.CombinePerKey(sum).with_hot_key_fanout(4))


@attrs.frozen
class Total:
    """An object, which has no encoding as a key."""

    name: str
    amount: int


def amount_by_parity(pair: tuple[str, int]) -> tuple[str, Total]:
    return "even" if len(pair[0]) % 2 == 0 else "odd", Total(*pair)


def test_retracted_objects_find_the_shard_that_they_were_in() -> None:
    """Each total is retracted with the next element of its key; by shards the counts are those without shards."""
    elements = [("abcdefgh"[: 1 + number % 8], number) for number in range(40)]
    stream = TestStream()
    for at in range(0, 40, 3):
        stream = stream.add_elements(elements[at : at + 3])

    def last(combine: Any) -> dict[Any, Any]:
        found: list[Any] = []
        always = df.WindowInto(
            df.GlobalWindows(), trigger=df.Always(), accumulation_mode=RETRACTING
        )
        with df.Pipeline() as p:
            totals = p | stream | always | df.CombinePerKey(sum) | df.Map(amount_by_parity)
            at_the_end = totals | "end" >> df.WindowInto(df.GlobalWindows())
            at_the_end | combine | df.Map(found.append)
        assert len(found) == 2
        return dict(found)

    biggest = df.Top.PerKey(2, key=lambda total: total.amount)
    for combine in (df.Count.PerKey(), biggest, df.ToSet.PerKey()):
        assert last(combine) == last(combine.with_hot_key_fanout(3))


def keyed(windows: Any) -> Any:
    return df.Pipeline() | df.Create([df.TimestampedValue(("k", 1), 1)]) | windows


DIVIDED = df.Sum.PerKey().with_hot_key_fanout(2)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: keyed(df.WindowInto(df.Sessions(5))) | DIVIDED, "windows that may merge"),
        (
            lambda: (
                keyed(timed_windows(trigger=df.Always(), accumulation_mode=ACCUMULATING)) | DIVIDED
            ),
            "count in place of records",
        ),
        (
            lambda: (
                keyed(
                    timed_windows(
                        trigger=df.AfterWatermark(late=df.AfterCount(2)),
                        accumulation_mode=DISCARDING,
                    )
                )
                | DIVIDED
            ),
            "count in place of records",
        ),
        (lambda: df.Sum.PerKey().with_hot_key_fanout(0), "cannot be divided into 0"),
        (lambda: df.Sum.Globally().with_fanout(True), "cannot be divided into True"),
        (lambda: df.Top.Of(0), "positive number of values"),
        (lambda: df.Top.Of("3"), "positive number of values"),  # type: ignore[arg-type]
        (lambda: df.Top.PerKey(1, key=3), "a function as its key"),  # type: ignore[arg-type]
        (lambda: df.Sample.FixedSizePerKey(-1), "positive number of values"),
        (lambda: df.Sample.FixedSizeGlobally(1, seed="x"), "an integer as its seed"),  # type: ignore[arg-type]
        (df.Count, "has some"),
        (lambda: df.Top(3), "df.Top.Of"),
        (lambda: df.TupleCombineFn(df.MeanCombineFn), "call it: df.MeanCombineFn"),  # type: ignore[arg-type]
    ],
    ids=range(13),
)
def test_what_cannot_be_right_is_refused(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(df.PipelineError, match=message):
        attempt()


@pytest.mark.parametrize(
    ("fn", "hint"),
    [
        (df.MeanCombineFn, r"call it: df.MeanCombineFn\(\)"),
        (df.Count, r"df\.Count\.PerKey\(\.\.\.\)"),
        (df.Count.PerKey, "it is a transform"),
        (df.Count.PerKey(), "it is a transform"),
        (7, "give a function"),
    ],
    ids=shown,
)
def test_what_is_no_function_of_values_is_refused(fn: Any, hint: str) -> None:
    for attempt in (
        lambda: df.CombinePerKey(fn),
        lambda: df.CombineGlobally(fn),
        lambda: df.CombineValues(fn),
        lambda: df.GroupBy("key").aggregate_field("x", fn, "y"),
        lambda: df.SingleInputTupleCombineFn(fn),
    ):
        with pytest.raises(df.PipelineError, match=hint):
            attempt()


def test_nan_has_no_place_in_an_order() -> None:
    with pytest.raises(df.TransformError, match="NaN has no place"):
        results(df.Top.Of(2), [1.0, float("nan"), 2.0])


class Averages(df.DoFn):
    """The mean so far, by a function that is not associative."""

    SO_FAR = df.CombiningValueStateSpec("so far", lambda values: sum(values) / len(values))

    def process(self, element: Any, /, so_far: Any = df.DoFn.StateParam(SO_FAR)) -> Any:
        so_far.add(element[1])
        yield so_far.read()


def test_state_that_combines_by_a_function_has_the_whole_group() -> None:
    with df.Pipeline() as p:
        timed = [df.TimestampedValue(("k", value), at) for at, value in enumerate((4, 1, 1))]
        means = p | df.Create(timed) | df.ParDo(Averages())
        assert_that(means, contains_in_any_order([4.0, 2.5, 2.0]))
