"""Metrics: what user code counts, for which transform, and how it is read; on the direct runner."""

import contextvars
import logging
import pickle
import threading
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow import metric_updates
from dataflow.errors import PipelineError, TransformError
from dataflow.metric_updates import (
    STRINGS_MAX,
    Metric,
    MetricKind,
    MetricOf,
    RunningAs,
    attempt,
    collecting,
    collecting_each,
    merged_metrics,
    running,
    take_updates,
    uncounted,
)
from dataflow.metrics import Counter, MetricKey, MetricName
from runners.direct import DirectRunner
from runners.stored.metrics import decode_metrics, encode_metrics, folded


class Seen(df.DoFn):
    """Counts in each of its methods."""

    in_bundles = df.Metrics.counter("test", "bundles")

    def setup(self) -> None:
        df.Metrics.counter("test", "set up").inc()

    def start_bundle(self) -> None:
        self.in_bundles.inc()

    def process(self, element: int) -> Iterator[int]:
        df.Metrics.counter(Seen, "seen").inc()
        df.Metrics.distribution("test", "values").update(element)
        df.Metrics.gauge("test", "last").set(element / 2)
        df.Metrics.string_set("test", "words").add(f"{element % 2}")
        yield element

    def finish_bundle(self) -> None:
        self.in_bundles.dec(2)


def counters(result: df.PipelineResult) -> dict[tuple[str, str], int]:
    found = result.metrics().query()["counters"]
    return {(each.key.step, each.key.metric.name): each.committed for each in found}


def test_every_method_of_a_do_fn_counts() -> None:
    p = df.Pipeline(DirectRunner(bundle_records=4))
    p | df.Create(range(10)) | "a" >> df.ParDo(Seen()) | "b" >> df.ParDo(Seen())
    result = p.run()
    found = result.metrics().query(df.MetricsFilter().with_step("b"))
    (seen,) = [each for each in found["counters"] if each.key.metric.name == "seen"]
    (values,), (last,), (words,) = found["distributions"], found["gauges"], found["string_sets"]

    assert seen.key == MetricKey("b", MetricName(f"{__name__}.Seen", "seen"))
    assert seen.result == seen.attempted == seen.committed == 10
    assert values.committed == df.DistributionResult(count=10, sum=45, min=0, max=9)
    assert values.committed.mean == 4.5
    assert last.committed.value == 4.5
    assert words.committed == {"0", "1"}
    assert counters(result)["a", "bundles"] < 0
    assert ("a", "set up") not in counters(result)


def test_functions_sources_and_inner_transforms_count_for_their_own_step() -> None:
    """A transform that is called while another one works on a bundle, and one whose call is lazy."""

    def numbers(n: int) -> Iterator[int]:
        for number in range(n):
            df.Metrics.counter("test", "made").inc()
            yield number

    def keep(number: int) -> bool:
        df.Metrics.counter("test", "made").inc()
        return number > 0

    p = df.Pipeline()
    p | df.Create([2, 3]) | "make" >> df.FlatMap(numbers) | "keep" >> df.Filter(keep)
    assert counters(p.run()) == {("make", "made"): 5, ("keep", "made"): 5}


def test_what_fails_does_not_count() -> None:
    def fail(number: int) -> int:
        df.Metrics.counter("test", "tried").inc()
        if number == 3:
            raise ValueError
        return number

    p = df.Pipeline(DirectRunner(tries_per_record=3))
    p | df.Create(range(10)) | "fail" >> df.Map(fail)
    assert counters(p.run()) == {("fail", "tried"): 9}


def test_a_filter_takes_names_namespaces_and_parts_of_labels() -> None:
    key = MetricKey("sum/inner/last", MetricName("test", "seen"))
    every = df.MetricsFilter()

    assert every.takes(key)
    assert every.with_name("seen").with_namespace("test").with_step("sum/inner").takes(key)
    assert every.with_names(["other", "seen"]).takes(key)
    assert every.with_steps(["inner"]).takes(key)
    assert not every.with_step("sum/last").takes(key)
    assert not every.with_step("su").takes(key)
    assert not every.with_namespaces([Seen]).takes(key)
    assert not every.with_name("see").takes(key)
    assert every == df.MetricsFilter()


def test_one_text_in_place_of_several_is_refused() -> None:
    with pytest.raises(PipelineError) as caught:
        df.MetricsFilter().with_names("seen")
    assert str(caught.value) == (
        "names must be several texts, and are one: 'seen'\n  what to do: use with_name, or give a list"
    )


@pytest.mark.parametrize(
    ("namespace", "name"), [("", "seen"), ("test", ""), ("test", 3), (None, "x")]
)
def test_a_metric_without_a_name_is_refused(namespace: Any, name: Any) -> None:
    with pytest.raises(
        PipelineError, match=r"the name(space)? of a metric must be a text, and is "
    ):
        df.Metrics.counter(namespace, name)


