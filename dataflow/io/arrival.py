"""Event time from arrival: a record's event time is the instant at which it was read (the paper's 1.2, "ingress time").

`ArrivalTimeSource` does that for any source.  The instant is part of the record from then on: it is committed with
the effects of the record, so a record that is read again after a crash had not been seen before it.

**Invariants**

* Nothing is late: the watermark of a split is the clock at its last reading, and no later record is before it, though
  the clock goes back or another machine reads on.
* What may be read again after it was seen, as in a batch, has the same instant again: that at which the job began.

The one place of the SDK that reads a clock, because a source is read where no other is at hand.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.source import (
    Source,
    SourceBatch,
    SourceReader,
    SplitChanges,
    SplitStatus,
    checked_changes,
    open_split,
)
from windowing.timestamps import MIN_TIMESTAMP_US

#: How often a split that has nothing new reports the time: each report is committed by its receiver.
QUIET_STEP_US = 100_000


def system_now_us() -> int:
    """The machine's clock: microseconds since 1970."""
    return time.time_ns() // 1_000


@attrs.frozen
class ArrivalTime:
    """The value of a read's ``event_time`` that means: records happen when they arrive.

    Args:
        now_us: reads the clock, in microseconds since 1970; one of a test's own, for example.  Pickled with the source.
    """

    now_us: Callable[[], int] = system_now_us


#: The event time of a record is when it was read: ``df.ReadFromCsv(path, event_time=df.ARRIVAL_TIME)``.
ARRIVAL_TIME = ArrivalTime()


@attrs.frozen
class ArrivalSplit:
    """A split of the source, and when the input was divided, which is when the job began."""

    split: Any
    began_us: int


@attrs.frozen
class ArrivalPosition:
    """A position of the source, and the last event time that was given to a record."""

    position: Any
    last_us: int


@attrs.frozen
class ArrivalTimeSource(Source):
    """A source whose records are at the event times at which they are read.

    Times that the source itself gives to records are ignored, and so is its watermark.

    Attributes:
        is_repeatable: all records are at the instant at which the job began.
    """

    source: Source
    arrival: ArrivalTime = ARRIVAL_TIME
    is_repeatable: bool = False

    @property
    def element_type(self) -> Any:
        """The type of the elements of the wrapped source."""
        return self.source.element_type

    @property
    def is_bounded(self) -> bool:
        """Whether the wrapped source is bounded."""
        return self.source.is_bounded

    @property
    def input_name(self) -> str | None:
        """The name of the input, as the wrapped source gives it."""
        return self.source.input_name

    @property
    def keeps_set_aside(self) -> bool:
        """Whether the wrapped source sets records aside that must be kept."""
        return self.source.keeps_set_aside

    @property
    def acknowledges(self) -> bool:
        """Whether the wrapped source does."""
        return self.source.acknowledges

    @property
    def has_trusted_watermark(self) -> bool:
        """True: the watermark is that of the clock."""
        return True

    @property
    def has_arrival_order(self) -> bool:
        """Whether the wrapped source has an order of arrival."""
        return self.source.has_arrival_order

    def check(self) -> None:
        """Check the wrapped source."""
        self.source.check()

    def splits(self, desired: int) -> Sequence[ArrivalSplit]:
        """The splits of the wrapped source, with the time now."""
        began_us = self.arrival.now_us()
        return [ArrivalSplit(split, began_us) for split in self.source.splits(desired)]

    def estimate_size(self) -> int | None:
        """The size of the wrapped source."""
        return self.source.estimate_size()

    @property
    def discover_every_ms(self) -> int | None:
        """How often the wrapped source is asked."""
        return self.source.discover_every_ms

    def discover(self, known: Sequence[ArrivalSplit]) -> SplitChanges:
        """The changes of the wrapped source, with the time now."""
        answer: object = self.source.discover([each.split for each in known])
        changes, began_us = checked_changes(self.source, answer), self.arrival.now_us()
        removed = list(changes.removed)
        return SplitChanges(
            added=[ArrivalSplit(split, began_us) for split in changes.added],
            removed=[each for each in known if each.split in removed],
        )

    def open(
        self, split: ArrivalSplit, position: ArrivalPosition | None, *, fence: int
    ) -> SourceReader:
        """Read on, and not at an earlier time than before."""
        inner_position = None if position is None else position.position
        inner = open_split(self.source, split.split, inner_position, fence=fence)
        last_us = MIN_TIMESTAMP_US if position is None else position.last_us
        reader = _AcknowledgingReader if self.acknowledges else _ArrivalReader
        if self.is_repeatable:
            return reader(inner, split.began_us, None)
        return reader(inner, last_us, self.arrival.now_us)

    def repeatable(self) -> "ArrivalTimeSource":
        """A source whose records have all arrived at one instant."""
        return attrs.evolve(self, source=self.source.repeatable(), is_repeatable=True)


class _ArrivalReader(SourceReader):
    """Reads a split, with the times of arrival as event times.

    Args:
        inner: reads the records.
        last_us: no record is earlier.
        now_us: reads the clock; without one, time does not move.
    """

    def __init__(self, inner: SourceReader, last_us: int, now_us: Callable[[], int] | None) -> None:
        self._inner, self._last_us, self._now_us = inner, last_us, now_us

    def read(self, max_records: int) -> SourceBatch:
        batch, status = self._inner.read(max_records), SplitStatus.ACTIVE
        if self._now_us is None or batch.status is SplitStatus.FINISHED:
            # Otherwise it is never idle: it knows how far time has come, even with nothing to read.
            status = batch.status
        if self._now_us is not None:
            self._last_us = max(self._last_us, self._arrival_us(batch, self._now_us))
        return attrs.evolve(
            batch,
            timestamps_us=[self._last_us] * len(batch.values),
            position=ArrivalPosition(batch.position, self._last_us),
            watermark_us=self._last_us,
            status=status,
        )

    def close(self) -> None:
        self._inner.close()

    def _arrival_us(self, batch: SourceBatch, clock_us: Callable[[], int]) -> int:
        # A test's clock comes with the batch.
        now_us = clock_us() if batch.processing_time_us is None else batch.processing_time_us
        return now_us if batch.values else now_us - now_us % QUIET_STEP_US


class _AcknowledgingReader(_ArrivalReader):
    def committed(self, position: ArrivalPosition) -> None:
        self._inner.committed(position.position)
