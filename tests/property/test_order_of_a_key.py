"""The order in which a key is seen does not depend on arrival where input ends, or where it is asked for."""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from runners.testing.scripted_source import ScriptedSource
from tests.deduplication import (
    Deduplicated,
    DeduplicatedInOrder,
    DeduplicatedOnArrival,
    expected,
)
from windowing.timestamps import MIN_TIMESTAMP_US

#: Small values: those of one instant are in order if their pickles are.
ELEMENTS = st.lists(
    st.tuples(
        st.sampled_from("xy"), st.integers(0, 9), st.sampled_from([*range(0, 300, 30), 59, 61])
    ),
    max_size=12,
)
#: Those of the issue of order: the first of x comes last in the second half.
FOUND = [
    ("x", 1, 0), ("y", 2, 5), ("x", 3, 10), ("x", 4, 59), ("x", 5, 200), ("y", 6, 6), ("x", 7, 230),
]  # fmt: skip


class Endless(ScriptedSource):
    is_bounded = False


NUMBER = df.CombiningValueStateSpec("n", df.CountCombineFn())


def outputs_of(source: Any, fn: df.DoFn, bundle_records: int = 1_000) -> list[Any]:
    found: list[Any] = []
    p = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    p | source | df.ParDo(fn) | df.Map(found.append)
    p.run().wait_until_finish()
    return sorted(found)


def stamped(elements: Sequence[tuple[str, int, int]]) -> list[df.TimestampedValue]:
    return [df.TimestampedValue((key, value), second) for key, value, second in elements]


@given(elements=ELEMENTS, bundle_records=st.integers(1, 12), cut=st.integers(0, 12))
def test_where_input_ends_arrival_means_nothing(
    elements: list[tuple[str, int, int]], bundle_records: int, cut: int
) -> None:
    """In bundles of any size, and through one input or two."""
    answer = expected(elements)

    assert answer == outputs_of(df.Create(stamped(elements)), Deduplicated(), bundle_records)
    found: list[Any] = []
    p = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    halves = [
        p | f"half {number}" >> df.Create(stamped(half))
        for number, half in enumerate((elements[cut:], elements[:cut]))
    ]
    halves | df.Flatten() | df.ParDo(Deduplicated()) | df.Map(found.append)
    p.run().wait_until_finish()
    assert answer == sorted(found)


@given(elements=ELEMENTS, data=st.data())
def test_in_a_stream_it_does_so_where_it_is_asked_for(
    elements: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """However the watermark moves, as long as it keeps its word."""
    stream, left = TestStream(), list(elements)
    while left:
        size = data.draw(st.integers(1, len(left)))
        stream, left = stream.add_elements(stamped(left[:size])), left[size:]
        soonest = min((second for _, _, second in left), default=1_000)
        stream = stream.advance_watermark_to(max(soonest, _watermark(stream)))

    assert expected(elements) == outputs_of(stream, DeduplicatedInOrder())


def _watermark(stream: TestStream) -> float:
    return max(stream._watermark_us, MIN_TIMESTAMP_US) / 1_000_000


def test_the_order_of_arrival_is_there_for_who_wants_it() -> None:
    assert len(expected(FOUND)) == 3
    assert len(outputs_of(df.Create(stamped(FOUND)), DeduplicatedOnArrival())) == 2
    assert len(outputs_of(TestStream().add_elements(stamped(FOUND)), Deduplicated())) == 2


class Log(df.DoFn):
    """Emits everything that it sees; an element can set timers."""

    requires_time_sorted_input = True
    FIRST = df.TimerSpec("first", df.TimeDomain.EVENT)
    SECOND = df.TimerSpec("second", df.TimeDomain.EVENT)

    def process(
        self,
        element: Any,
        /,
        first: Any = df.DoFn.TimerParam(FIRST),
        second: Any = df.DoFn.TimerParam(SECOND),
    ) -> Any:
        yield element[1]
        if element[1] == "sets":
            second.set(10)
            first.set(10)
        if element[1] == "c":
            first.set(5)

    @df.on_timer(FIRST)
    def first_fired(self) -> Any:
        yield "first"

    @df.on_timer(SECOND)
    def second_fired(self) -> Any:
        yield "second"


def test_at_one_instant_timers_come_as_they_were_set_and_then_elements_by_value() -> None:
    """A timer that is set for the past fires before the next element."""
    values = [("d", 10), ("c", 10), ("b", 10), ("sets", 3), ("before", 9), ("after", 11)]
    found: list[Any] = []
    p = df.Pipeline()
    elements = [df.TimestampedValue(("k", value), at) for value, at in values]
    p | df.Create(elements) | df.ParDo(Log()) | df.Map(found.append)
    p.run()

    assert ["sets", "before", "second", "first", "b", "c", "first", "d", "after"] == found


def test_a_late_element_is_seen_when_it_comes() -> None:
    script = (
        TestStream().advance_watermark_to(100).add_elements(stamped([("k", 2, 120), ("k", 1, 50)]))
    )
    found: list[Any] = []
    p = df.Pipeline()
    p | script | df.ParDo(DeduplicatedInOrder()) | df.Map(found.append)
    p.run()

    assert [("k", 1), ("k", 2)] == found


def applied(fn: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        df.Pipeline() | df.Read(Endless()) | fn
    return [each for each in caught if issubclass(each.category, df.ArrivalOrderWarning)]


def test_an_endless_input_is_warned_of_with_the_users_line() -> None:
    for transform in (df.ParDo(Deduplicated()), df.CountWindows(3)):
        (warning,) = applied(transform)
        assert warning.category is df.ArrivalOrderWarning
        assert __file__ == warning.filename
        assert "timers of event time" in str(warning.message)


class OnlyState(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        seen: Any = df.DoFn.StateParam(NUMBER),
    ) -> Any:
        seen.add(1)
        yield seen.read()


@pytest.mark.parametrize(
    "transform",
    [
        df.ParDo(DeduplicatedInOrder()), df.ParDo(DeduplicatedOnArrival()), df.ParDo(OnlyState()),
        df.CountWindows(3, time_sorted=True), df.CountWindows(3, time_sorted=False),
    ],
    ids=["in order", "on arrival", "no timers", "count in order", "count on arrival"],
)  # fmt: skip
def test_whoever_states_what_is_wanted_is_not_warned(transform: Any) -> None:
    assert [] == applied(transform)
