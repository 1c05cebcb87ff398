"""SlidingWindows: windows of one size, a new one every period.  Dataflow Model, section 1.2.

Their slices (`WindowFn.slice_fn`) are the paired windows of Krishnamurthy, Wu and Franklin, "On-the-fly sharing for
streamed aggregation" (2006): a window begins at the start of each period, and another one ends within it.
"""

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

    def slice_fn(self) -> WindowFn | None:
        """From each start or end of a window to the next; None if windows do not overlap."""
        if self.size_us <= self.period_us:
            return None
        return _Slices(self.period_us, self.size_us % self.period_us, self.offset_us)

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


@attrs.frozen
class _Slices(WindowFn):
    """Periods, cut in two at an instant in them; not cut at 0.

    Args:
        period_us: length of a period; positive.
        cut_us: from the start of a period to where it is cut.
        offset_us: where a period starts.
    """

    period_us: int
    cut_us: int
    offset_us: int

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        into_us = (timestamp_us - self.offset_us) % self.period_us
        start_us = timestamp_us - into_us
        return (self._part(start_us if into_us < self.cut_us else start_us + self.cut_us),)

    def assign_bundle(
        self, timestamps_us: Sequence[int], values: Sequence[Any]
    ) -> Sequence[Sequence[Window]]:
        period_us, cut_us, offset_us = self.period_us, self.cut_us, self.offset_us
        starts_us = [t - (t - offset_us) % period_us for t in timestamps_us]
        if cut_us:
            pairs = zip(timestamps_us, starts_us, strict=True)
            starts_us = [start if t < start + cut_us else start + cut_us for t, start in pairs]
        shared = {start_us: (self._part(start_us),) for start_us in set(starts_us)}
        return [shared[start_us] for start_us in starts_us]

    def assign_columns(self, timestamps_us: Int64s) -> WindowColumns | None:
        if self.period_us > ALL_OF_TIME_US:
            return None
        into_us = (timestamps_us - self.offset_us) % self.period_us
        starts_us = timestamps_us - into_us
        if not self.cut_us:
            return WindowColumns.of_size(starts_us, self.period_us)
        # A period that is within time has both of its parts there.
        if WindowColumns.of_size(starts_us, self.period_us) is None:
            return None
        is_first = into_us < self.cut_us
        cuts_us = starts_us + self.cut_us
        return WindowColumns(
            np.where(is_first, starts_us, cuts_us),
            np.where(is_first, cuts_us, starts_us + self.period_us),
        )

    def _part(self, start_us: int) -> Window:
        """The part that starts at an instant."""
        into_us = (start_us - self.offset_us) % self.period_us
        length_us = self.cut_us if into_us < self.cut_us else self.period_us - into_us
        return Window(clamp_timestamp_us(start_us), clamp_timestamp_us(start_us + length_us))
