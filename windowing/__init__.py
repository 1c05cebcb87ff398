"""WHERE in event time results are computed: timestamps, windows, window functions, panes.

Pure values and laws; the lowest layer.  Dataflow Model, sections 1.2 and 2.2.
"""

from windowing.calendar_windows import CalendarWindows
from windowing.fixed import FixedWindows
from windowing.global_windows import GlobalWindows
from windowing.merging import merge_overlapping
from windowing.pane import PaneInfo, PaneTiming
from windowing.phase_shifted import PhaseShiftedWindows
from windowing.sessions import Sessions
from windowing.sliding import SlidingWindows
from windowing.time_domain import TimeDomain
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
from windowing.window_columns import WindowColumns
from windowing.window_fn import Merge, MergingWindowFn, WindowFn

__all__ = [
    "GLOBAL_WINDOW",
    "MAX_TIMESTAMP_US",
    "MIN_TIMESTAMP_US",
    "CalendarWindows",
    "DurationLike",
    "FixedWindows",
    "GlobalWindows",
    "Merge",
    "MergingWindowFn",
    "PaneInfo",
    "PaneTiming",
    "PhaseShiftedWindows",
    "Sessions",
    "SlidingWindows",
    "TimeDomain",
    "TimestampLike",
    "Window",
    "WindowColumns",
    "WindowFn",
    "merge_overlapping",
    "to_datetime",
    "to_duration_us",
    "to_timestamp_us",
]
