"""WHERE in event time results are computed: timestamps, windows, window functions, panes.

Pure values and laws; the lowest layer.  Dataflow Model, sections 1.2 and 2.2.
"""

from windowing.fixed import FixedWindows
from windowing.global_windows import GlobalWindows
from windowing.pane import PaneInfo, PaneTiming
from windowing.sessions import Sessions
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    DurationLike,
    TimestampLike,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)
from windowing.window import GLOBAL_WINDOW, Window
from windowing.window_fn import Merge, MergingWindowFn, WindowFn

__all__ = [
    "GLOBAL_WINDOW",
    "MAX_TIMESTAMP_US",
    "MIN_TIMESTAMP_US",
    "DurationLike",
    "FixedWindows",
    "GlobalWindows",
    "Merge",
    "MergingWindowFn",
    "PaneInfo",
    "PaneTiming",
    "Sessions",
    "TimestampLike",
    "Window",
    "WindowFn",
    "to_datetime",
    "to_duration_us",
    "to_timestamp_us",
]
