"""Deduplicate and DeduplicatePerKey: the first of equal elements within some time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from dataflow.do_fn import DoFn
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.state_handles import ReadModifyWriteState, clear_all
from dataflow.transforms.keys import Values
from dataflow.transforms.never_retracted import check_never_retracted
from dataflow.transforms.par_do import Map, ParDo
from dataflow.type_vars import K, T, V
from dataflow.user_state import (
    ReadModifyWriteStateSpec,
    TimerHandle,
    TimerSpec,
    on_timer,
)
from windowing.time_domain import TimeDomain
from windowing.timestamps import (
    DurationLike,
    clamp_timestamp_us,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)

_SEEN = ReadModifyWriteStateSpec("seen")
_EVENT_TIME = TimerSpec("event time", TimeDomain.EVENT)
_PROCESSING_TIME = TimerSpec("processing time", TimeDomain.PROCESSING)


class DeduplicatePerKey(PTransform[Any, Any]):
    """The first ``(key, value)`` pair of each key and window, and none of that key for some time after it.

    The time begins with the pair that is emitted; the next pair of the key after it is emitted again.  Where both times
    are given, the one that has passed first counts.  "First" is by event time where the input ends by itself, and in a
    stream by arrival.  That a key was seen is kept as state, so it holds across failures and restarts.
    `Distinct` needs no time, and follows retractions.

    Args:
        processing_time_duration: by the clock; `timedelta`, text or seconds; None: the clock does not matter.  In batch
            the clock does not move before all input is there.
        event_time_duration: by event time, from that of the emitted pair until the watermark has come so far; None:
            event time does not matter.

    Raises:
        PipelineError: neither time is given, or one is not positive; when applied, the input may be retracted, or its
            windows may merge.
        TimeError: one is not a duration.
    """

    def __init__(
        self,
        processing_time_duration: DurationLike | None = None,
        event_time_duration: DurationLike | None = None,
    ) -> None:
        self._durations_us = _checked(
            type(self).__name__, processing_time_duration, event_time_duration
        )

    def expand(self, pcoll: PCollection[tuple[K, V]]) -> PCollection[tuple[K, V]]:
        """Add the stateful DoFn."""
        _check_input(pcoll)
        with pcoll.pipeline.without_handling():
            return pcoll | "first" >> ParDo(_FirstFn(*self._durations_us))


class Deduplicate(PTransform[Any, Any]):
    """The first of equal elements of a window, and none that equals it for some time after it.

    Elements are keys as for `GroupByKey`, which also says which of them are equal.

    Args:
        processing_time_duration: as for `DeduplicatePerKey`.
        event_time_duration: likewise.

    Raises:
        PipelineError: as for `DeduplicatePerKey`.
        TimeError: a time is not a duration.
    """

    def __init__(
        self,
        processing_time_duration: DurationLike | None = None,
        event_time_duration: DurationLike | None = None,
    ) -> None:
        self._durations_us = _checked(
            type(self).__name__, processing_time_duration, event_time_duration
        )

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Deduplicate with the element as key."""
        _check_input(pcoll)
        with pcoll.pipeline.without_handling():
            pairs = pcoll | "key" >> Map(_beside_itself)
            return pairs | "first" >> ParDo(_FirstFn(*self._durations_us)) | "value" >> Values()


def _beside_itself(element: Any) -> tuple[Any, Any]:
    return element, element


def _checked(
    name: str, processing: DurationLike | None, event: DurationLike | None
) -> tuple[int | None, int | None]:
    given_us = [None if each is None else to_duration_us(each) for each in (processing, event)]
    if all(each is None for each in given_us):
        raise PipelineError(
            f"{name} needs a processing_time_duration, or an event_time_duration, or both",
            hint="how long equal elements are left out after the first; df.Distinct() has no end but the window's",
        )
    if any(each is not None and each <= 0 for each in given_us):
        raise PipelineError(f"{name} needs positive durations, not {processing!r} and {event!r}")
    return given_us[0], given_us[1]


def _check_input(pcoll: PCollection[Any]) -> None:
    check_never_retracted(
        pcoll,
        "emits the first of equal elements",
        "without an element, another would have been the first",
        "use df.Distinct(), which follows retractions, or put df.ToChangelog() before it",
    )


class _FirstFn(DoFn):
    # Documented: in a stream, the first is the one that arrives first.
    is_made_for_arrival_order = True

    def __init__(self, processing_us: int | None, event_us: int | None) -> None:
        self._processing_us, self._event_us = processing_us, event_us

    def process(
        self,
        element: tuple[Any, Any],
        /,
        at: datetime = DoFn.TimestampParam,
        seen: ReadModifyWriteState = DoFn.StateParam(_SEEN),
        event: TimerHandle = DoFn.TimerParam(_EVENT_TIME),
        processing: TimerHandle = DoFn.TimerParam(_PROCESSING_TIME),
    ) -> Iterator[tuple[Any, Any]]:
        if seen.read() is not None:
            return
        seen.write(1)
        if self._event_us is not None:
            event.set(to_datetime(clamp_timestamp_us(to_timestamp_us(at) + self._event_us)))
        if self._processing_us is not None:
            processing.set_after(timedelta(microseconds=self._processing_us))
        yield element

    @on_timer(_EVENT_TIME)
    def forget_by_event_time(
        self,
        seen: ReadModifyWriteState = DoFn.StateParam(_SEEN),
        processing: TimerHandle = DoFn.TimerParam(_PROCESSING_TIME),
    ) -> None:
        clear_all(seen, processing)

    @on_timer(_PROCESSING_TIME)
    def forget_by_the_clock(
        self,
        seen: ReadModifyWriteState = DoFn.StateParam(_SEEN),
        event: TimerHandle = DoFn.TimerParam(_EVENT_TIME),
    ) -> None:
        clear_all(seen, event)
