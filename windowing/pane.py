"""Panes: what one firing of a window emits, and which firing it was.  Dataflow Model, section 2.3."""

from enum import Enum

import attrs


class PaneTiming(Enum):
    """Whether a firing is before, at, or after the watermark's passing of the end of the window."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


@attrs.frozen
class PaneInfo:
    """The firing of its window that a result comes from.

    A retraction carries the pane that it retracts.

    Attributes:
        index: counts the panes of a key and window, without a gap.  A window that others have merged into continues
            from the highest of their indexes.  If all records of a window that does not end, or that merges, have been
            retracted, its count is deleted, and starts from zero again if more records come.
        timing: whether it is before, at, or after the watermark's passing of the end of the window.
        is_first: whether it is the first pane of its key and window.
        is_last: whether the window expires with it: no other comes.
        nonspeculative_index: counts the firings from the on-time one; -1 for an early pane.
    """

    index: int
    timing: PaneTiming
    is_first: bool
    is_last: bool
    nonspeculative_index: int


#: The pane of elements that no grouping has produced.
NO_FIRING = PaneInfo(0, PaneTiming.ON_TIME, is_first=True, is_last=True, nonspeculative_index=0)
