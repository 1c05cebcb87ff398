"""WindowLifecycle: when one window of a key fires, which timers and holds it sets, and when its state is deleted.

A window fires when its trigger is ready; at its expiry it emits what is still pending, and its state is deleted.

Dataflow Model, section 2.3.
"""

from collections.abc import MutableMapping
from typing import Any

from runners.core.ground.cells import (
    NO_TIMERS,
    NOTHING,
    Cell,
    CellId,
    Effects,
    WindowState,
    WindowTimers,
)
from runners.core.ground.lineage import Expiry, FiringCause
from runners.core.panes.firing import Panes
from runners.core.panes.merging_cells import Regrouper
from runners.core.partials.folding import Accumulation
from triggers.awaited import reasons
from triggers.clocks import Clocks
from triggers.firing_behavior import FiringBehavior
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import Elements, Progress
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window

_DOMAINS = tuple(TimeDomain)
#: Why a window fires that its trigger does not ask for.
_EXPIRED = "the window has expired"
_CORRECTED = "what it has emitted has to be corrected"
_DEADLINE = "a window that merged into it has expired"


class WindowLifecycle:
    """The lifecycle of the windows of one grouping; it keeps configuration only, and no state.

    Args:
        accumulation: how records are folded.
        regrouper: splits windows again; None where windows are never split.
    """

    def __init__(self, accumulation: Accumulation, regrouper: Regrouper | None) -> None:
        strategy = accumulation.strategy
        self._accumulation, self._strategy = accumulation, strategy
        self._trigger, self._regrouper = strategy.trigger, regrouper
        self._retracts_merged = strategy.is_retracting and strategy.is_merging
        self._holds = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        self._panes = Panes(accumulation, regrouper.whole if regrouper else None)
        self._explains = False

    def explain(self) -> None:
        """Have effects say from here on why windows fire (`Effects.causes`)."""
        self._explains = True

    def observe(
        self, state: WindowState, window: Window, elements: Elements, clocks: Clocks
    ) -> None:
        """Notify the trigger of records that have come.

        Args:
            state: of the window; changed in place.
            window: the window.
            elements: how many records, and their values where the trigger reads them.
            clocks: the clocks.
        """
        state.pending += elements.size
        if elements.size and not state.trigger.is_finished:
            seen = self._trigger.on_elements(
                state.trigger.state, window, elements, clocks.for_triggers
            )
            if seen is not state.trigger.state:
                state.trigger = Progress(seen)

    def fire(
        self, key: Any, window: Window, state: WindowState, effects: Effects, clocks: Clocks
    ) -> None:
        """Fire the window now, whether its trigger is ready or not.

        Args:
            key: of the window.
            window: the window.
            state: of the window; changed in place.
            effects: receives what is emitted.
            clocks: the clocks.
        """
        is_last = self._strategy.expiry_us(window) <= clocks.watermark_us
        self._fire(key, window, state, effects, clocks, _CORRECTED, is_last=is_last)

    def pass_on(
        self, key: Any, window: Window, state: WindowState, effects: Effects, at_least: int
    ) -> None:
        """Emit values of a window before its pane; see `Panes.pass_on`."""
        self._panes.pass_on(key, window, state, effects, at_least)

    def retract_standing(self, key: Any, state: WindowState, effects: Effects) -> None:
        """Retract what a window has emitted; see `Panes.retract_standing`."""
        self._panes.retract_standing(key, state, effects)

    def fire_if_due(
        self,
        cells: MutableMapping[CellId, Cell],
        cell_id: CellId,
        window: Window,
        state: WindowState,
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        """Fire if the window is due; then set the next timers or, past the window's expiry, delete its state.

        A record may arrive for an expired window whose timer has not fired yet, so expiry is handled here for
        records and timers alike.

        Args:
            cells: of the grouping; changed in place.
            cell_id: of the cell that the window is in.
            window: the window.
            state: of the window; changed in place.
            effects: receives what is emitted, and the timers and holds that change.
            clocks: the clocks.
        """
        expiry_us = self._strategy.expiry_us(window)
        if clocks.watermark_us >= expiry_us:
            if state.pending or self._closes(window, state, clocks):
                reason = self._reason(window, state, clocks)
                self._fire(cell_id[0], window, state, effects, clocks, reason, is_last=True)
            if self._explains:
                effects.expired.append(Expiry(len(effects.values), cell_id[0], window))
            clear(effects, cell_id, window, state)
            free(cells, cell_id, window)
            return
        if self._deadline_us(window, state) <= clocks.watermark_us and state.pending:
            self._fire(cell_id[0], window, state, effects, clocks, _DEADLINE, is_last=False)
        if not state.trigger.is_finished:
            self._ask_trigger(cell_id[0], window, state, effects, clocks)
        if self._is_over(window, state):
            clear(effects, cell_id, window, state)
            free(cells, cell_id, window)
            return
        if state.trigger is not state.armed_for:
            latest_us = min(expiry_us, self._deadline_us(window, state))
            self._arm(cell_id, window, state, latest_us, effects, clocks)
        if self._holds:
            self._hold(cell_id, window, state, effects)

    def _closes(self, window: Window, state: WindowState, clocks: Clocks) -> bool:
        """Whether a window that expires without new records fires once more."""
        always = FiringBehavior.FIRE_ALWAYS
        return self._strategy.closing_behavior is always or (
            # The watermark has jumped over the end of the window.
            self._fires_on_time(window, state, clocks)
            and not state.trigger.is_finished
            and self._trigger.should_fire(state.trigger.state, window, clocks.for_triggers)
        )

    def _fires_on_time(self, window: Window, state: WindowState, clocks: Clocks) -> bool:
        """Whether the window has reached its end, and fires there even without new records."""
        return (
            self._strategy.on_time_behavior is FiringBehavior.FIRE_ALWAYS
            and not state.is_past
            and clocks.for_triggers.watermark_us >= window.end_us
        )

    def _is_over(self, window: Window, state: WindowState) -> bool:
        """Whether the state of a window can be deleted before it expires, as all of its records have been retracted.

        A window that has fired keeps the numbers of its panes and the progress of its trigger, in case more records
        come; but the state of a window that never expires would be kept for ever, and is deleted.
        """
        if not self._accumulation.is_retracted or state.emitted or not self._is_void(state):
            return False
        is_endless = self._strategy.expiry_us(window) == MAX_TIMESTAMP_US
        return state.firings == 0 or is_endless or self._regrouper is not None

    def _is_void(self, state: WindowState) -> bool:
        if self._regrouper is not None or state.accumulator is NOTHING:
            return not state.accumulator or state.accumulator is NOTHING
        return bool(self._accumulation.shrinking.is_void(state.accumulator))

    def _hold(self, cell_id: CellId, window: Window, state: WindowState, effects: Effects) -> None:
        """Hold the watermark behind the grouping until the window has emitted, or can no longer retract."""
        hold_us = self._panes.hold_us(window, state)
        if hold_us != state.hold_us:
            effects.holds[cell_id, window] = state.hold_us = hold_us

    def _deadline_us(self, window: Window, state: WindowState) -> int:
        """When emissions of windows that have merged into this one must be retracted, even if the trigger is not ready.

        A later grouping keeps those windows for the same allowed lateness, and no longer.
        """
        if not self._retracts_merged:
            return MAX_TIMESTAMP_US
        foreign = (emitted.window for emitted in state.emitted if emitted.window != window)
        return min(map(self._strategy.expiry_us, foreign), default=MAX_TIMESTAMP_US)

    def _arm(
        self,
        cell_id: CellId,
        window: Window,
        state: WindowState,
        latest_us: int,
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        """Set the timers that the trigger's progress asks for, and the window's own timer."""
        timers = WindowTimers(latest_us)
        if not state.trigger.is_finished:
            seen = clocks.for_triggers
            event_us, processing_us = self._trigger.next_timers(
                state.trigger.state, window, seen
            ).ahead_of(seen)
            if self._strategy.follows_percentile:
                timers = WindowTimers(latest_us, processing_us, event_us)
            elif event_us is None or event_us > latest_us:
                timers = WindowTimers(latest_us, processing_us)
            else:
                timers = WindowTimers(event_us, processing_us)
        _set_timers(effects, cell_id, window, state, timers)
        state.armed_for = state.trigger

    def _fire(
        self,
        key: Any,
        window: Window,
        state: WindowState,
        effects: Effects,
        clocks: Clocks,
        reason: str,
        *,
        is_last: bool,
    ) -> None:
        """Fire the window, and say why where that is recorded."""
        pending, before = state.pending, len(effects.values)
        self._panes.fire(key, window, state, effects, clocks, is_last=is_last)
        if self._explains:
            # What is retracted is so for the same reason.
            for index in range(before, len(effects.values)):
                effects.causes[index] = FiringCause(reason, pending)

    def _reason(self, window: Window, state: WindowState, clocks: Clocks) -> str:
        """Why the window fires now: the ready parts of its trigger, or its expiry."""
        trigger, seen = state.trigger, clocks.for_triggers
        if not self._explains:
            return ""
        if trigger.is_finished or not self._trigger.should_fire(trigger.state, window, seen):
            return _EXPIRED
        return reasons(self._trigger.awaited(trigger.state, window, seen), window)

    def _ask_trigger(
        self, key: Any, window: Window, state: WindowState, effects: Effects, clocks: Clocks
    ) -> None:
        seen = clocks.for_triggers
        if not self._trigger.should_fire(state.trigger.state, window, seen):
            return
        if state.pending or self._fires_on_time(window, state, clocks):
            reason = self._reason(window, state, clocks)
            self._fire(key, window, state, effects, clocks, reason, is_last=False)
        else:
            # Without new records the on-time firing emits nothing, but it counts as past.
            state.is_past |= seen.watermark_us >= window.end_us
        state.trigger = self._trigger.on_fire(state.trigger.state, window, seen)


def _set_timers(
    effects: Effects, cell_id: CellId, window: Window, state: WindowState, wanted: WindowTimers
) -> None:
    """Set the timers of a window to those that are wanted."""
    if wanted == state.timers:
        return
    for domain, wanted_us, set_us in zip(_DOMAINS, wanted, state.timers, strict=True):
        if wanted_us != set_us:
            effects.timers[cell_id, window, domain] = wanted_us
    state.timers = wanted
    state.armed_for = None


def clear(effects: Effects, cell_id: CellId, window: Window, state: WindowState) -> None:
    """Delete all timers and the hold of a window.

    Args:
        effects: receives the changes.
        cell_id: of the cell that the window is in.
        window: the window.
        state: of the window; changed in place.
    """
    _set_timers(effects, cell_id, window, state, NO_TIMERS)
    if state.hold_us is not None:
        effects.holds[cell_id, window] = state.hold_us = None


def free(cells: MutableMapping[CellId, Cell], cell_id: CellId, window: Window) -> None:
    """Delete the state of a window, and its cell if that has no other.

    Args:
        cells: of the grouping; changed in place.
        cell_id: of the cell that the window is in.
        window: the window.
    """
    cell = cells[cell_id]
    if isinstance(cell, dict):
        del cell[window]
        if cell:
            return
    del cells[cell_id]
