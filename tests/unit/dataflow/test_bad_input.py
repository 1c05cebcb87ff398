"""The mistakes that a windowed pipeline makes easiest: each is an error in words, with the transform and the line."""

from collections.abc import Callable, Iterable, Sequence
from inspect import getsourcelines
from typing import Any

import pytest

import dataflow as df
from dataflow.graph import PipelineGraph
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.simulation.test_worker_crashes import Cluster

HERE = "tests/unit/dataflow/test_bad_input.py"
US = 1_000_000
RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
#: Late for the first time at second 20, so that what was emitted before is retracted.
SECONDS = ((0, 5, 40), (20,))


class Endless(ScriptedSource):
    """Declares that it does not end."""

    is_bounded = False


class Elsewhere(df.WindowFn):
    """Assigns a window that the element is not in."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return [df.Window(timestamp_us + 5, timestamp_us + 9)]


class Losing(df.MergingWindowFn):
    """Merges into the first window, without room for the others."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return [df.Window(timestamp_us, timestamp_us + 30 * US)]

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        first, *more = sorted(windows)
        return [df.Merge(first, (first, *more))] if more else []


class Numbered(df.DoFn):
    """Keeps state, and declares nothing of retractions."""

    SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())

    def process(self, element: Any, seen: Any = df.DoFn.StateParam(SEEN)) -> Any:
        seen.add(element[1])
        yield element


def zero_gap(clicks: df.PCollection[Any]) -> None:
    clicks | "visits" >> df.WindowInto(df.Sessions(0)) | df.GroupByKey()  # here


def zero_gap_of_an_element(clicks: df.PCollection[Any]) -> None:
    clicks | "visits" >> df.WindowInto(df.Sessions(lambda click: 0)) | df.GroupByKey()  # here


def negative_size(clicks: df.PCollection[Any]) -> None:
    clicks | "minutes" >> df.WindowInto(df.FixedWindows(-60)) | df.GroupByKey()  # here


def negative_sliding_size(clicks: df.PCollection[Any]) -> None:
    clicks | "m" >> df.WindowInto(df.SlidingWindows(-60, period=9)) | df.GroupByKey()  # here


def period_of_zero(clicks: df.PCollection[Any]) -> None:
    clicks | "m" >> df.WindowInto(df.SlidingWindows(60, period=0)) | df.GroupByKey()  # here


def trigger_with_a_period_of_zero(clicks: df.PCollection[Any]) -> None:
    trigger = df.Repeatedly(df.AtPeriod(0))  # here
    clicks | df.WindowInto(df.FixedWindows(60), trigger=trigger) | df.GroupByKey()


def trigger_that_never_fires(clicks: df.PCollection[Any]) -> None:
    endless = clicks.pipeline | "endless" >> df.Read(Endless([]))
    endless | "sums" >> df.CombinePerKey(sum)  # here


def windows_without_the_element(clicks: df.PCollection[Any]) -> None:
    clicks | "odd" >> df.WindowInto(Elsewhere()) | df.GroupByKey()  # here


def merge_that_loses_windows(clicks: df.PCollection[Any]) -> None:
    visits = clicks | df.WindowInto(Losing())
    visits | "visits" >> df.GroupByKey()  # here


def retracting(clicks: df.PCollection[Any]) -> df.PCollection[Any]:
    return clicks | df.WindowInto(
        df.Sessions(25), allowed_lateness=600, accumulation_mode=RETRACTING
    )


def state_that_is_not_retracted(clicks: df.PCollection[Any]) -> None:
    visits = retracting(clicks) | "visits" >> df.CombinePerKey(sum)
    visits | "numbered" >> df.ParDo(Numbered())  # here


def unhashable_values(clicks: df.PCollection[Any]) -> None:
    visits = retracting(clicks) | "visits" >> df.GroupByKey()
    visits | "again" >> df.GroupByKey()  # here


