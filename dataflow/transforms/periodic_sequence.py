"""PeriodicSequence: an instant again and again, for each range of time among the elements."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from dataflow.canonical_keys import key_text
from dataflow.do_fn import DoFn, TimestampedValue
from dataflow.errors import TransformError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.state_handles import MapState
from dataflow.times import in_words
from dataflow.transforms.never_retracted import check_never_retracted
from dataflow.transforms.par_do import Map, ParDo
from dataflow.transforms.window_into import WindowInto
from dataflow.user_state import MapStateSpec, TimerFamilySpec, TimerHandle, TimerMap, on_timer
from windowing.errors import DataflowError
from windowing.global_windows import GlobalWindows
from windowing.time_domain import TimeDomain
from windowing.timestamps import (
    DurationLike,
    TimestampLike,
    format_timestamp,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)

#: A range as a key: its start, its stop and its interval, in microseconds.
_Range = tuple[int, int, int]

_NEXT = MapStateSpec("next")
_COME = TimerFamilySpec("come", TimeDomain.PROCESSING, holds_watermark=True, keeps_window=True)
#: The most instants that are emitted at once, so that a range which begins long ago is divided among many steps.
_INSTANTS_MAX = 10_000
_SOON = timedelta(microseconds=1)


class PeriodicSequence(PTransform[Any, Any]):
    """The instants of each ``(start, stop, interval)`` that it is given, each when the clock has reached it.

    An instant is a datetime in UTC, in the global window; the first is the start, and none is at or after the stop.
    Those that have passed when the range comes are emitted at once.  An instant is its own event time, or has that of
    its range if that is later, and the watermark waits for the next one, so none is late.  How far each range has come
    is state, so its instants are emitted once, across failures and restarts.

    A stream whose ranges have all come ends when their instants have; when it is drained, those that are still to come
    are not emitted.  In batch, which has no clock, and on the direct runner, where it is that of a `TestStream`, all
    instants are there when the input has ended.  For windows put `WindowInto` behind it.  `PeriodicImpulse` has one
    range, which is known when the pipeline is built, and may have no stop.

    Raises:
        PipelineError: when applied, the input may be retracted.

    Raises, where the pipeline runs:
        TransformError: an element is no such range.
    """

    def expand(
        self, pcoll: PCollection[tuple[TimestampLike, TimestampLike, DurationLike]]
    ) -> PCollection[datetime]:
        """Keep the next instant of each range."""
        check_never_retracted(
            pcoll,
            "emits instants when their time has come",
            "instants that have been emitted for a range could not be found again",
            "put df.ToChangelog() before it",
        )
        ranges = pcoll | "range" >> Map(_as_range)
        with pcoll.pipeline.without_handling():
            windowed = ranges | "windows" >> WindowInto(GlobalWindows())
            instants: PCollection[datetime] = windowed | "instants" >> ParDo(_InstantsFn())
            return instants


def _as_range(element: Any) -> tuple[_Range, None]:
    if not isinstance(element, tuple) or len(element) != 3:
        raise _no_range(element, "")
    try:
        start_us, stop_us = map(to_timestamp_us, element[:2])
        interval_us = to_duration_us(element[2])
    except DataflowError as error:
        raise _no_range(element, f": {error.fact}") from error
    if interval_us <= 0:
        raise _no_range(element, f", and the interval is {in_words(interval_us)}")
    if stop_us < start_us:
        is_before = f"{format_timestamp(stop_us)} < {format_timestamp(start_us)}"
        raise _no_range(element, f", and the stop is before the start: {is_before}")
    return (start_us, stop_us, interval_us), None


def _no_range(element: Any, why: str) -> TransformError:
    return TransformError(
        "it needs ranges of time, (start, stop, interval)",
        detail=f"it was given {key_text(element)}{why}",
        hint="start and stop are datetimes with a time zone, text, or seconds since 1970; the interval is a timedelta, "
        "text or seconds, and positive",
    )


class _InstantsFn(DoFn):
    # Ranges do not depend on each other.
    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[_Range, None],
        /,
        at: datetime = DoFn.TimestampParam,
        following: MapState = DoFn.StateParam(_NEXT),
        come: TimerMap = DoFn.TimerParam(_COME),
    ) -> None:
        start_us, stop_us, _ = element[0]
        if start_us < stop_us:
            # Equal ranges have one key, and each has a timer, which waits for it alone.
            tag = next(tag for tag in map(str, count()) if not following.contains(tag))
            following.put(tag, start_us)
            _set(come.get(tag), start_us, to_timestamp_us(at))

    @on_timer(_COME)
    def emit(
        self,
        key: _Range = DoFn.KeyParam,
        tag: str = DoFn.DynamicTimerTagParam,
        at: datetime = DoFn.TimestampParam,
        following: MapState = DoFn.StateParam(_NEXT),
        come: TimerMap = DoFn.TimerParam(_COME),
    ) -> Iterator[TimestampedValue[datetime]]:
        _, stop_us, interval_us = key
        timer, first_us = come.get(tag), following.get(tag)
        last_us = min(to_timestamp_us(timer.now), stop_us - 1)
        number = min(_INSTANTS_MAX, (last_us - first_us) // interval_us + 1)
        next_us = first_us + number * interval_us
        for instant_us in range(first_us, next_us, interval_us):
            instant = to_datetime(instant_us)
            yield TimestampedValue(instant, max(instant, at))
        if next_us < stop_us:
            following.put(tag, next_us)
            _set(timer, next_us, to_timestamp_us(at))
        else:
            following.remove(tag)


def _set(timer: TimerHandle, instant_us: int, at_us: int) -> None:
    """Set a timer for an instant; for one that has passed very soon, and not in the same step."""
    output_at = to_datetime(max(instant_us, at_us))
    if instant_us <= to_timestamp_us(timer.now):
        timer.set_after(_SOON, output_timestamp=output_at)
    else:
        timer.set(to_datetime(instant_us), output_timestamp=output_at)
