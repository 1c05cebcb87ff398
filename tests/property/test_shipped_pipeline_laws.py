"""The laws of pipelines that are shipped for users: what is right passes, and what is wrong is caught."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from dataflow.testing import strategies as our
from dataflow.testing.laws import (
    check_batch_equals_streaming,
    check_bundle_insensitive,
    check_order_insensitive,
    check_retracting_prefixes,
    check_same_answer,
)
from dataflow.testing.pipeline_laws import RunnerLike
from runners.direct import DirectRunner
from tests.caught import caught
from tests.effort import costly

Mode = df.AccumulationMode


def windowed(windowing: dict[str, Any]) -> Callable[[df.PCollection[Any]], df.PCollection[Any]]:
    return lambda pcoll: pcoll | df.WindowInto(**windowing) | df.CombinePerKey(sum)


@costly()
@given(our.windowings(), our.elements())
def test_no_windowing_minds_order_or_bundles(
    windowing: dict[str, Any], elements: list[df.TimestampedValue]
) -> None:
    for check in (check_order_insensitive, check_bundle_insensitive):
        check(windowed(windowing), elements, combine=sum)


@costly()
@given(our.windowings(), our.elements(), st.data())
def test_no_windowing_minds_how_elements_come(
    windowing: dict[str, Any], elements: list[df.TimestampedValue], data: st.DataObject
) -> None:
    """Also with processing time going on, so that delays end in the middle."""
    streams = [data.draw(our.arrivals(elements)) for _ in range(2)]
    check_same_answer(windowed(windowing), *streams, combine=sum)


@costly()
@given(our.windowings(accumulation_mode=st.just(Mode.ACCUMULATING_AND_RETRACTING)), our.streams())
def test_retracting_windowings_are_right_at_every_moment(
    windowing: dict[str, Any], stream: TestStream
) -> None:
    check_retracting_prefixes(windowed(windowing), stream)


@costly()
@given(our.windowings(), our.streams())
def test_micro_batches_give_the_same_answer(windowing: dict[str, Any], stream: TestStream) -> None:
    check_batch_equals_streaming(
        windowed(windowing),
        stream,
        runners=["direct", lambda: DirectRunner(micro_batch=7)],
        combine=sum,
    )


RETRACTING = {
    "window_fn": df.Sessions(60),
    "trigger": df.AfterWatermark(early=df.AfterCount(1)),
    "accumulation_mode": Mode.ACCUMULATING_AND_RETRACTING,
}


class First(df.CombineFn):
    """The first value to come: what comes first depends on luck."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None else accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return next((each for each in accumulators if each is not None), None)

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


class Numbered(df.DoFn):
    """Numbers the elements of a bundle."""

    def start_bundle(self) -> None:
        self.number = 0

    def process(self, element: Any, /) -> Any:
        self.number += 1
        yield element[0], self.number


def _minute_sums(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    return pcoll | df.WindowInto(df.FixedWindows(60)) | df.CombinePerKey(sum)


def _first_of_the_minute(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    return pcoll | df.WindowInto(df.FixedWindows(60)) | df.CombinePerKey(First())


def _numbered(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    return _minute_sums(pcoll | df.ParDo(Numbered()))


def _of_each_pane(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    """Takes speculation for the answer: it sums panes that accumulate."""
    early = pcoll | df.WindowInto(
        df.FixedWindows(60),
        trigger=df.AfterWatermark(early=df.AfterCount(1)),
        accumulation_mode=Mode.ACCUMULATING,
    )
    return early | "each" >> df.CombinePerKey(sum) | "all" >> df.CombinePerKey(sum)


@pytest.mark.slow
def test_wrong_pipelines_are_caught() -> None:
    elements = our.elements()

    def order(build: Any) -> str:
        return caught(lambda items: check_order_insensitive(build, items), elements)

    def bundle(build: Any) -> str:
        return caught(lambda items: check_bundle_insensitive(build, items), elements)

    check_order_insensitive(_minute_sums, [df.TimestampedValue(("a", 1), 1)])
    for message in (
        order(_first_of_the_minute),
        order(_numbered),
        bundle(_numbered),
        bundle(_of_each_pane),
        caught(
            lambda stream: check_same_answer(_of_each_pane, stream, _again(stream)), our.streams()
        ),
    ):
        assert "the same elements have two results" in message
        assert "only in one" in message
        assert "TestStream().add_elements(" in message


def _again(stream: TestStream) -> TestStream:
    return TestStream().add_elements(stream.elements())


class Forgets:
    """A function that returns something else each time, so that what is retracted is not what was emitted."""

    calls = 0

    def __call__(self, pair: Any) -> Any:
        Forgets.calls += 1
        return pair[0], Forgets.calls


def _forgetful(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    return windowed(RETRACTING)(pcoll) | df.Map(_forget)


def _forget(pair: Any) -> Any:
    Forgets.calls += 1
    return pair[0], Forgets.calls


def _mentions_panes(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    """Emits each element twice."""
    return windowed(RETRACTING)(pcoll) | df.FlatMap(lambda pair: [pair, (pair[0], -pair[1])])


def test_wrong_retractions_are_caught() -> None:
    streams = our.streams()
    prefixes = check_retracting_prefixes

    assert "something else was retracted" in caught(
        lambda stream: prefixes(_forgetful, stream), streams
    )
    assert "a second element was emitted" in caught(
        lambda stream: prefixes(_mentions_panes, stream), streams
    )


def test_runners_that_differ_are_caught() -> None:
    def build(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
        return pcoll | df.ToChangelog() | df.Map(lambda change: ("k", change.processing_time_us))

    runners: list[RunnerLike] = ["direct", lambda: DirectRunner(micro_batch=7)]

    assert "on DirectRunner, TestStream()" in caught(
        lambda items: check_batch_equals_streaming(build, items, runners=runners), our.elements()
    )


def test_nothing_is_emitted_of_what_comes_too_late() -> None:
    stream = TestStream().advance_watermark_to(100).add_elements([df.TimestampedValue(("a", 1), 5)])
    with pytest.raises(df.PipelineError, match="come too late"):
        check_same_answer(_minute_sums, stream, stream)


def test_prefixes_are_asked_of_what_retracts() -> None:
    with pytest.raises(df.PipelineError, match=r"(?s)retracts what it emitted.*DISCARDING"):
        check_retracting_prefixes(_minute_sums, TestStream())