Build = Callable[[df.PCollection[Any]], None]
#: What is built, how the fact begins (where no transform is there yet, the detail names the line), and words of each.
REFUSED_WHEN_BUILT: list[tuple[Build, str, str, str, str]] = [
    (zero_gap, "", "sessions need a positive gap, not 0", "written at", "above zero"),
    (negative_size, "", "need a positive size, not -60", "written at", "above zero"),
    (negative_sliding_size, "", "need a positive size, not -60", "written at", "above zero"),
    (period_of_zero, "", "need a positive period, not 0", "written at", "above zero"),
    (trigger_with_a_period_of_zero, "", "AtPeriod needs a positive", "written at", "above zero"),
    (
        trigger_that_never_fires,
        "'sums'",
        "would never emit anything",
        "no WindowInto comes after transform 'endless'",
        "df.FixedWindows(60)",
    ),
    (
        state_that_is_not_retracted,
        "'numbered'",
        "retracted by transform 'visits'",
        "Numbered does not declare that it handles retractions",
        "handles_retractions = True",
    ),
]
REFUSED_IN_THE_RUN: list[tuple[Build, str, str, str, str]] = [
    (
        zero_gap_of_an_element,
        "'visits'",
        "sessions need a positive gap, not 0",
        "the element ('k', 0)",
        "above zero for every element",
    ),
    (
        windows_without_the_element,
        "'odd'",
        "Elsewhere assigns a window that does not contain the element",
        "for the element ('k', 0)",
        "correct the window function",
    ),
    (
        merge_that_loses_windows,
        "'visits'",
        "Losing merges windows into one that does not cover them",
        "became",
        "correct the window function",
    ),
    (
        unhashable_values,
        "'again'",
        "given a value that cannot be hashed",
        "value [",
        "use tuples for lists",
    ),
]


def line_of(build: Build) -> int:
    """The line with the comment "here"."""
    lines, first = getsourcelines(build)
    return first + next(n for n, text in enumerate(lines) if text.endswith("# here\n"))


def check_words(error: df.DataflowError, build: Build, words: tuple[str, str, str, str]) -> None:
    label, fact, detail, hint = words
    where = f"{HERE}:{line_of(build)}"
    if label:
        assert error.fact.startswith(f"transform {label} ({where})")
    else:
        assert error.detail == f"written at {where}"
    assert fact in error.fact
    assert detail in error.detail
    assert hint in error.hint
    assert all(each in str(error) for each in (error.fact, error.detail, error.hint))


@pytest.mark.parametrize(
    ("build", "words"),
    [(build, tuple(words)) for build, *words in REFUSED_WHEN_BUILT + REFUSED_IN_THE_RUN],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_it_is_refused_in_words(build: Build, words: tuple[str, str, str, str]) -> None:
    """With a fact, a detail and what to do, on the direct runner."""
    stream = TestStream()
    for seconds in SECONDS:
        stream = stream.add_elements([df.TimestampedValue(("k", s), s) for s in seconds])
        stream = stream.advance_watermark_to(100)

    def run() -> None:
        with df.Pipeline(DirectRunner()) as p:
            build(p | stream)

    with pytest.raises(df.DataflowError) as caught:
        run()

    check_words(caught.value, build, words)


def graph_of(build: Build) -> PipelineGraph:
    script = [
        Batch([("k", s) for s in seconds], [s * US for s in seconds], 100 * US)
        for seconds in SECONDS
    ]
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline | df.Read(ScriptedSource(script)))
    return pipeline.graph()


@pytest.mark.parametrize(
    ("build", "words"),
    [(build, tuple(words)) for build, *words in REFUSED_IN_THE_RUN],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_job_fails_with_the_same_words(build: Build, words: tuple[str, str, str, str]) -> None:
    """Whichever worker meets it, the driver raises it, with the user's own line."""
    cluster = Cluster(graph_of(build), seed=0, crash_rate=0)
    with pytest.raises(df.DataflowError) as caught:
        cluster.run()

    error: Any = caught.value
    while error.__cause__ is not None and not isinstance(error, df.TransformError | df.WindowError):
        error = error.__cause__
    check_words(error, build, words)
