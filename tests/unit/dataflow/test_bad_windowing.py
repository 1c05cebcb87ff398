"""What cannot be meant about windows and triggers is an error in words: where it is written, else by transform."""

from collections.abc import Callable, Iterable, Sequence
from inspect import currentframe
from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from windowing.timestamps import MAX_TIMESTAMP_US

HERE = "tests/unit/dataflow/test_bad_windowing.py"
DISCARDING = df.AccumulationMode.DISCARDING
#: As typed by a user who does not check his types.
sdk: Any = df


def windowed(**arguments: Any) -> df.WindowInto:
    return sdk.WindowInto(df.FixedWindows(60), accumulation_mode=DISCARDING, **arguments)  # type: ignore[no-any-return]


#: What is written, the error, its fact, and words of its hint.
REFUSED_WHERE_IT_IS_WRITTEN: list[tuple[Callable[[], Any], type[df.DataflowError], str, str]] = [
    (lambda: sdk.Sessions(0), df.WindowError, "sessions need a positive gap, not 0", "above zero"),
    (lambda: sdk.Sessions(-5), df.WindowError, "positive gap, not -5", "above zero"),
    (lambda: sdk.Sessions("60"), df.TimeError, "'60' is not a duration", "number of seconds"),
    (lambda: sdk.Sessions(None), df.TimeError, "None is not a duration", "number of seconds"),
    (lambda: sdk.FixedWindows(0), df.WindowError, "positive size, not 0", "above zero"),
    (lambda: sdk.FixedWindows(-60), df.WindowError, "positive size, not -60", "above zero"),
    (lambda: sdk.FixedWindows(0.0000001), df.WindowError, "positive size, not 1e-07", "above"),
    (lambda: sdk.FixedWindows(float("nan")), df.TimeError, "nan is not a duration", "finite"),
    (lambda: sdk.FixedWindows(60, offset="x"), df.TimeError, "'x' is not a duration", "seconds"),
    (lambda: sdk.SlidingWindows(0, period=5), df.WindowError, "positive size, not 0", "above zero"),
    (lambda: sdk.SlidingWindows(60, period=0), df.WindowError, "positive period, not 0", "above"),
    (lambda: sdk.SlidingWindows(60, period=-1), df.WindowError, "positive period, not -1", "above"),
    (lambda: sdk.PhaseShiftedWindows(0), df.WindowError, "positive size, not 0", "above zero"),
    (
        lambda: sdk.CalendarWindows.days(0, time_zone="UTC"),
        df.WindowError,
        "number of days, not 0",
        "use df.Fixed",
    ),
    (
        lambda: sdk.CalendarWindows.months(1.5, time_zone="UTC"),
        df.WindowError,
        "months, not 1.5",
        "df.Fixed",
    ),
    (lambda: sdk.CalendarWindows.days(time_zone="Mars"), df.WindowError, "not a time zone", "IANA"),
    (
        lambda: sdk.AfterCount(0),
        df.WindowError,
        "AfterCount needs a positive count, not 0",
        "above",
    ),
    (lambda: sdk.AfterCount(-3), df.WindowError, "positive count, not -3", "above zero"),
    (lambda: sdk.AfterCount(2.5), df.WindowError, "positive count, not 2.5", "whole number"),
    (lambda: sdk.AfterCount("3"), df.WindowError, "positive count, not '3'", "whole number"),
    (lambda: sdk.AfterCount(True), df.WindowError, "positive count, not True", "whole number"),
    (lambda: sdk.AfterBytes(0), df.WindowError, "positive size_bytes, not 0", "above zero"),
    (lambda: sdk.AfterPunctuation(5), df.WindowError, "needs a function of a value", "lambda"),
    (sdk.AfterPattern, df.WindowError, "needs functions of a value", "lambda"),
    (lambda: sdk.AfterProcessingTime(-1), df.WindowError, "needs a delay, not -1", "zero or more"),
    (lambda: sdk.AfterProcessingTime("1"), df.TimeError, "'1' is not a duration", "seconds"),
    (lambda: sdk.AtPeriod(0), df.WindowError, "AtPeriod needs a positive period, not 0", "above"),
    (lambda: sdk.AtPeriod(-60), df.WindowError, "positive period, not -60", "above zero"),
    (lambda: sdk.AtPeriod(60, offset="x"), df.TimeError, "'x' is not a duration", "seconds"),
    (lambda: sdk.Repeatedly(5), df.WindowError, "Repeatedly (part) needs a trigger, not 5", "e.g."),
    (lambda: sdk.Repeatedly(df.Always), df.WindowError, "needs a trigger, not <class", "called"),
    (sdk.AfterAny, df.WindowError, "AfterAny needs triggers, not ()", "df.AfterAny("),
    (lambda: sdk.AfterAll(5), df.WindowError, "AfterAll needs triggers, not (5,)", "df.AfterAll("),
    (lambda: sdk.AfterEach(df.Always), df.WindowError, "AfterEach needs triggers", "called"),
    (lambda: sdk.OrFinally(df.Always(), 5), df.WindowError, "OrFinally (until) needs", "e.g."),
    (lambda: sdk.OrFinally(5, df.Always()), df.WindowError, "OrFinally (part) needs", "e.g."),
    (lambda: sdk.AfterWatermark(early=5), df.WindowError, "AfterWatermark (early) needs", "e.g."),
    (lambda: sdk.AfterWatermark(late=df.Always), df.WindowError, "(late) needs", "called"),
    (lambda: sdk.WindowInto(60), df.PipelineError, "needs a window function, not 60", "e.g."),
    (lambda: sdk.WindowInto(df.Sessions), df.PipelineError, "needs a window function", "called"),
    (lambda: windowed(trigger=df.AfterWatermark), df.WindowError, "(trigger) needs", "called"),
    (lambda: windowed(trigger="x"), df.WindowError, "WindowInto (trigger) needs", "called"),
    (lambda: windowed(allowed_lateness=-1), df.WindowError, "negative: -1", "zero or more"),
    (lambda: windowed(allowed_lateness="one day"), df.TimeError, "not a duration", "timedelta"),
    (
        lambda: sdk.WindowInto(df.GlobalWindows(), accumulation_mode="discarding"),
        df.PipelineError,
        "WindowInto (accumulation_mode) cannot be 'discarding'",
        "df.AccumulationMode.DISCARDING, ",
    ),
    (
        lambda: windowed(timestamp_combiner="earliest"),
        df.PipelineError,
        "(timestamp_combiner) cannot be 'earliest'",
        "df.TimestampCombiner.EARLIEST",
    ),
    (
        lambda: windowed(on_time_behavior=True),
        df.PipelineError,
        "(on_time_behavior) cannot be True",
        "df.FiringBehavior.FIRE_ALWAYS",
    ),
    (
        lambda: windowed(closing_behavior=None),
        df.PipelineError,
        "(closing_behavior) cannot be None",
        "df.FiringBehavior.FIRE_IF_NON_EMPTY",
    ),
]


