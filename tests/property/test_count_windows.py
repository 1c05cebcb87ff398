"""CountWindows against lists cut with slices: the last ``size`` of every ``period`` elements of each key."""

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import MIN_TIMESTAMP_US

US = 1_000_000
HOUR = 10

#: Key, hour, and where in the hour; the value is the place in the stream, so that each is different.
ELEMENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, HOUR - 1)), max_size=30
)
SIZES = st.integers(1, 7)


def counted(
    transform: df.CountWindows, elements: Sequence[tuple[str, int, int]], bundle_records: int
) -> dict[tuple[str, int], list[Any]]:
    """What is emitted for each key and hour, with the event time in seconds."""
    emitted: dict[tuple[str, int], list[Any]] = {}

    def see(
        result: Any, window: Any = df.DoFn.WindowParam, at: Any = df.DoFn.TimestampParam
    ) -> None:
        key, values = result
        hour = window.start_us // (HOUR * US)
        emitted.setdefault((key, hour), []).append((values, at.timestamp()))

    arrivals = [((key, n), hour * HOUR + at) for n, (key, hour, at) in enumerate(elements)]
    bundles = [
        arrivals[start : start + bundle_records]
        for start in range(0, len(arrivals), bundle_records)
    ]
    script = [
        Batch([pair for pair, _ in bundle], [at * US for _, at in bundle], MIN_TIMESTAMP_US)
        for bundle in bundles
    ]
    with df.Pipeline(DirectRunner()) as p:
        (
            p
            | df.Read(ScriptedSource(script))
            | df.WindowInto(df.FixedWindows(HOUR))
            | transform
            | df.Map(see)
        )
    return emitted


def cut(values: Sequence[Any], size: int, period: int) -> tuple[list[Any], list[Any]]:
    """What is emitted when it is complete, and what is left at the end."""
    complete = [values[max(0, end - size) : end] for end in range(period, len(values) + 1, period)]
    ends = range(len(values) // period * period + period, len(values) + size, period)
    return complete, [values[max(0, end - size) :] for end in ends]


def expected(
    elements: Sequence[tuple[str, int, int]],
    size: int,
    period: int,
    *,
    time_sorted: bool,
    leading: bool = True,
    trailing: bool = True,
) -> dict[tuple[str, int], list[Any]]:
    emitted = {}
    for place in {(key, hour) for key, hour, _ in elements}:
        mine = [
            (n, hour * HOUR + at)
            for n, (key, hour, at) in enumerate(elements)
            if (key, hour) == place
        ]
        if time_sorted:
            mine.sort(key=lambda each: each[1])
        complete, rest = cut(mine, size, period)
        if not leading:
            # The n-th window ends with the element of number n times the period.
            few = sum(1 for n in range(1, len(complete) + len(rest) + 1) if n * period < size)
            complete, rest = complete[few:], rest[max(0, few - len(complete)) :]
        rest = rest if trailing else []
        results = [([n for n, _ in window], float(window[-1][1])) for window in complete]
        end = (place[1] + 1) * HOUR - 1e-6
        results += [([n for n, _ in window], end) for window in rest]
        if results:
            emitted[place] = results
    return emitted


@given(ELEMENTS, SIZES, SIZES, st.integers(1, 6))
def test_results_are_the_last_of_every_period_in_order_of_arrival(
    elements: list[tuple[str, int, int]], size: int, period: int, bundle_records: int
) -> None:
    """Sliding, tumbling and with pauses; for each key and event-time window by itself, whatever the bundles."""
    emitted = counted(df.CountWindows(size, period=period), elements, bundle_records)

    assert expected(elements, size, period, time_sorted=False) == emitted


@given(ELEMENTS, SIZES, SIZES, st.integers(1, 6))
def test_in_time_order_the_order_of_arrival_does_not_matter(
    elements: list[tuple[str, int, int]], size: int, period: int, bundle_records: int
) -> None:
    """Where two elements have one event time, their values decide; here these are numbers."""
    transform = df.CountWindows(size, period=period, time_sorted=True)

    assert expected(elements, size, period, time_sorted=True) == counted(
        transform, elements, bundle_records
    )


@given(ELEMENTS, SIZES, SIZES, st.booleans(), st.booleans())
@example([("a", 0, 0)] * 9, 5, 2, False, True)  # the size is no multiple of the period
def test_windows_with_too_few_can_be_left_out(
    elements: list[tuple[str, int, int]], size: int, period: int, leading: bool, trailing: bool
) -> None:
    transform = df.CountWindows(size, period=period, emit_leading=leading, emit_trailing=trailing)
    emitted = counted(transform, elements, 4)

    assert emitted == expected(
        elements, size, period, time_sorted=False, leading=leading, trailing=trailing
    )
    if not leading and not trailing:
        assert all(len(values) == size for results in emitted.values() for values, _ in results)


@given(ELEMENTS, SIZES)
def test_every_element_is_in_one_window_of_a_period_of_the_size(
    elements: list[tuple[str, int, int]], size: int
) -> None:
    """Nothing is lost, nothing is emitted twice; sums are those of the lists."""
    sums = counted(df.CountWindows(size, combine_fn=sum), elements, 5)
    lists = counted(df.CountWindows(size), elements, 5)

    assert sorted(n for emitted in lists.values() for values, _ in emitted for n in values) == list(
        range(len(elements))
    )
    assert {
        place: [(sum(values), at) for values, at in emitted] for place, emitted in lists.items()
    } == sums
