"""FixedWindows: windows of one size, without gaps or overlaps.  Dataflow Model, section 1.2."""

from collections.abc import Sequence
from typing import Any

import attrs

from windowing.errors import not_positive
from windowing.timestamps import DurationLike, clamp_timestamp_us, to_duration_us
from windowing.window import ALL_OF_TIME_US, Window
from windowing.window_columns import Int64s, WindowColumns
from windowing.window_fn import WindowFn


@attrs.frozen(init=False)
class FixedWindows(WindowFn):
    """Windows ``[offset + n * size, offset + (n + 1) * size)``.

    Args:
        size: length of a window; positive.
        offset: where a window starts, counted from 1970-01-01T00:00:00 UTC; any duration, taken modulo ``size``.

    Raises:
        WindowError: ``size`` is not positive.
        TimeError: an argument is not a duration.
    """

    size_us: int
    offset_us: int

    def __init__(self, size: DurationLike, *, offset: DurationLike = 0) -> None:
        size_us = to_duration_us(size)
        if size_us <= 0:
            raise not_positive("fixed windows need a positive size", size)
        self.__attrs_init__(size_us, to_duration_us(offset) % size_us)

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The one window around the event time."""
        start_us = timestamp_us - (timestamp_us - self.offset_us) % self.size_us
        return (_clamped(start_us, start_us + self.size_us),)

    def assign_bundle(
        self,
        timestamps_us: Sequence[int],
        values: Sequence[Any],
    ) -> Sequence[Sequence[Window]]:
        """The one window around each event time; records in the same window share one object."""
        size_us, offset_us = self.size_us, self.offset_us
        starts_us = [t - (t - offset_us) % size_us for t in timestamps_us]
        shared = {
            start_us: (_clamped(start_us, start_us + size_us),) for start_us in set(starts_us)
        }
        return [shared[start_us] for start_us in starts_us]

    def assign_columns(self, timestamps_us: Int64s) -> WindowColumns | None:
        """The one window around each event time; None near the ends of time, where windows are shorter."""
        if self.size_us > ALL_OF_TIME_US:
            return None
        starts_us = timestamps_us - (timestamps_us - self.offset_us) % self.size_us
        return WindowColumns.of_size(starts_us, self.size_us)


def _clamped(start_us: int, end_us: int) -> Window:
    return Window(clamp_timestamp_us(start_us), clamp_timestamp_us(end_us))
