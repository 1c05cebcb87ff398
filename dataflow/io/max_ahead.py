"""MaxAhead: how far event times may be ahead of the clock, before a record is set aside.

A watermark that follows the newest record follows a wrong one too: a clock set to 2099, a time in milliseconds taken
for seconds.  Everything that is right is late from then on, and no watermark goes back.  So a record that is further
ahead than it can be does not advance the watermark: its reader leaves it out, and reports that.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import system_now_us
from dataflow.set_aside import Origin, SetAside
from dataflow.times import in_words
from windowing.timestamps import (
    US_PER_SECOND,
    DurationLike,
    clamp_timestamp_us,
    to_datetime,
    to_duration_us,
)

#: A day: more than clocks and time zones differ.
DEFAULT_MAX_AHEAD = timedelta(days=1)


@attrs.frozen
class MaxAhead:
    """Decides which event times are too far ahead.

    Args:
        limit_us: how far ahead of the clock an event time may be.
        now_us: reads the clock, in microseconds since 1970; one of a test's own, for example.
    """

    limit_us: int
    now_us: Callable[[], int] = system_now_us

    @classmethod
    def of(
        cls, name: str, max_ahead: DurationLike | None, now_us: Callable[[], int] = system_now_us
    ) -> "MaxAhead | None":
        """The limit, from the argument of a read; None if every event time is taken.

        Args:
            name: of the read, for messages.
            max_ahead: as the user gave it, in seconds where it is a number; None: no limit.
            now_us: the clock, in microseconds.

        Raises:
            PipelineError: it is negative.
            TimeError: it is no duration.
        """
        if max_ahead is None:
            return None
        limit_us = to_duration_us(max_ahead)
        if limit_us < 0:
            raise PipelineError(
                f"{name} was given a negative max_ahead, {max_ahead!r}",
                hint="it is how far event times may be ahead of the clock: zero or more, or None",
            )
        return cls(limit_us, now_us)

    def since(self, began_us: int) -> "MaxAhead":
        """A limit whose clock stays at the beginning of the reading, for input that may be read again."""
        return attrs.evolve(self, now_us=_Still(began_us))

    def ceiling_us(self) -> int:
        """The latest event time that is taken now."""
        return clamp_timestamp_us(self.now_us() + self.limit_us)

    def set_aside(
        self, name: str, origin: Origin | None, element: Any, timestamp_us: int
    ) -> SetAside:
        """The record to set aside because it is too far ahead: of a file of this name, or of a source.

        Args:
            name: of the read.
            origin: where in a file the record is; None: it is of another source.
            element: the record.
            timestamp_us: its event time, in microseconds.
        """
        now_us = self.now_us()
        ahead = in_words((timestamp_us - now_us) // US_PER_SECOND * US_PER_SECOND)
        limit = in_words(self.limit_us)
        error = InputError(
            f"{name} has a record whose event time is ahead of the clock by {ahead}",
            detail=f"{origin or 'a record'}: its event time is {to_datetime(timestamp_us)}, "
            f"the clock was at {to_datetime(now_us)}, and max_ahead is {limit}; the record is a dead letter, "
            "and event time does not follow it",
            hint="correct the record or event_time; if such times are right, give the read a larger max_ahead, or None",
        )
        return SetAside(
            error=error,
            origin=origin,
            element=element,
            timestamp_us=timestamp_us,
            is_always_kept=True,
        )


def newest_up_to(times_us: Sequence[int], ceiling_us: int) -> int | None:
    """The newest of some event times that is not later than a ceiling; None: there is none.

    Args:
        times_us: in any order; may be a column.
        ceiling_us: as for `SourceReader.ignore_after`.
    """
    newest_us = newest_of(times_us)
    if newest_us is None or newest_us <= ceiling_us:
        return newest_us
    return max((time_us for time_us in times_us if time_us <= ceiling_us), default=None)


def newest_of(times_us: Sequence[int]) -> int | None:
    """The newest of some event times; None: there is none.

    Args:
        times_us: in any order; may be a column.
    """
    if not len(times_us):
        return None
    array = getattr(times_us, "array", None)
    return max(times_us) if array is None else int(array.max())


@attrs.frozen
class _Still:
    now_us: int

    def __call__(self) -> int:
        return self.now_us
