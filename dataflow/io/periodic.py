"""PeriodicImpulse: an element at every instant of a sequence, for what has to happen again and again.

The instants are ``start + number * interval``, whatever the clock does: one is emitted when the clock has reached it,
and those that it passed while nobody read are emitted when somebody reads again.  The position in the split is the
number of the next one, so each is emitted once, across failures and restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import attrs

from dataflow.errors import PipelineError
from dataflow.graph import MAIN, AssignWindows
from dataflow.io.arrival import ARRIVAL_TIME, ArrivalTime
from dataflow.io.create import Read
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.source import Backlog, Source, SourceBatch, SourceReader, SplitStatus
from dataflow.times import in_words
from triggers.windowing_strategy import WindowingStrategy
from windowing.fixed import FixedWindows
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    DurationLike,
    TimestampLike,
    format_timestamp,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline


class PeriodicImpulse(PTransform["Pipeline", PCollection[datetime]]):
    """Emits an instant, a datetime in UTC that is its own event time, whenever the clock reaches the next one.

    Without a stop it is unbounded, and only for a stream.  In batch, which has no clock, all instants up to the stop
    are there at once.

    Args:
        start_timestamp: the first instant: a datetime with a time zone, text, or seconds since 1970; None: when the job
            begins.
        stop_timestamp: no instant is at or after it; None: it goes on for ever.
        fire_interval: from one instant to the next; `timedelta`, text or seconds.
        apply_windowing: whether each is in a window of its own, of the length of the interval; else all are in the
            global window.

    Raises:
        PipelineError: the interval is not positive, or the stop is before the start.
        TimeError: a time names no instant, or the interval is not a duration.
    """

    def __init__(
        self,
        start_timestamp: TimestampLike | None = None,
        stop_timestamp: TimestampLike | None = None,
        fire_interval: DurationLike = 360,
        *,
        apply_windowing: bool = False,
    ) -> None:
        start_us, stop_us = (
            None if each is None else to_timestamp_us(each)
            for each in (start_timestamp, stop_timestamp)
        )
        interval_us = to_duration_us(fire_interval)
        if interval_us <= 0:
            raise PipelineError(
                f"PeriodicImpulse needs a positive fire_interval, not {in_words(interval_us)}",
                hint="it is the time from one impulse to the next, in seconds where it is a number",
            )
        if start_us is not None and stop_us is not None and stop_us < start_us:
            raise PipelineError(
                "PeriodicImpulse has a stop_timestamp that is before its start_timestamp",
                detail=f"{format_timestamp(stop_us)} < {format_timestamp(start_us)}",
            )
        self._source = PeriodicSource(start_us, stop_us, interval_us)
        self._apply_windowing = apply_windowing

    def expand(self, pcoll: Pipeline) -> PCollection[datetime]:
        """Read the instants."""
        impulses: PCollection[datetime] = pcoll | "read" >> Read(self._source)
        if not self._apply_windowing:
            return impulses
        return impulses | "window" >> _Windowed(timedelta(microseconds=self._source.interval_us))


class _Windowed(PTransform[PCollection[datetime], PCollection[datetime]]):
    def __init__(self, size: timedelta) -> None:
        self._strategy = WindowingStrategy(window_fn=FixedWindows(size))

    def expand(self, pcoll: PCollection[datetime]) -> PCollection[datetime]:
        operation = AssignWindows(self._strategy.window_fn)
        return pcoll.pipeline.add_operation(operation, [pcoll], self._strategy)[MAIN]


@attrs.frozen
class PeriodicSource(Source):
    """The instants of a `PeriodicImpulse`, in one split, which is the first of them.

    Attributes:
        start_us, stop_us: half-open, in microseconds since 1970; no start: when the input is divided.
        interval_us: from one to the next, in microseconds.
        clock: says which instants have come.
        is_repeatable: all have come.
    """

    start_us: int | None
    stop_us: int | None
    interval_us: int
    clock: ArrivalTime = ARRIVAL_TIME
    is_repeatable: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether there is a last instant."""
        return self.stop_us is not None

    @property
    def has_trusted_watermark(self) -> bool:
        """True: it is the next instant, however far that is ahead of the clock."""
        return True

    @property
    def input_name(self) -> str:
        """The interval, and the first instant if it is given."""
        start = "" if self.start_us is None else f" from {format_timestamp(self.start_us)}"
        return f"every {in_words(self.interval_us)}{start}"

    def splits(self, desired: int) -> Sequence[int]:
        """The first instant."""
        return [self.clock.now_us() if self.start_us is None else self.start_us]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        """Read on from the instant with a number."""
        return _PeriodicReader(self, split, position or 0)

    def repeatable(self) -> PeriodicSource:
        """A source that does not wait for the clock."""
        return attrs.evolve(self, is_repeatable=True)


class _PeriodicReader(SourceReader):
    def __init__(self, source: PeriodicSource, start_us: int, number: int) -> None:
        self._source, self._start_us, self._next = source, start_us, number
        stop_us = MAX_TIMESTAMP_US if source.stop_us is None else source.stop_us
        self._end = max(0, -(-(stop_us - start_us) // source.interval_us))

    def read(self, max_records: int) -> SourceBatch:
        there, now_us = self._end, None
        if not self._source.is_repeatable:
            now_us = self._source.clock.now_us()
            passed_us = now_us - self._start_us
            there = min(there, max(self._next, passed_us // self._source.interval_us + 1))
        end = min(there, self._next + max_records)
        timestamps_us = [self._at_us(number) for number in range(self._next, end)]
        self._next = end
        is_finished = self._next >= self._end
        return SourceBatch(
            values=[to_datetime(each) for each in timestamps_us],
            timestamps_us=timestamps_us,
            position=self._next,
            watermark_us=MAX_TIMESTAMP_US if is_finished else self._at_us(self._next),
            status=SplitStatus.FINISHED if is_finished else SplitStatus.ACTIVE,
            backlog=self._backlog(there - end, now_us),
        )

    def _backlog(self, records: int, now_us: int | None) -> Backlog:
        """The instants that have come and are not read; without a clock none has an age."""
        if not records:
            return Backlog(records=0, age_us=0)
        age_us = None if now_us is None else max(0, now_us - self._at_us(self._next))
        return Backlog(records=records, age_us=age_us)

    def _at_us(self, number: int) -> int:
        return self._start_us + number * self._source.interval_us
