"""KeyState: the windows of one key, made of what an engine keeps: cells, timers, and entries of what is beside cells.

Of users' own values that were not unpickled, among them the states of composite triggers, it is only known that they
are there; what such a trigger waits for is not known then.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from runners.core.ground.cells import WindowState
from runners.core.stages.entries import Changes, Entry, Released, Whole
from runners.observability.why.evidence import WindowSeen
from runners.stored.columns import HIDDEN
from runners.stored.partials import Combiners
from triggers.awaited import Awaited
from triggers.clocks import Clocks
from triggers.trigger import Trigger
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window


@attrs.frozen(kw_only=True)
class Grouping:
    """What is known of a grouping without running it.

    Attributes:
        trigger: None: it is not known.
        trigger_text: as the store describes it.
        lateness_us: the allowed lateness.
        is_merging: whether a cell has all windows of its key.
        combiners: fold columns.
    """

    trigger: Trigger | None = None
    trigger_text: str | None = None
    lateness_us: int = 0
    is_merging: bool = False
    combiners: Combiners = None


@attrs.define
class KeyState:
    """The state of one key, while entries are applied.

    Attributes:
        cells: the states of windows.
        counts: how many records are buffered, by window.
        timers: by window and domain.
    """

    key: Any
    cells: dict[Window, Any] = attrs.field(factory=dict)
    counts: dict[Window, int] = attrs.field(factory=dict)
    timers: dict[tuple[Window, TimeDomain], int] = attrs.field(factory=dict)

    def apply(self, entry: Entry) -> None:
        """Apply an entry of a journal, or of what an engine in memory keeps.

        Args:
            entry: in the order in which they were made.
        """
        if isinstance(entry, Changes):
            for cell_id, cell in entry.cells:
                if len(cell_id) == 2 and cell_id[0] == self.key:
                    self.set_cell(cell_id[1], cell)
            for (cell_id, window, domain), fire_us in entry.timers:
                if cell_id[0] == self.key:
                    self.set_timer(window, domain, fire_us)
        elif isinstance(entry, Released):
            for window in entry.windows:
                self.counts.pop(window, None)
        elif isinstance(entry, Whole):
            self.counts.clear()
            for part in entry.parts:
                self.count(part)
        else:
            self.count(entry)

    def set_cell(self, window: Window | None, cell: Any) -> None:
        """Set a cell; None: it is gone.

        Args:
            window: of the cell; None: it has all windows of the key.
            cell: its state.
        """
        if window is None:
            self.cells = dict(cell) if isinstance(cell, dict) else {}
            return
        self.counts.pop(window, None)
        if cell is None:
            self.cells.pop(window, None)
        else:
            self.cells[window] = cell

    def set_timer(self, window: Window, domain: TimeDomain, fire_us: int | None) -> None:
        """Set a timer, or unset it.

        Args:
            window: that it is about.
            domain: of its instant.
            fire_us: in microseconds since 1970; None: it is not set.
        """
        if fire_us is None:
            self.timers.pop((window, domain), None)
        else:
            self.timers[window, domain] = fire_us

    def count(self, partials: Iterable[tuple[Any, Window, Any, int]]) -> None:
        """Add records that are buffered.

        Args:
            partials: of any keys.
        """
        for key, window, _, count in partials:
            if key == self.key:
                self.counts[window] = self.counts.get(window, 0) + count

    def forget_fired(self, until_us: int) -> None:
        """Forget what was buffered of windows that have fired.

        Args:
            until_us: the watermark, in microseconds since 1970.
        """
        self.counts = {each: n for each, n in self.counts.items() if each.end_us > until_us}

    def windows(self, grouping: Grouping, clocks: Clocks) -> list[WindowSeen]:
        """What is known of each window, those that end first in front.

        Args:
            grouping: of the key.
            clocks: where it is.
        """
        found = [self._of_cell(each, cell, grouping, clocks) for each, cell in self.cells.items()]
        found += [
            self._seen(window, grouping, clocks, pending=count, progress=None)
            for window, count in self.counts.items()
        ]
        return sorted(found, key=lambda seen: seen.window.end_us)

    def _of_cell(self, window: Window, cell: Any, grouping: Grouping, clocks: Clocks) -> WindowSeen:
        if not isinstance(cell, WindowState):
            # A stateful DoFn: its timers are the user's.
            pending = len(getattr(cell, "backlog", ()))
            unknown = attrs.evolve(grouping, trigger=None)
            return self._seen(window, unknown, clocks, pending=pending, progress=HIDDEN)
        seen = self._seen(window, grouping, clocks, pending=cell.pending, progress=cell.trigger)
        return attrs.evolve(
            seen,
            firings=cell.firings,
            is_past=cell.is_past,
            is_finished=cell.trigger.is_finished,
        )

    def _seen(
        self, window: Window, grouping: Grouping, clocks: Clocks, *, pending: int, progress: Any
    ) -> WindowSeen:
        expiry_us = min(window.end_us + grouping.lateness_us, MAX_TIMESTAMP_US)
        return WindowSeen(
            window=Window(window.start_us, window.end_us),
            pending=pending,
            awaited=_awaited(window, grouping.trigger, progress, clocks),
            trigger=grouping.trigger_text,
            expiry_us=expiry_us,
            event_timer_us=self.timers.get((window, TimeDomain.EVENT), expiry_us),
            processing_timer_us=self.timers.get((window, TimeDomain.PROCESSING)),
        )


def _awaited(
    window: Window, trigger: Trigger | None, progress: Any, clocks: Clocks
) -> Awaited | None:
    """What a trigger waits for; None: its state is not known."""
    if trigger is None or progress is HIDDEN:
        return None
    state = trigger.initial_state() if progress is None else progress.state
    if state is HIDDEN:
        return None
    if progress is not None and progress.is_finished:
        return None
    return trigger.awaited(state, window, clocks.for_triggers)
