"""PeriodicSequence: the instants of ranges, each when the clock has reached it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from dataflow.transforms import periodic_sequence
from tests.unit.dataflow.test_refused_state import refused
from tests.unit.dataflow.test_user_state import retracting
from tests.unit.dataflow.transforms.test_transforms import run
from windowing.window import GLOBAL_WINDOW

START = datetime(2020, 1, 1, tzinfo=UTC)
Range = tuple[float, float, float]


def seconds(instants: list[Any]) -> list[float]:
    return [each.timestamp() for each in instants]


def instants_of(given: Range) -> list[float]:
    """Worked out one after the other."""
    start, stop, interval = given
    found = []
    while start < stop:
        found.append(start)
        start += interval
    return found


ranges = st.tuples(st.integers(-20, 20), st.integers(0, 15), st.sampled_from([0.5, 1, 4, 100])).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2])
)


@given(st.lists(ranges, max_size=6), st.integers(1, 5))
def test_all_instants_of_each_range_are_there_when_the_input_has_ended(
    given: list[Range], at_once: int
) -> None:
    """Also where they come in many steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(periodic_sequence, "_INSTANTS_MAX", at_once)
        found = run(df.PeriodicSequence(), values=given)

    assert sorted(each for some in given for each in instants_of(some)) == sorted(seconds(found))


@given(
    st.lists(st.tuples(ranges, st.integers(1, 12)), min_size=1, max_size=5),
    st.integers(0, 30),
)
def test_an_instant_is_there_when_the_clock_has_reached_it(
    given: list[tuple[Range, int]], until: int
) -> None:
    """And none behind the watermark: groups of five seconds lose none."""
    stream, now = TestStream().advance_processing_time_to(0), 0
    for each, waits in given:
        stream, now = stream.add_elements([each]).advance_processing_time(waits), now + waits
    stream = stream.advance_processing_time(until).send_signal("look")
    now += until
    p = df.Pipeline()
    instants = p | stream | df.PeriodicSequence()
    pairs: Any = instants | df.Map(lambda at: (None, at.timestamp()))
    looked = pairs | "look" >> df.WindowInto(
        df.GlobalWindows(),
        trigger=df.AfterSignal("look"),
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )
    windows = pairs | df.WindowInto(df.FixedWindows(5))
    seen = looked | "seen" >> df.GroupByKey() | df.Reify.Window()
    found: list[Any] = []
    grouped: list[Any] = []
    seen | df.Map(lambda each: found.append(each[0][1]))
    windows | "group" >> df.GroupByKey() | "grouped" >> df.Map(lambda each: grouped.extend(each[1]))
    p.run().wait_until_finish()

    expected = sorted(each for some, _ in given for each in instants_of(some))
    assert sorted(grouped) == expected
    come = [each for each in expected if each <= now]
    assert come == (sorted(found[0]) if come else [])


def test_an_instant_is_its_event_time_or_has_that_of_its_range() -> None:
    values = [df.TimestampedValue((0, "1970-01-01T00:00:40Z", timedelta(seconds=20)), 10)]
    p = df.Pipeline()
    ranges: Any = p | df.Create(values) | df.WindowInto(df.FixedWindows(5))
    found = df.collect(ranges | df.PeriodicSequence() | df.Reify.Window())

    shown = [(each.timestamp(), at.timestamp(), window) for each, at, window in found]
    assert [(0, 10, GLOBAL_WINDOW), (20, 20, GLOBAL_WINDOW)] == shown


@pytest.mark.parametrize(
    ("element", "detail"),
    [
        (7, "it was given 7"),
        ((0, 1), "it was given (0, 1)"),
        ((0, 1, 0), "the interval is 0 seconds"),
        ((0, 1, -1), "and the interval is -1"),
        (
            (5, 1, 1),
            "the stop is before the start: 1970-01-01T00:00:01+00:00 < 1970-01-01T00:00:05",
        ),
        (("today", 1, 1), "today"),
        ((0, 1, "often"), "often"),
    ],
)
def test_what_is_no_range_is_an_error_or_a_bad_element(element: Any, detail: str) -> None:
    pipeline = df.Pipeline()
    ranges = pipeline | df.Create([element, (0, 2, 1)]).with_output_types(Any)
    instants, bad = ranges | df.PeriodicSequence().with_exception_handling()
    (failed,) = df.collect(bad)

    assert [0, 1] == seconds(df.collect(instants))
    assert failed.element == element
    assert detail in failed.failure.message
    with pytest.raises(df.TransformError, match="it needs ranges of time") as failure:
        df.collect(ranges | "unhandled" >> df.PeriodicSequence())
    assert "'unhandled/range' (tests/unit/dataflow/transforms/test_periodic_sequence.py:" in str(
        failure.value
    )


def test_elements_of_another_type_are_refused() -> None:
    with pytest.raises(df.PipelineError, match=r"takes tuple.* and is given int"):
        df.Pipeline() | df.Create([7]) | df.PeriodicSequence()  # type: ignore[operator]


def test_input_that_may_be_retracted_is_refused() -> None:
    error = refused(df.PeriodicSequence(), *retracting(), df.Values().with_output_types(Any))

    assert "emits instants when their time has come" in str(error)