@pytest.mark.parametrize(("write", "error", "fact", "hint"), REFUSED_WHERE_IT_IS_WRITTEN)
def test_it_is_refused_where_it_is_written(
    write: Callable[[], Any], error: type[df.DataflowError], fact: str, hint: str
) -> None:
    """So the traceback ends at the user's own line."""
    with pytest.raises(error) as caught:
        write()

    assert fact in caught.value.fact
    assert hint in caught.value.hint


class Answering(df.MergingWindowFn):
    """A user's window function that assigns and merges as a test asks it to."""

    def __init__(self, assign: Any, merge: Any = lambda windows: []) -> None:
        self.assign, self.merge = assign, merge

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return self.assign(timestamp_us)  # type: ignore[no-any-return]

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        return self.merge(sorted(windows))  # type: ignore[no-any-return]


def proto(timestamp_us: int) -> list[df.Window]:
    """Three records at 0, 1 and 2 microseconds are in windows that overlap."""
    return [df.Window(timestamp_us, timestamp_us + 10)]


def gap_of(element: Any) -> Any:
    return 0


#: The window function, which transform notices, the fact after its name, and words of detail.
REFUSED_IN_THE_RUN: list[tuple[df.WindowFn, str, str, str]] = [
    (df.Sessions(gap_of), "windows", "sessions need a positive gap, not 0", "element ('k', 0)"),
    (sdk.Sessions(lambda element: "x"), "windows", "positive gap, not 'x'", "element ('k', 0)"),
    (df.Sessions(lambda element: element[2]), "windows", "raised IndexError", "element ('k', 0)"),
    (Answering(lambda t: [df.Window(t + 1, t + 9)]), "windows", "does not contain", "('k', 0)"),
    (Answering(lambda t: [df.Window(t - 9, t)]), "windows", "does not contain", "('k', 0)"),
    (
        Answering(lambda t: [df.Window(t, t)]),
        "windows",
        "nothing in it",
        "starts at 0 and ends at 0",
    ),
    (Answering(lambda t: [df.Window(t + 5, t)]), "windows", "nothing in it", "starts at 5"),
    (Answering(lambda t: proto(t) * 2), "windows", "same window twice", "('k', 0)"),
    (Answering(lambda t: None), "windows", "has to assign a list of windows", "returned None"),
    (Answering(lambda t: [(t, t + 9)]), "windows", "something else than a window", "(0, 9)"),
    (
        Answering(lambda t: [df.Window(t, MAX_TIMESTAMP_US + 1)]),
        "windows",
        "outside the years 1 to 9999",
        "starts at 0",
    ),
    (
        Answering(proto, lambda windows: [df.Merge(windows[0], tuple(windows))]),
        "group",
        "does not cover them",
        "became",
    ),
    (
        Answering(proto, lambda windows: [df.Merge(df.Window(0, 99), (df.Window(0, 99),))]),
        "group",
        "merges windows that are not there",
        "was given",
    ),
    (
        Answering(proto, lambda windows: [df.Merge(df.Window(0, 99), (w,)) for w in windows]),
        "group",
        "into one that is there already",
        "became",
    ),
    (
        Answering(proto, lambda windows: [df.Merge(df.Window(0, 99), ())]),
        "group",
        "merges windows that are not there",
        "nothing became",
    ),
    (Answering(proto, lambda windows: 5), "group", "raised TypeError", "while merging"),
]


@pytest.mark.parametrize("bundle_records", [1, 9])
@pytest.mark.parametrize(("window_fn", "name", "fact", "detail"), REFUSED_IN_THE_RUN)
def test_it_is_refused_in_the_run_by_name_and_line(
    window_fn: df.WindowFn, name: str, fact: str, detail: str, bundle_records: int
) -> None:
    """Whether windows merge before the shuffle or only after it."""
    pipeline = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    pairs = [df.TimestampedValue(("k", n), n / 1_000_000) for n in range(3)]
    read = pipeline | df.Create(pairs)
    frame = currentframe()
    assert frame is not None
    line = frame.f_lineno + 1
    read | "windows" >> df.WindowInto(window_fn) | "group" >> df.GroupByKey()
    with pytest.raises(df.WindowError) as caught:
        pipeline.run()

    assert caught.value.fact.startswith(f"transform {name!r} ({HERE}:{line}): ")
    assert fact in caught.value.fact
    assert detail in caught.value.detail
    assert caught.value.hint
