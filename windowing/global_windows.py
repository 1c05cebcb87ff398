"""GlobalWindows: one window for all of event time.  Dataflow Model, section 2.2."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from windowing.window import ALL_OF_TIME_US, GLOBAL_WINDOW, Window
from windowing.window_columns import Int64s, WindowColumns
from windowing.window_fn import WindowFn

_ONLY = (GLOBAL_WINDOW,)


@attrs.frozen
class GlobalWindows(WindowFn):
    """Assigns every record to one window that does not end before the input does; the default."""

    needs_event_time = False

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The global window."""
        return _ONLY

    def assign_bundle(
        self,
        timestamps_us: Sequence[int],
        values: Sequence[Any],
    ) -> Sequence[Sequence[Window]]:
        """The global window for each record."""
        return [_ONLY] * len(timestamps_us)

    def assign_columns(self, timestamps_us: Int64s) -> WindowColumns | None:
        """The global window for each event time."""
        starts_us = np.full(len(timestamps_us), GLOBAL_WINDOW.start_us)
        return WindowColumns.of_size(starts_us, ALL_OF_TIME_US)
