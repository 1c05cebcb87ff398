"""SlidingWindows: windows of one size, a new one every period.  Dataflow Model, section 1.2."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from windowing.errors import not_positive
from windowing.timestamps import DurationLike, clamp_timestamp_us, to_duration_us
from windowing.window import ALL_OF_TIME_US, Window
from windowing.window_columns import Int64s, WindowColumns
from windowing.window_fn import WindowFn


@attrs.frozen(init=False)
class SlidingWindows(WindowFn):
    """Windows ``[offset + n * period, offset + n * period + size)``.

    If the period is less than the size, windows overlap, and a record is in each of those around its event time, about
    ``size / period`` of them: every later grouping does that many times the work.
    If the period is greater than the size, there are pauses between the windows.
    A record in a pause is in no window, because the user has chosen windows that leave it out: it does not reach the
    next grouping, and does not count as a late record.

    Args:
        size: length of a window; positive.
        period: from the start of a window to the start of the next; positive.
        offset: where a window starts, counted from 1970-01-01T00:00:00 UTC; any duration, taken modulo ``period``.

    Raises:
        WindowError: ``size`` or ``period`` is not positive.
        TimeError: an argument is not a duration.
    """

    size_us: int
    period_us: int
    offset_us: int

    def __init__(
        self, size: DurationLike, *, period: DurationLike, offset: DurationLike = 0
    ) -> None:
        size_us, period_us = to_duration_us(size), to_duration_us(period)
        for name, given, length_us in (("size", size, size_us), ("period", period, period_us)):
            if length_us <= 0:
                raise not_positive(f"sliding windows need a positive {name}", given)
        self.__attrs_init__(size_us, period_us, to_duration_us(offset) % period_us)

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The windows around the event time, the earliest first; none in a pause."""
        since_us = timestamp_us - self.offset_us
        return self._numbered(
            since_us // self.period_us, (since_us - self.size_us) // self.period_us, {}
        )

    def assign_bundle(
        self,
        timestamps_us: Sequence[int],
        values: Sequence[Any],
    ) -> Sequence[Sequence[Window]]:
        """The windows around each event time; records in the same windows share the objects."""
        period_us, offset_us = self.period_us, self.offset_us
        past_us = offset_us + self.size_us
        windows: dict[int, Window] = {}
        # The windows around an instant follow from how many have started and how many have ended by then.
        started = [(t - offset_us) // period_us for t in timestamps_us]
        if self.size_us % period_us == 0:  # the common case: whenever one starts, another ends
            count = self.size_us // period_us
            evenly = {last: self._numbered(last, last - count, windows) for last in set(started)}
            return [evenly[last] for last in started]
        ended = [(t - past_us) // period_us for t in timestamps_us]
        spans = list(zip(started, ended, strict=True))
        shared = {span: self._numbered(*span, windows) for span in set(spans)}
        return [shared[span] for span in spans]

    def assign_columns(self, timestamps_us: Int64s) -> WindowColumns | None:
        """The windows around each event time; None near the ends of time, where windows are shorter."""
        period_us = self.period_us
        if max(self.size_us, period_us) > ALL_OF_TIME_US:
            return None
        # Those that have started at an instant, without those that have ended.
        since_us = timestamps_us - self.offset_us
        last = since_us // period_us
        counts = last - (since_us - self.size_us) // period_us
        elements = np.repeat(np.arange(len(timestamps_us)), counts)
        ends = np.cumsum(counts)
        behind = np.arange(len(elements)) - np.repeat(ends - counts, counts)
        first = np.repeat(last - counts + 1, counts)
        starts_us = self.offset_us + (first + behind) * period_us
        return WindowColumns.of_size(starts_us, self.size_us, elements)

    def _numbered(self, last: int, last_ended: int, known: dict[int, Window]) -> Sequence[Window]:
        """The windows that have started, up to number ``last``, without those up to ``last_ended``."""
        numbers = range(last_ended + 1, last + 1)
        for number in numbers:
            if number not in known:
                start_us = self.offset_us + number * self.period_us
                known[number] = Window(
                    clamp_timestamp_us(start_us), clamp_timestamp_us(start_us + self.size_us)
                )
        # Near the ends of time different windows are clamped to the same bounds.
        return tuple(dict.fromkeys(known[number] for number in numbers))
