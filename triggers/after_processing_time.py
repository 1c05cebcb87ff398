"""AfterProcessingTime and AtPeriod: triggers that fire by processing time.

The state is the deadline, set by the first record of a pane; None while there is no record.
"""

from abc import abstractmethod
from collections.abc import Sequence

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.clocks import Clocks
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.errors import WindowError, not_positive
from windowing.timestamps import DurationLike, clamp_timestamp_us, to_duration_us
from windowing.window import Window


class _Deadline(Trigger):
    """Fires once, at a deadline that the first record sets."""

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires once, and has then finished."""
        return EarlyFirings.THEN_FINISHES

    @abstractmethod
    def deadline_us(self, now_us: int) -> int:
        """The deadline of a pane whose first record comes now, both in microseconds."""

    def on_elements(
        self, state: int | None, window: Window, elements: Elements, clocks: Clocks
    ) -> int:
        """Set the deadline, if this is the first record."""
        return clamp_timestamp_us(self.deadline_us(clocks.now_us)) if state is None else state

    def should_fire(self, state: int | None, window: Window, clocks: Clocks) -> bool:
        """Whether the deadline has passed."""
        return state is not None and clocks.now_us >= state

    def on_fire(self, state: int | None, window: Window, clocks: Clocks) -> Progress:
        """It fires once, and has then finished."""
        return Progress(None, is_finished=True)

    def next_timers(self, state: int | None, window: Window, clocks: Clocks) -> TriggerTimers:
        """A timer at the deadline."""
        return TriggerTimers(processing_us=state)

    def merge_states(self, states: Sequence[int | None], window: Window) -> int | None:
        """The earliest deadline, since the first record of the merged window was the first one of one of them."""
        return min((state for state in states if state is not None), default=None)

    def awaited(self, state: int | None, window: Window, clocks: Clocks) -> Awaited:
        """The deadline; before there is one, the record that sets it."""
        is_met = self.should_fire(state, window, clocks)
        return Awaited(kind=AwaitedKind.CLOCK, is_met=is_met, until_us=state)


@attrs.frozen(init=False)
class AfterProcessingTime(_Deadline):
    """Fires once, ``delay`` after the first record of the pane came.

    In batch, processing time stands still until the input has ended.

    Args:
        delay: not negative.

    Raises:
        WindowError: it is negative.
        TimeError: it is no duration.
    """

    delay_us: int

    def __init__(self, delay: DurationLike) -> None:
        delay_us = to_duration_us(delay)
        if delay_us < 0:
            raise WindowError(
                f"AfterProcessingTime needs a delay, not {delay!r}",
                hint="give a timedelta, text or a number of seconds, zero or more",
            )
        self.__attrs_init__(delay_us)

    def deadline_us(self, now_us: int) -> int:
        """The instant one delay from now."""
        return now_us + self.delay_us


@attrs.frozen(init=False)
class AtPeriod(_Deadline):
    """Fires once, at the next multiple of ``period`` in processing time, as figure 12 of the paper does each minute.

    Args:
        period: positive.
        offset: from where multiples are counted, after 1970-01-01T00:00:00 UTC.

    Raises:
        WindowError: the period is not positive.
        TimeError: one of them is no duration.
    """

    period_us: int
    offset_us: int

    def __init__(self, period: DurationLike, *, offset: DurationLike = 0) -> None:
        period_us = to_duration_us(period)
        if period_us <= 0:
            raise not_positive("AtPeriod needs a positive period", period)
        self.__attrs_init__(period_us, to_duration_us(offset) % period_us)

    def deadline_us(self, now_us: int) -> int:
        """The next multiple after now."""
        return now_us + self.period_us - (now_us - self.offset_us) % self.period_us
