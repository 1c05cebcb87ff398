"""Windows assigned as columns, by window functions that can (`WindowFn.assign_columns`)."""

from collections.abc import Sequence
from typing import Any

from dataflow.columns import IntColumn, WindowColumn
from windowing.checks import checked_columns
from windowing.window_columns import Int64s
from windowing.window_fn import WindowFn


def assigned(
    window_fn: WindowFn, timestamps: IntColumn, values: Sequence[Any] | None = None
) -> tuple[Int64s | None, WindowColumn] | None:
    """The windows of elements with these event times.

    Args:
        window_fn: assigns the windows.
        timestamps: the event times, in microseconds.
        values: the elements; None: there are only their times.

    Returns:
        For each window the index of its element (None: one window for each element, in order), and the windows; None
        where the window function has to be called for each element.

    Raises:
        WindowError: the function failed, or returned what cannot be right.
    """
    found = checked_columns(window_fn, timestamps.array, values)
    if found is None:
        return None
    return found.elements, WindowColumn(found.starts_us, found.ends_us, found.common_size_us)
