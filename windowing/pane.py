"""Panes: what one firing of a window emits, and which firing it was.  Dataflow Model, section 2.3."""

from enum import Enum

import attrs


class PaneTiming(Enum):
    """Where a firing stands in relation to the watermark passing the end of the window."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


@attrs.frozen
class PaneInfo:
    """Which firing of its window a result comes from.

    A retraction carries the pane that it takes back.

    ``index`` counts the panes of a key and window, without a gap.  A window that others have merged into goes on from
    the highest of theirs.  One that does not end, or that merges, and whose records have all been taken back, is
    forgotten, and counts from zero again should more come.
    """

    index: int
    timing: PaneTiming
    is_first: bool
    is_last: bool
    #: Counts the firings from the on-time one; -1 while the pane is early.
    nonspeculative_index: int


#: The pane of elements that no grouping has produced.
NO_FIRING = PaneInfo(0, PaneTiming.ON_TIME, is_first=True, is_last=True, nonspeculative_index=0)
