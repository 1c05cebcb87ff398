"""Checks that elements have an event time before they are put into windows of event time."""

from collections.abc import Sequence

from dataflow.columns import IntColumn, RepeatedColumn
from dataflow.errors import WindowError
from dataflow.graph import TransformNode
from dataflow.strategy_checks import TIMES_HINT
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window_fn import WindowFn


def check_event_times(
    window_fn: WindowFn, bundle: Bundle, node: TransformNode, root: TransformNode
) -> None:
    """Refuse elements whose event time is the minimum, which means that none was ever given.

    Args:
        window_fn: assigns the windows.
        bundle: the elements.
        node: the transform that assigns the windows.
        root: the beginning of the stage, where the elements come from.

    Raises:
        WindowError: one has no event time, and the windows need it.
    """
    if not window_fn.needs_event_time or not _has_none(bundle.timestamps_us):
        return
    index = list(bundle.timestamps_us).index(MIN_TIMESTAMP_US)
    raise WindowError(
        f"{node} needs event times, and an element has none",
        detail="its window would be in the year 1, with those of all others that have none; "
        f"it comes from {root}; element: {shown(bundle.values[index])}",
        hint=TIMES_HINT,
    )


def _has_none(timestamps_us: Sequence[int]) -> bool:
    if isinstance(timestamps_us, IntColumn):
        return bool((timestamps_us.array == MIN_TIMESTAMP_US).any())
    if isinstance(timestamps_us, RepeatedColumn):
        return len(timestamps_us) > 0 and timestamps_us.value == MIN_TIMESTAMP_US
    return MIN_TIMESTAMP_US in timestamps_us
