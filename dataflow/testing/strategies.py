"""Hypothesis strategies for pipelines: times, disorder, watermarks, bundles, whole streams, windows, triggers.

All is small and crowded: instants lie within ten minutes, most within two, and mostly on whole ten seconds, so that in
most examples windows collide, merge, are corrected and expire.  Where windows are of another size, give ``step``: it is
what these ten seconds are.  Everything shrinks towards few elements, in order, in one bundle.

Needs hypothesis: ``pip install "dataflow-model[testing]"``.
"""

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from dataflow.distribution import install_command

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        f"dataflow.testing.strategies needs hypothesis: {install_command('testing')}"
    ) from error

import dataflow as df
from dataflow.testing.test_stream import TestStream
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    DurationLike,
    to_datetime,
    to_duration_us,
)

_STEP_S = 10
#: Steps within which most instants are, and all.
_CROWD, _SPAN = 12, 60
_WHOLE_SECONDS = st.sampled_from([60, 30, 10, 120, 1, 45, 300])
_OFFSETS = st.sampled_from([0, 10, -5, 61])
_ZONES = st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])

Values = st.SearchStrategy[Any]


def timestamps_us(
    *, anywhere: bool = False, step: DurationLike = _STEP_S
) -> st.SearchStrategy[int]:
    """Event times in microseconds: on a grid of ten seconds in the first ten minutes of 1970, or just beside it.

    Args:
        anywhere: also in all the years that there are, and at their ends; for window functions.
        step: between two instants of the grid; all are within 60 of them, most within 12.
    """
    step_us = to_duration_us(step)
    grid = (st.integers(0, _CROWD) | st.integers(0, _SPAN)).map(lambda steps: steps * step_us)
    # One microsecond beside the grid: where windows begin and end.
    near = st.builds(lambda at_us, beside_us: at_us + beside_us, grid, st.sampled_from([0, -1, 1]))
    if anywhere:
        return grid | near | st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US - 1)
    return grid | near


def keyed_values() -> Values:
    """Pairs of one of two keys and a small number."""
    return st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 9))


def elements(
    values: Values | None = None, *, max_size: int = 12, step: DurationLike = _STEP_S
) -> st.SearchStrategy[list[df.TimestampedValue]]:
    """Elements with event times, in any order.

    Args:
        values: the elements themselves; by default `keyed_values`.
        max_size: how many at most.
        step: of their instants, as for `timestamps_us`: a part of the length of the windows that they are for.
    """
    values = keyed_values() if values is None else values
    return st.lists(st.builds(_stamped, values, timestamps_us(step=step)), max_size=max_size)


@st.composite
def bundles(draw: st.DrawFn, items: Sequence[Any]) -> list[list[Any]]:
    """Ways to cut a sequence into bundles, none of them empty.

    Args:
        draw: of hypothesis.
        items: the sequence to cut.
    """
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(items) - 1)))) if len(items) > 1 else [])
    return [list(items[i:k]) for i, k in zip([0, *cuts], [*cuts, len(items)], strict=True) if i < k]


@st.composite
def watermark_paths(
    draw: st.DrawFn,
    split: Sequence[Sequence[df.TimestampedValue]],
    *,
    late: bool = False,
    step: DurationLike = _STEP_S,
) -> list[int]:
    """Watermarks in microseconds after each bundle: they never go back.

    Args:
        draw: given by hypothesis.
        split: the bundles.
        late: let some run ahead of elements that are still to come, so that these are late; else none does.
        step: of the instants of elements.
    """
    path: list[int] = []
    watermark_us = MIN_TIMESTAMP_US
    for index in range(len(split)):
        coming = [each.timestamp_us for bundle in split[index + 1 :] for each in bundle]
        limit_us = min(coming, default=2 * _SPAN * to_duration_us(step))
        if late:
            limit_us = max(limit_us, draw(timestamps_us(step=step)))
        # Shrinks towards a watermark that does not advance; the other end is as far as it may.
        wanted_us = draw(st.just(MIN_TIMESTAMP_US) | timestamps_us(step=step) | st.just(limit_us))
        watermark_us = max(watermark_us, min(wanted_us, limit_us))
        path.append(watermark_us)
    return path


@st.composite
def arrivals(
    draw: st.DrawFn,
    items: Sequence[df.TimestampedValue],
    *,
    late: bool = False,
    moves_clock: bool = True,
    step: DurationLike = _STEP_S,
) -> TestStream:
    """Ways in which given elements can come: their order, bundles, the watermark, and processing time.

    Args:
        draw: given by hypothesis.
        items: the elements.
        late: whether elements may be behind the watermark when they come.
        moves_clock: whether processing time goes on.
        step: of the instants of elements.
    """
    split = draw(bundles(draw(st.permutations(items))))
    stream, path = TestStream(), draw(watermark_paths(split, late=late, step=step))
    for bundle, watermark_us in zip(split, path, strict=True):
        if moves_clock and (seconds := draw(st.sampled_from([0, 10, 60, 1]))):
            stream = stream.advance_processing_time(seconds)
        stream = stream.add_elements(bundle)
        if watermark_us > MIN_TIMESTAMP_US:
            stream = stream.advance_watermark_to(to_datetime(watermark_us))
    return stream


@st.composite
def streams(
    draw: st.DrawFn,
    values: Values | None = None,
    *,
    late: bool = False,
    moves_clock: bool = True,
    max_size: int = 12,
    step: DurationLike = _STEP_S,
) -> TestStream:
    """Whole streams: elements in bundles, out of order, with the watermark and processing time moving between.

    Args:
        draw: given by hypothesis.
        values: the elements themselves; by default `keyed_values`.
        late: whether elements may be behind the watermark when they come; otherwise nothing is ever dropped.
        moves_clock: whether processing time goes on.
        max_size: how many elements at most.
        step: of their instants, as for `elements`.
    """
    items = draw(elements(values, max_size=max_size, step=step))
    return draw(arrivals(items, late=late, moves_clock=moves_clock, step=step))


