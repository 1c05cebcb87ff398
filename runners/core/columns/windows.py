"""Windows assigned as columns: what the window functions of `windowing` return, for all instants at once."""

import numpy as np

from dataflow.columns import Int64s, IntColumn, WindowColumn
from windowing.fixed import FixedWindows
from windowing.global_windows import GlobalWindows
from windowing.sessions import Sessions
from windowing.sliding import SlidingWindows
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_fn import WindowFn

_ALL_OF_TIME_US = MAX_TIMESTAMP_US - MIN_TIMESTAMP_US


def assigned(
    window_fn: WindowFn, timestamps: IntColumn
) -> tuple[Int64s | None, WindowColumn] | None:
    """The windows of elements with these event times.

    Args:
        window_fn: assigns the windows.
        timestamps: the event times, in microseconds.

    Returns:
        For each window the index of its element (None: one window for each element, in order), and the windows; None
        where the window function has to be called for each element: another function, or event times near the ends of
        time.
    """
    times_us = timestamps.array
    lengths_us = [getattr(window_fn, name, 0) for name in ("size_us", "period_us", "gap_us")]
    if not len(times_us) or max(each or 0 for each in lengths_us) > _ALL_OF_TIME_US:
        return None
    indexes, size_us = None, 0
    if type(window_fn) is GlobalWindows:
        size_us = _ALL_OF_TIME_US
        starts_us = np.full(len(times_us), MIN_TIMESTAMP_US)
    elif type(window_fn) is FixedWindows:
        size_us = window_fn.size_us
        starts_us = times_us - (times_us - window_fn.offset_us) % size_us
    elif type(window_fn) is SlidingWindows:
        size_us = window_fn.size_us
        indexes, starts_us = _sliding(window_fn, times_us)
    elif type(window_fn) is Sessions and window_fn.gap_us is not None:
        starts_us, size_us = times_us, window_fn.gap_us
    else:
        return None
    if not len(starts_us):
        return indexes, WindowColumn(starts_us, starts_us, size_us)
    # Windows that would reach beyond the ends of time are cut there, which only the window function itself does.
    if int(starts_us.min()) < MIN_TIMESTAMP_US or int(starts_us.max()) + size_us > MAX_TIMESTAMP_US:
        return None
    return indexes, WindowColumn(starts_us, starts_us + size_us, size_us)


def _sliding(window_fn: SlidingWindows, times_us: Int64s) -> tuple[Int64s, Int64s]:
    """The windows of `SlidingWindows`: those that have started at an instant, without those that have ended."""
    period_us = window_fn.period_us
    since_us = times_us - window_fn.offset_us
    last = since_us // period_us
    counts = last - (since_us - window_fn.size_us) // period_us
    indexes = np.repeat(np.arange(len(times_us)), counts)
    ends = np.cumsum(counts)
    behind = np.arange(len(indexes)) - np.repeat(ends - counts, counts)
    first = np.repeat(last - counts + 1, counts)
    return indexes, window_fn.offset_us + (first + behind) * period_us
