"""WindowLifecycle: what becomes of one window of a key: when it speaks, what it waits for, and when it goes.

A window speaks when its trigger says so; at its expiry it says what is still pending, and is gone.

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
    Now,
    WindowState,
    WindowTimers,
)
from runners.core.panes.firing import Panes
from runners.core.panes.merging_cells import Regrouper
from runners.core.partials.folding import Accumulation
from triggers.firing_behavior import FiringBehavior
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import Elements, Progress
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window

_DOMAINS = tuple(TimeDomain)


class WindowLifecycle:
    """The life of the windows of one grouping; holds configuration only.

    Args:
        accumulation: how records are folded.
        regrouper: where windows may split again.
    """

    def __init__(self, accumulation: Accumulation, regrouper: Regrouper | None) -> None:
        strategy = accumulation.strategy
        self._accumulation, self._strategy = accumulation, strategy
        self._trigger, self._regrouper = strategy.trigger, regrouper
        self._takes_back_merged = strategy.is_retracting and strategy.is_merging
        self._holds = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        self._panes = Panes(accumulation, regrouper.whole if regrouper else None)

    def now(self, watermark_us: int, now_us: int, percentile_watermark_us: int | None) -> Now:
        """The time for a step, as the windows of this grouping see it."""
        trigger_us = watermark_us
        if self._strategy.follows_percentile and percentile_watermark_us is not None:
            trigger_us = max(watermark_us, percentile_watermark_us)
        return Now(watermark_us, now_us, trigger_us)

    def observe(self, state: WindowState, window: Window, elements: Elements, now: Now) -> None:
        """Have the trigger see that records have come."""
        state.pending += elements.size
        if elements.size and not state.trigger.is_finished:
            seen = self._trigger.on_elements(
                state.trigger.state,
                window,
                elements,
                watermark_us=now.trigger_watermark_us,
                now_us=now.now_us,
            )
            if seen is not state.trigger.state:
                state.trigger = Progress(seen)

    def fire(
        self, key: Any, window: Window, state: WindowState, effects: Effects, now: Now
    ) -> None:
        """Say now what there is to be said, whatever the trigger thinks of it."""
        is_last = self._strategy.expiry_us(window) <= now.watermark_us
        self._panes.fire(key, window, state, effects, now, is_last=is_last)

    def fire_if_due(
        self,
        cells: MutableMapping[CellId, Cell],
        cell_id: CellId,
        window: Window,
        state: WindowState,
        effects: Effects,
        now: Now,
    ) -> None:
        """Fire if it is time; then set the next timers or, past the window's expiry, free its state.

        A record may meet an expired window whose timer has not acted yet, so both callers come here.
        """
        expiry_us = self._strategy.expiry_us(window)
        if now.watermark_us >= expiry_us:
            if state.pending or self._closes(window, state, now):
                self._panes.fire(cell_id[0], window, state, effects, now, is_last=True)
            clear(effects, cell_id, window, state)
            _free(cells, cell_id, window)
            return
        if self._deadline_us(window, state) <= now.watermark_us and state.pending:
            self._panes.fire(cell_id[0], window, state, effects, now, is_last=False)
        if not state.trigger.is_finished:
            self._ask_trigger(cell_id[0], window, state, effects, now)
        if self._is_over(window, state):
            clear(effects, cell_id, window, state)
            _free(cells, cell_id, window)
            return
        if state.trigger is not state.armed_for:
            latest_us = min(expiry_us, self._deadline_us(window, state))
            self._arm(cell_id, window, state, latest_us, effects, now)
        if self._holds:
            self._hold(cell_id, window, state, effects)

    def _closes(self, window: Window, state: WindowState, now: Now) -> bool:
        """Whether a window that expires with nothing new speaks once more."""
        always = FiringBehavior.FIRE_ALWAYS
        return self._strategy.closing_behavior is always or (
            # The watermark has jumped over the end of the window.
            self._fires_on_time(window, state, now)
            and not state.trigger.is_finished
            and self._trigger.should_fire(
                state.trigger.state,
                window,
                watermark_us=now.trigger_watermark_us,
                now_us=now.now_us,
            )
        )

    def _fires_on_time(self, window: Window, state: WindowState, now: Now) -> bool:
        """Whether this is the end of the window, and it speaks then with nothing new too."""
        return (
            self._strategy.on_time_behavior is FiringBehavior.FIRE_ALWAYS
            and not state.is_past
            and now.trigger_watermark_us >= window.end_us
        )

    def _is_over(self, window: Window, state: WindowState) -> bool:
        """Whether nothing need be known any more of a window before it expires, as all of it has been taken back.

        One that has spoken goes on numbering its panes, and its trigger is where it was, should more come; but what
        does not expire would be kept for ever.
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
        """Have the watermark behind the grouping wait for what the window is to say, or to take back."""
        hold_us = self._panes.hold_us(window, state)
        if hold_us != state.hold_us:
            effects.holds[cell_id, window] = state.hold_us = hold_us

    def _deadline_us(self, window: Window, state: WindowState) -> int:
        """When what was said for windows that have merged into this one must be taken back, whatever the trigger says.

        Whoever grouped it again keeps those windows for the same lateness, and then no longer.
        """
        if not self._takes_back_merged:
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
        now: Now,
    ) -> None:
        """Set the timers that the trigger's progress asks for, and the one at which the machine itself must act."""
        timers = WindowTimers(latest_us)
        if not state.trigger.is_finished:
            watermark_us, now_us = now.trigger_watermark_us, now.now_us
            event_us, processing_us = self._trigger.next_timers(
                state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
            ).ahead_of(watermark_us, now_us)
            if self._strategy.follows_percentile:
                timers = WindowTimers(latest_us, processing_us, event_us)
            elif event_us is None or event_us > latest_us:
                timers = WindowTimers(latest_us, processing_us)
            else:
                timers = WindowTimers(event_us, processing_us)
        _set_timers(effects, cell_id, window, state, timers)
        state.armed_for = state.trigger

    def _ask_trigger(
        self, key: Any, window: Window, state: WindowState, effects: Effects, now: Now
    ) -> None:
        watermark_us, now_us = now.trigger_watermark_us, now.now_us
        if not self._trigger.should_fire(
            state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
        ):
            return
        if state.pending or self._fires_on_time(window, state, now):
            self._panes.fire(key, window, state, effects, now, is_last=False)
        else:
            # With nothing new the moment passes in silence, but it passes.
            state.is_past |= watermark_us >= window.end_us
        state.trigger = self._trigger.on_fire(
            state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
        )


def _set_timers(
    effects: Effects, cell_id: CellId, window: Window, state: WindowState, wanted: WindowTimers
) -> None:
    """Have the timers of a window as wanted."""
    if wanted == state.timers:
        return
    for domain, wanted_us, set_us in zip(_DOMAINS, wanted, state.timers, strict=True):
        if wanted_us != set_us:
            effects.timers[cell_id, window, domain] = wanted_us
    state.timers = wanted
    state.armed_for = None


def clear(effects: Effects, cell_id: CellId, window: Window, state: WindowState) -> None:
    """Let go of everything that a window has set."""
    _set_timers(effects, cell_id, window, state, NO_TIMERS)
    if state.hold_us is not None:
        effects.holds[cell_id, window] = state.hold_us = None


def _free(cells: MutableMapping[CellId, Cell], cell_id: CellId, window: Window) -> None:
    cell = cells[cell_id]
    if isinstance(cell, dict):
        del cell[window]
        if cell:
            return
    del cells[cell_id]