def window_fns(
    *, merging: bool | None = None, keyed: bool = True
) -> st.SearchStrategy[df.WindowFn]:
    """Every window function that there is, with sizes that suit `timestamps_us`.

    Args:
        merging: True for those that merge only, False for the others only.
        keyed: whether elements are ``(key, value)`` pairs, as phase-shifted windows need.
    """
    those_that_merge = st.one_of(
        st.builds(df.Sessions, _WHOLE_SECONDS), st.just(df.Sessions(_own_gap))
    )
    calendars: list[Callable[..., df.WindowFn]] = [
        df.CalendarWindows.days,
        df.CalendarWindows.weeks,
        df.CalendarWindows.months,
        df.CalendarWindows.years,
    ]
    those_that_do_not = [
        st.builds(df.FixedWindows, _WHOLE_SECONDS, offset=_OFFSETS),
        st.builds(df.SlidingWindows, _WHOLE_SECONDS, period=_WHOLE_SECONDS, offset=_OFFSETS),
        st.just(df.GlobalWindows()),
        st.builds(
            lambda unit, n, zone, start: unit(n, time_zone=zone, start=start),
            st.sampled_from(calendars[:1] + calendars[2:]),
            st.integers(1, 3),
            _ZONES,
            st.sampled_from([date(1970, 1, 1), date(2024, 1, 15)]),
        ),
        st.builds(
            lambda n, zone: df.CalendarWindows.weeks(n, time_zone=zone), st.integers(1, 3), _ZONES
        ),
    ]
    if keyed:
        those_that_do_not.append(st.builds(df.PhaseShiftedWindows, _WHOLE_SECONDS))
    if merging is None:
        return st.one_of(*those_that_do_not, those_that_merge)
    return those_that_merge if merging else st.one_of(*those_that_do_not)


def triggers() -> st.SearchStrategy[df.Trigger]:
    """Every trigger that there is, and compositions of them."""
    return st.recursive(
        st.one_of(
            st.just(df.DefaultTrigger()),
            st.just(df.AfterWatermark()),
            st.builds(df.AfterCount, st.integers(1, 4)),
            st.builds(df.AfterProcessingTime, st.sampled_from([0, 1, 10, 60])),
            st.builds(df.AtPeriod, st.sampled_from([60, 10, 7])),
            st.builds(df.AfterBytes, st.sampled_from([1, 20])),
            st.just(df.AfterSignal("flush")),
            st.just(df.AfterPunctuation(_is_third)),
            st.just(df.AfterPattern(_is_third, _is_even)),
            st.just(df.Always()),
            st.just(df.Never()),
        ),
        _composites,
        max_leaves=5,
    )


def accumulation_modes() -> st.SearchStrategy[df.AccumulationMode]:
    """The three of them."""
    return st.sampled_from(df.AccumulationMode)


@st.composite
def windowings(
    draw: st.DrawFn,
    *,
    window_fn: st.SearchStrategy[df.WindowFn] | None = None,
    trigger: st.SearchStrategy[df.Trigger] | None = None,
    accumulation_mode: st.SearchStrategy[df.AccumulationMode] | None = None,
) -> dict[str, Any]:
    """Whole windowings, as arguments: ``df.WindowInto(**windowing)``.

    Args:
        draw: given by hypothesis.
        window_fn: by default `window_fns`.
        trigger: by default `triggers`.
        accumulation_mode: by default `accumulation_modes`.
    """
    return {
        "window_fn": draw(window_fns() if window_fn is None else window_fn),
        "trigger": draw(triggers() if trigger is None else trigger),
        "accumulation_mode": draw(
            accumulation_modes() if accumulation_mode is None else accumulation_mode
        ),
        "allowed_lateness": draw(st.sampled_from([0, 60, 5, 600])),
        "timestamp_combiner": draw(st.sampled_from(df.TimestampCombiner)),
        "on_time_behavior": draw(st.sampled_from(df.FiringBehavior)),
        "closing_behavior": draw(st.sampled_from(df.FiringBehavior)),
        "watermark_percentile": draw(st.sampled_from([100, 99, 50])),
    }


def _composites(parts: st.SearchStrategy[df.Trigger]) -> st.SearchStrategy[df.Trigger]:
    several = st.lists(parts, min_size=1, max_size=3)
    maybe = st.none() | parts
    return st.one_of(
        st.builds(df.Repeatedly, parts),
        several.map(lambda each: df.AfterEach(*each)),
        several.map(lambda each: df.AfterAny(*each)),
        several.map(lambda each: df.AfterAll(*each)),
        st.builds(df.OrFinally, parts, parts),
        st.builds(lambda early, late: df.AfterWatermark(early=early, late=late), maybe, maybe),
    )


def _stamped(value: Any, timestamp_us: int) -> df.TimestampedValue:
    return df.TimestampedValue(value, to_datetime(timestamp_us))


def _own_gap(element: Any) -> int:
    """A gap that differs from element to element, and is the same in every process."""
    return 10 + 15 * (_number(element) % 3)


def _is_third(value: Any) -> bool:
    return _number(value) % 3 == 0


def _is_even(value: Any) -> bool:
    return _number(value) % 2 == 0


def _number(value: Any) -> int:
    return sum(repr(value).encode())
