"""InputWatermark: the event time up to which all key ranges of a computation on a worker have fired their timers."""

from collections.abc import Mapping

from runners.core.stages.stage_clocks import StageClocks
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange
from triggers.clocks import Clocks
from windowing.timestamps import MIN_TIMESTAMP_US


class InputWatermark:
    """How far in event time the ranges of one computation on one worker have fired their timers.

    Args:
        ranges: those that are owned; as they are at each call.
        follows_percentile: whether triggers follow a percentile watermark.
    """

    def __init__(self, ranges: Mapping[RangeId, OwnedRange], *, follows_percentile: bool) -> None:
        self._ranges, self._follows_percentile = ranges, follows_percentile
        #: The input watermark that every due timer up to it has fired for.
        self.watermark_us = MIN_TIMESTAMP_US
        #: The same for the percentile watermark, which matters where the triggers follow one.
        self.percentile_us = MIN_TIMESTAMP_US
        #: Whether a range was taken over that may still have to fire what has fired for the other ranges.
        self.is_behind = False
        #: The event time of the earliest pane that a window of any range is still to emit; None: there is none.
        self.window_hold_us: int | None = None
        #: How far the former owner of a range taken over had come: all senders had, so it holds for the others too.
        self._taken_us = self._taken_percentile_us = MIN_TIMESTAMP_US

    def take(self, owned: OwnedRange) -> None:
        """Add a range that was taken over."""
        self.is_behind = True
        self._taken_us = max(self._taken_us, owned.stored_input_watermark_us)
        if self._follows_percentile and owned.percentile_us is not None:
            self._taken_percentile_us = max(self._taken_percentile_us, owned.percentile_us)

    @property
    def furthest_us(self) -> int:
        """How far any range has come, here or at a former owner: all senders had come so far."""
        return max(self.watermark_us, self._taken_us)

    def is_before(self, clocks: Clocks) -> bool:
        """Whether timers may be due at these watermarks."""
        return (
            self.is_behind
            or clocks.watermark_us > self.watermark_us
            or clocks.percentile_us > self.percentile_us
        )

    def known(self, clocks: Clocks) -> StageClocks:
        """The clocks, with the watermarks as far as they are known: the master's may be behind the ones reached here.

        Args:
            clocks: those of the master.
        """
        return StageClocks(
            watermark_us=max(clocks.watermark_us, self.watermark_us, self._taken_us),
            percentile_us=max(clocks.percentile_us, self.percentile_us, self._taken_percentile_us),
            output_watermark_us=self.output_watermark_us,
            now_us=clocks.now_us,
            is_drained=clocks.is_drained,
        )

    def reached(self, now_us: int) -> StageClocks:
        """The clocks, with the watermarks that all ranges have reached.

        Args:
            now_us: the processing time, in microseconds.
        """
        return StageClocks(
            watermark_us=self.least_us,
            percentile_us=self.percentile_us,
            output_watermark_us=self.output_watermark_us,
            now_us=now_us,
        )

    @property
    def output_watermark_us(self) -> int:
        """A bound on every output watermark that any of the ranges can have reported."""
        hold_us, least_us = self.window_hold_us, self.least_us
        return least_us if hold_us is None else min(least_us, hold_us)

    @property
    def least_us(self) -> int:
        """The lowest input watermark of the ranges."""
        if not self.is_behind:
            return self.watermark_us
        # The former owner of a range just taken over may have reached less.
        return min([self.watermark_us, *(owned.watermark_us for owned in self._ranges.values())])

    def act_in_part(self, clocks: Clocks, until_us: int | None) -> None:
        """Note that some of the timers that are due have fired.

        What has fired may have left no state behind, so whoever owns a range next has to know by which watermark: a
        record that is late by that would else open its window once more.

        Args:
            clocks: by which they have fired.
            until_us: the event time until which all have, in microseconds; None: it is as it was.
        """
        for owned in self._ranges.values():
            owned.firing_us = clocks.watermark_us
            if until_us is not None:
                owned.watermark_us = max(owned.watermark_us, until_us)

    def act_on(self, clocks: Clocks) -> None:
        """Note that all timers that were due have fired."""
        self.watermark_us = max(self.watermark_us, clocks.watermark_us)
        self.percentile_us = max(self.percentile_us, clocks.percentile_us)
        self.is_behind = False
        for owned in self._ranges.values():
            owned.watermark_us, owned.firing_us = self.watermark_us, None
            owned.percentile_us = self.percentile_us if self._follows_percentile else None
