"""Cells: what a grouping keeps between two steps, and what a step does, as values.

A *cell* is the unit of state that is read and written together: one window of a key, or, where windows merge, all
windows of a key.
"""

from enum import Enum
from typing import Any

import attrs

from runners.core.bundle import Bundle
from triggers.trigger import Progress, Wakeup
from windowing.pane import PaneInfo
from windowing.time_domain import TimeDomain
from windowing.window import Window

#: Key, and the window where the cell is per window.
CellId = tuple[Any, Window | None]
#: One timer per cell, window and time domain.
TimerId = tuple[CellId, Window, TimeDomain]


class Nothing(Enum):
    """In place of an accumulator that holds nothing; an Enum, because its identity survives pickling."""

    NOTHING = "nothing"


NOTHING = Nothing.NOTHING


_UNTOUCHED, _NO_TIMERS = Progress(), Wakeup()


@attrs.define
class WindowState:
    """What is kept for one key and window.

    ``pending``: inputs since the last firing.  ``said``: what is to be taken back at the next firing, with the window
    it was said for: after a merge that may be several.  ``is_past``: the on-time moment is behind.
    ``trigger``: how far the trigger is.  ``wakeup``: the timers that are set.
    """

    accumulator: Any = NOTHING
    pending: int = 0
    said: tuple[tuple[Any, Window, PaneInfo], ...] = ()
    firings: int = 0
    nonspeculative_firings: int = 0
    is_past: bool = False
    trigger: Progress = _UNTOUCHED
    wakeup: Wakeup = _NO_TIMERS
    #: The trigger's progress that ``wakeup`` was worked out for; not kept, so it is worked out anew after a restart.
    armed_for: Progress | None = attrs.field(default=None, eq=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # A plain call pickles in half the time of attrs' state protocol; cells are pickled at every commit.
        return _restored, (
            self.accumulator,
            self.pending,
            self.said,
            self.firings,
            self.nonspeculative_firings,
            self.is_past,
            # Plain tuples: half the bytes, and quicker.
            tuple(self.trigger),
            tuple(self.wakeup),
        )


def _restored(
    accumulator: Any,
    pending: int,
    said: tuple[tuple[Any, Window, PaneInfo], ...],
    firings: int,
    nonspeculative_firings: int,
    is_past: bool,  # noqa: FBT001 - called by pickle
    trigger: tuple[Any, bool],
    wakeup: tuple[int | None, int | None],
) -> WindowState:
    return WindowState(
        accumulator,
        pending,
        said,
        firings,
        nonspeculative_firings,
        is_past,
        Progress(*trigger),
        Wakeup(*wakeup),
    )


#: A cell: the state of its window, or of all windows of the key where they merge.
Cell = WindowState | dict[Window, WindowState]


@attrs.frozen
class LateArrival:
    """A partial whose window was gone when it came."""

    key: Any
    window: Window
    accumulator: Any
    count: int
    watermark_us: int


@attrs.define
class Effects:
    """What one step makes happen; ``timers`` maps to the new time, or None to delete."""

    values: list[Any] = attrs.field(factory=list)
    timestamps_us: list[int] = attrs.field(factory=list)
    windows: list[Window] = attrs.field(factory=list)
    panes: list[PaneInfo] = attrs.field(factory=list)
    signs: list[int] = attrs.field(factory=list)
    timers: dict[TimerId, int | None] = attrs.field(factory=dict)
    touched: set[CellId] = attrs.field(factory=set)
    late: list[LateArrival] = attrs.field(factory=list)

    def bundle(self) -> Bundle:
        """The panes as a bundle."""
        signs = self.signs if -1 in self.signs else None
        return Bundle(self.values, self.timestamps_us, self.windows, self.panes, signs)

    def emit(self, value: Any, window: Window, pane: PaneInfo, sign: int) -> None:
        """Say a value (+1), or take it back (-1)."""
        self.values.append(value)
        self.timestamps_us.append(window.max_timestamp_us)
        self.windows.append(window)
        self.panes.append(pane)
        self.signs.append(sign)