OF_ANYTHING: Any = df.Metrics


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (
            lambda: OF_ANYTHING.counter("a", "b").inc(1.5),
            "the counter 'b' takes whole numbers, and was given 1.5",
        ),
        (
            lambda: OF_ANYTHING.distribution("a", "b").update("x"),
            "the distribution 'b' takes whole numbers, and was given 'x'",
        ),
        (
            lambda: OF_ANYTHING.gauge("a", "b").set("7"),
            "the gauge 'b' takes numbers, and was given '7'",
        ),
        (
            lambda: OF_ANYTHING.string_set("a", "b").add(7),
            "the string set 'b' takes texts, and was given 7",
        ),
    ],
)
def test_a_wrong_update_names_metric_and_transform(update: Any, text: str) -> None:
    p = df.Pipeline()
    p | df.Create([1]) | "wrong" >> df.Map(lambda _: update())
    with pytest.raises(TransformError, match="wrong") as caught:
        p.run()
    assert text in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    with collecting(), RunningAs("step"):
        df.Metrics.counter("a", "b").inc(np.int64(3))  # type: ignore[arg-type]
        df.Metrics.distribution("a", "b").update(np.int32(3))  # type: ignore[arg-type]
        df.Metrics.gauge("a", "b").set(np.float32(0.5))  # type: ignore[arg-type]
        values = {type(each) for each in take_updates(0).values()}
    assert values == {int, tuple}


def test_outside_of_a_run_nothing_happens() -> None:
    """So a function that counts can be tested by itself."""
    df.Metrics.counter("a", "b").inc()
    df.Metrics.gauge("a", "b").set(1)
    with RunningAs("step"):
        df.Metrics.counter("a", "b").inc()
    assert take_updates(0) == {}


def test_code_that_the_engine_runs_for_itself_does_not_count() -> None:
    seen = df.Metrics.counter("a", "b")
    with collecting():
        seen.inc()
        with RunningAs("step"), uncounted():
            seen.inc()
        with RunningAs("step"):
            seen.inc(5)
        assert list(take_updates(0).values()) == [5]
        assert take_updates(0) == {}


def test_attempts_within_attempts() -> None:
    seen = df.Metrics.counter("a", "b")

    def fail() -> None:
        with attempt():
            seen.inc(100)
            raise ValueError("no")

    with collecting(), RunningAs("step"):
        seen.inc()
        with attempt():
            seen.inc(10)
            with pytest.raises(ValueError, match="no"):
                fail()
        assert list(take_updates(0).values()) == [11]


def test_iterators_that_take_turns_have_updates_of_their_own() -> None:
    def counting(n: int) -> Generator[int]:
        while True:
            with RunningAs("step"):
                df.Metrics.counter("a", "b").inc(n)
            yield sum(take_updates(0).values())

    both = collecting_each(counting(1)), collecting_each(counting(10))
    assert [next(both[turn % 2]) for turn in range(6)] == [1, 10] * 3
    assert running().updates is None


def test_a_thread_of_the_users_counts_with_a_copy_of_the_context(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_updates._Blocks, "has_warned", False)
    seen = df.Metrics.counter("a", "b")

    def run(act: Any) -> None:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    with caplog.at_level(logging.WARNING), collecting(), RunningAs("step"):
        context = contextvars.copy_context()
        run(lambda: context.run(seen.inc, 5))
        run(seen.inc)
        run(seen.inc)
        assert list(take_updates(0).values()) == [5]
    (record,) = caplog.records
    assert record.getMessage() == (
        "the metric 'b' of 'a' was updated in a thread that user code has started: that does not count; run what "
        "the thread does with contextvars.copy_context().run(...)"
    )


def test_a_metric_can_be_kept_and_sent() -> None:
    seen = df.Metrics.counter(Seen, "seen")
    again: Counter = pickle.loads(pickle.dumps(seen))
    assert again == seen


def test_a_set_keeps_the_first_texts(caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"{number:05}" for number in range(STRINGS_MAX + 7)]
    with collecting(), RunningAs("step"):
        for text in reversed(texts):
            df.Metrics.string_set("a", "b").add(text)
        (kept,) = take_updates(0).values()
    assert sorted(kept) == texts[:STRINGS_MAX]
    assert "the string set 'b' of 'step' has more than 1000 texts" in caplog.text


METRICS = {kind: MetricOf("step", Metric(kind, "test", "m")) for kind in MetricKind}
numbers = st.integers(-(2**70), 2**70)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        METRICS[MetricKind.COUNTER]: numbers,
        METRICS[MetricKind.DISTRIBUTION]: st.lists(numbers, min_size=1).map(
            lambda each: (len(each), sum(each), min(each), max(each))
        ),
        METRICS[MetricKind.GAUGE]: st.tuples(
            st.one_of(numbers, st.floats(allow_nan=False)), st.integers(0, 10)
        ),
        METRICS[MetricKind.STRING_SET]: st.frozensets(st.sampled_from("abcdef\n\0")),
    },
)


@given(parts=st.lists(VALUES, max_size=5), cut=st.integers(0, 5))
def test_metrics_are_merged_in_whatever_parts(parts: list[Any], cut: int) -> None:
    """Commits merge steps, and a driver folds rows; what is stored is what was counted."""
    whole = merged_metrics(parts)
    first, second = parts[:cut], parts[cut:]

    assert merged_metrics([merged_metrics(first), merged_metrics(second)]) == whole
    assert decode_metrics(folded([encode_metrics(part) for part in parts])) == whole
    without_gauges = [
        {key: value for key, value in part.items() if key.metric.kind is not MetricKind.GAUGE}
        for part in parts
    ]
    assert merged_metrics(without_gauges) == merged_metrics(without_gauges[::-1])


def test_names_that_are_no_text_are_escaped() -> None:
    odd = {MetricOf("a\ud800", Metric(MetricKind.STRING_SET, "b", "c")): frozenset(["x\udfff"])}
    ((key, value),) = decode_metrics(encode_metrics(odd)).items()
    assert (key.step, value) == ("a\\ud800", {"x\\udfff"})
