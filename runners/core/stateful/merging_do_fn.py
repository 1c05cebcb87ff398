"""MergingDoFnMachine: runs a stateful DoFn in windows that merge, such as sessions.

The cell of a key has all of its open windows, and what is below is about the key and not about one window.

**Invariants**

* The windows of a key merge by an element when it is seen: a session is what has been seen, never what waits.
* A window is open from its first element until it expires, whether it has state or not.
* Before an element is seen, all timers that are due have fired, and windows that have expired are gone.
* An element is dropped as late only if its window is expired and merges with none that is open.
* An element that fails, and is a dead letter or a failure that is handled, merges nothing.

What becomes of state and timers says `dataflow.state_merging`; which windows merge, `ActiveWindows`.  State that is
large has pages, which go with it from window to window, under a number (`MergingState.pages_of`).
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import attrs

from dataflow.paged_state import Paged
from dataflow.typed_keys import emitted_key
from dataflow.user_state import PAGES
from runners.core.ground.active_windows import ActiveWindows
from runners.core.ground.cells import CellId, Effects, LateArrival, LateElement
from runners.core.ground.lineage import Expiry, plain_pane
from runners.core.partials.stateful_inputs import Input
from runners.core.stateful.cell_pages import CellPages
from runners.core.stateful.keyed_state import KeyedState, MergingState, Waiting
from runners.core.stateful.stateful_do_fn import (
    ELEMENT_CAME,
    Cells,
    StatefulDoFnMachine,
    _Action,
    _Step,
)
from runners.core.stateful.stateful_invoker import Call
from triggers.clocks import Clocks
from triggers.trigger import TriggerTimers
from windowing.time_domain import TimeDomain
from windowing.timestamps import MIN_TIMESTAMP_US, clamp_timestamp_us
from windowing.window import Window
from windowing.window_fn import MergingWindowFn


class MergingDoFnMachine(StatefulDoFnMachine):
    """The state machine of one stateful DoFn in windows that merge; arguments as for `StatefulDoFnMachine`."""

    @cached_property
    def active(self) -> ActiveWindows:
        """Which windows merge."""
        assert isinstance(self.strategy.window_fn, MergingWindowFn)
        return ActiveWindows(self.strategy.window_fn)

    @property
    def is_merging(self) -> bool:
        """Whether a cell contains all windows of a key: always True."""
        return True

    def holds(self, cell_id: CellId, cell: Any) -> Iterator[tuple[Window, int]]:
        """The windows of a cell that hold the watermark behind the DoFn, and their first holds in microseconds.

        Args:
            cell_id: of the cell.
            cell: its state, or a page of it, which has no hold; None: there is none.
        """
        if isinstance(cell, MergingState) and self.can_hold:
            for window, state in cell.windows.items():
                if (hold_us := state.hold_us) is not None:
                    yield window, hold_us

    def _step(self, cells: Cells, clocks: Clocks) -> "_MergingStep":
        return _MergingStep(self, cells, clocks)


class _MergingStep(_Step):
    """One step of the machine; a place is a key and one of its windows, which no cell has for itself."""

    _machine: MergingDoFnMachine

    def __init__(self, machine: MergingDoFnMachine, cells: Cells, clocks: Clocks) -> None:
        super().__init__(machine, cells, clocks)
        #: The holds of the windows of each cell before the step.
        self._before_us: dict[CellId, dict[Window, int]] = {}
        #: The windows of each cell whose state user code may have changed in the step.
        self._changed: dict[CellId, dict[Window, None]] = {}

    def take(self, key: Any, window: Window, inputs: Sequence[Input]) -> None:
        """Process elements that were assigned a window in order, or keep them for later.

        Args:
            key: of the cell.
            window: of the elements.
            inputs: the elements.
        """
        cell_id: CellId = (key, None)
        cell = self._cells.get(cell_id)
        if cell is None:
            cell = self._cells[cell_id] = MergingState()
            self._born.add(cell_id)
        if cell_id not in self._touched:
            self._begin(cell_id, cell)
            self._let_happen(cell_id, cell)
        for value, timestamp_us, pane, sign in inputs:
            element: Waiting = (value, timestamp_us, pane, sign, window)
            if self._machine.is_time_sorted and self._turn_of(element) >= self._watermark_us:
                cell.backlog.append(element)
            else:
                self._see(cell_id, cell, element)
                self._let_happen(cell_id, cell)

    def finish(self) -> Effects:
        """Set the engine's timers, delete empty cells, and end the bundle."""
        for cell_id, cell in self._touched.items():
            wanted = TriggerTimers()
            if cell.is_empty:
                del self._cells[cell_id]
            else:
                self._fit_windows(cell_id, cell)
                wanted = self._engine_timers(cell_id, cell)
            self._set_timers(cell_id, cell, wanted)
            self._set_holds(cell_id, cell)
            if cell.pages is not None:
                self._touch_pages(cell.pages)
            if not (cell.is_empty and cell_id in self._born):
                self._effects.touched[cell_id] = None
        return self._end_bundle()

    def _fit_windows(self, cell_id: CellId, cell: Any) -> None:
        """Have the state that has changed in pages as large as they should be."""
        if not self._machine.paged_kinds:
            return
        for window in self._changed.get(cell_id, ()):
            state = cell.windows.get(window)
            if state is None:
                continue
            self._fit(cell_id, state)
            if PAGES in state.values and not any(
                isinstance(value, Paged) for value in state.values.values()
            ):
                del state.values[PAGES]

    def _pages_of(self, cell_id: CellId, cell: KeyedState) -> CellPages:
        whole: Any = self._touched[cell_id]
        pages: CellPages = whole.pages_of(cell)
        pages.begin(cell_id, self._cells, self._machine.need_pages)
        return pages

    def _set_holds(self, cell_id: CellId, cell: Any) -> None:
        before, after = self._before_us[cell_id], dict(self._machine.holds(cell_id, cell))
        for window in {**before, **after}:
            if before.get(window) != after.get(window):
                self._effects.holds[cell_id, window] = after.get(window)

    def _begin(self, cell_id: CellId, cell: Any) -> None:
        self._touched[cell_id] = cell
        self._before_us[cell_id] = dict(self._machine.holds(cell_id, cell))
        self._changed[cell_id] = {}
        if cell.pages is not None:
            cell.pages.begin(cell_id, self._cells, self._machine.need_pages)
        for state in cell.windows.values():
            state.firings = 0
        until_us = self._watermark_us
        # By window first, so that of elements that are equal but for it the order is one as well.
        cell.ready = sorted(
            (each for each in cell.backlog if self._turn_of(each) < until_us), key=itemgetter(4)
        )
        start_us = until_us
        if cell.ready:
            cell.backlog = [each for each in cell.backlog if self._turn_of(each) >= until_us]
            self._sort(cell.ready)
            cell.ready.sort(key=self._turn_of)
            cell.ready.reverse()
            start_us = self._turn_of(cell.ready[-1])
        cell.move_to(start_us)

    def _let_happen(self, cell_id: CellId, cell: Any) -> None:
        while action := self._next(cell_id, cell):
            self._act(cell_id, cell, action)

    def _next(self, cell_id: CellId, cell: Any) -> _Action | None:
        """The next action: due timers of all windows, then the element at the watermark; then the watermark moves."""
        while True:
            if (action := self._due_in_windows(cell_id, cell)) is not None:
                return action
            self._close_windows(cell_id, cell)
            if cell.ready:
                turn_us = self._turn_of(cell.ready[-1])
                if turn_us <= cell.watermark_us:
                    return _Action((turn_us, MIN_TIMESTAMP_US))
                cell.move_to(turn_us)
            elif cell.watermark_us < self._watermark_us:
                cell.move_to(self._watermark_us)
            else:
                return None

    def _due_in_windows(self, cell_id: CellId, cell: Any) -> _Action | None:
        first: tuple[tuple[int, int], Window, _Action] | None = None
        for window, state in cell.windows.items():
            action = self._due_timer((cell_id[0], window), state)
            if action is not None and (first is None or (action.when, window) < first[:2]):
                first = action.when, window, action
        return None if first is None else attrs.evolve(first[2], window=first[1])

    def _close_windows(self, cell_id: CellId, cell: Any) -> None:
        """Delete windows that have expired, of which the last timers have fired."""
        expiry_us = self._machine.strategy.expiry_us
        for window in [each for each in cell.windows if expiry_us(each) <= cell.watermark_us]:
            cell.windows.pop(window).drop_pages()
            if self._machine.is_traced:
                gone = Expiry(len(self._effects.values), emitted_key(cell_id[0]), window)
                self._effects.calls.append(gone)

    def _act(self, cell_id: CellId, cell: Any, action: _Action) -> None:
        if action.window is None:
            self._see(cell_id, cell, cell.ready.pop())
        else:
            self._changed[cell_id][action.window] = None
            super()._act((cell_id[0], action.window), cell.windows[action.window], action)

    def _see(self, cell_id: CellId, cell: Any, element: Waiting) -> None:
        """Process an element in the open window that its own belongs to, after the merges that it makes necessary."""
        key, (value, timestamp_us, pane, sign, assigned) = cell_id[0], element
        window, moved = self._home(cell.windows, assigned)
        self._changed[cell_id][window] = None
        if not moved and window in cell.windows:
            place = (key, window)
            self._process(place, cell.windows[window], (value, timestamp_us, pane, sign))
            return
        if not moved and self._machine.strategy.expiry_us(window) <= cell.watermark_us:
            record = LateElement(value, timestamp_us, sign)
            late = LateArrival(key, assigned, [value], 1, self._watermark_us, record)
            self._effects.late.append(late)
            return
        sources = [cell.windows[each] for each in sorted(moved)]
        before_us = [each.hold_us for each in sources] if self._machine.can_hold else []
        state = KeyedState(watermark_us=cell.watermark_us, pages=cell.pages)
        call = Call(
            emitted_key(key),
            window,
            timestamp_us,
            self._now_us,
            plain_pane(pane),
            sign,
            cell.watermark_us,
        )
        outputs, has_merged = self._machine.invoker.process_merging(sources, state, value, call)
        if has_merged:
            for each in moved:
                del cell.windows[each]
            cell.windows[window] = state
        hold_us = min((each for each in before_us if each is not None), default=None)
        given = value, timestamp_us, pane, sign
        self._emit(state, outputs, call, timestamp_us, hold_us, ELEMENT_CAME, given)

    def _home(
        self, windows: Collection[Window], assigned: Window
    ) -> tuple[Window, Sequence[Window]]:
        """The window that an element belongs to, and the open windows that become it."""
        for merged, sources, moved in self._machine.active.bridged(windows, [assigned]):
            if assigned in sources:
                return merged, moved
        return assigned, ()

    def _engine_timers(self, cell_id: CellId, cell: Any) -> TriggerTimers:
        events_us, processings_us = [], []
        for window, state in cell.windows.items():
            events_us.append(self._machine.strategy.expiry_us(window))
            if (event := self._first(state, TimeDomain.EVENT)) is not None:
                events_us.append(event[0])
            if (processing := self._first(state, TimeDomain.PROCESSING)) is not None:
                processings_us.append(processing[0])
        if cell.backlog:
            events_us.append(min(map(self._turn_of, cell.backlog)) + 1)
        return TriggerTimers(
            clamp_timestamp_us(min(events_us)),
            clamp_timestamp_us(min(processings_us)) if processings_us else None,
        )

    def _turn_of(self, element: Waiting) -> int:
        """When an element is seen: before the window that it was assigned expires, whatever its event time."""
        return min(element[1], self._machine.strategy.expiry_us(element[4]) - 1)
