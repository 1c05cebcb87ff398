"""GroupAlsoByWindow: the window, trigger and pane machine, the same for every engine.

Takes partials and due timers, keeps cells, and says which panes are emitted, which timers change and which records are
too late.  The clock is two arguments: ``watermark_us`` (event time) and ``now_us`` (processing time).

Whoever calls owns the cells (`runners.core.cells`) and applies the effects atomically.

**Invariants**

* With retractions, the signed sum of the panes of a key is, at every moment, what was last said
  for each of its windows.
* A record is dropped only after merging could have saved it, and every drop is an effect.
* At expiry what is pending is emitted, then the cell is gone: nothing is kept for a closed window.

Dataflow Model, sections 2.2.2 and 2.3.  Reads no clock, touches no store.
"""

import copy
from collections import defaultdict
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn
from runners.core.cells import (
    NOTHING,
    Cell,
    CellId,
    Effects,
    LateArrival,
    TimerId,
    WindowState,
)
from runners.core.partials import Partial
from triggers.accumulation import AccumulationMode
from triggers.trigger import Progress, Wakeup
from triggers.windowing_strategy import WindowingStrategy
from windowing.checks import checked_merges
from windowing.pane import PaneInfo, PaneTiming
from windowing.time_domain import TimeDomain
from windowing.window import Window
from windowing.window_fn import MergingWindowFn

_IMMUTABLE = (int, float, str, bytes, bool, type(None))


@attrs.frozen
class _Now:
    watermark_us: int
    now_us: int


class GroupAlsoByWindow:
    """The machine of one grouping; holds configuration only."""

    def __init__(self, combine_fn: CombineFn, strategy: WindowingStrategy) -> None:
        self._combine_fn, self._strategy = combine_fn, strategy
        self._trigger = strategy.trigger
        self._untouched = Progress(self._trigger.initial_state())
        window_fn = strategy.window_fn
        self._merging = window_fn if isinstance(window_fn, MergingWindowFn) else None

    @property
    def is_merging(self) -> bool:
        """Whether a cell holds all windows of a key."""
        return self._merging is not None

    def add(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        *,
        watermark_us: int,
        now_us: int,
    ) -> Effects:
        """Take partials in, and fire what is ready."""
        effects, now = Effects(), _Now(watermark_us, now_us)
        if self._merging is not None:
            self._add_merging(self._merging, cells, partials, effects, now)
        else:
            self._add_plain(cells, partials, effects, now)
        return effects

    def fire_timers(
        self,
        cells: MutableMapping[CellId, Cell],
        due: Iterable[TimerId],
        *,
        watermark_us: int,
        now_us: int,
    ) -> Effects:
        """Let the windows of due timers (in time order) fire, expire, or set their next timer."""
        effects, now = Effects(), _Now(watermark_us, now_us)
        for cell_id, window, domain in due:
            cell = cells.get(cell_id)
            state = cell.get(window) if isinstance(cell, dict) else cell
            if state is None:
                continue
            event_us, processing_us = state.wakeup
            state.wakeup = (
                Wakeup(None, processing_us) if domain is TimeDomain.EVENT else Wakeup(event_us)
            )
            state.armed_for = None
            effects.touched.add(cell_id)
            self._settle(cells, cell_id, window, state, effects, now)
        return effects

    def _add_plain(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        now: _Now,
    ) -> None:
        touched: dict[tuple[Any, Window], WindowState] = {}
        for key, window, accumulator, count in partials:
            cell_id = (key, window)
            state: Any = cells.get(cell_id)
            if state is None:
                if self._strategy.expiry_us(window) <= now.watermark_us:
                    effects.late.append(
                        LateArrival(key, window, accumulator, count, now.watermark_us)
                    )
                    continue
                state = cells[cell_id] = self._new_state(window, now)
            touched[cell_id] = state
            self._absorb(state, window, accumulator, count, now)
        for cell_id, state in touched.items():
            self._settle(cells, cell_id, cell_id[1], state, effects, now)
        effects.touched.update(touched)

    def _add_merging(
        self,
        window_fn: MergingWindowFn,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        now: _Now,
    ) -> None:
        by_key: dict[Any, list[Partial]] = defaultdict(list)
        for partial in partials:
            by_key[partial[0]].append(partial)
        for key, arrivals in by_key.items():
            cell_id = (key, None)
            cell: Any = cells.get(cell_id)
            if cell is None:
                cell = {}
            target = self._merge_cell(window_fn, cell_id, cell, arrivals, effects, now)
            changed: dict[Window, WindowState] = {}
            for _, arrived, accumulator, count in arrivals:
                window = target.get(arrived, arrived)
                state = cell.get(window)
                if state is None:
                    if self._strategy.expiry_us(window) <= now.watermark_us:
                        effects.late.append(
                            LateArrival(key, arrived, accumulator, count, now.watermark_us)
                        )
                        continue
                    state = cell[window] = self._new_state(window, now)
                changed[window] = state
                self._absorb(state, window, accumulator, count, now)
            if not changed:
                continue
            cells[cell_id] = cell
            effects.touched.add(cell_id)
            for window, state in changed.items():
                self._settle(cells, cell_id, window, state, effects, now)

    def _merge_cell(
        self,
        window_fn: MergingWindowFn,
        cell_id: CellId,
        cell: dict[Window, WindowState],
        arrivals: Sequence[Partial],
        effects: Effects,
        now: _Now,
    ) -> dict[Window, Window]:
        """Merge the states in the cell where arrivals bridge them; where each window went."""
        target: dict[Window, Window] = {}
        if not cell and len(arrivals) == 1:
            return target
        windows = dict.fromkeys(cell) | dict.fromkeys(arrival[1] for arrival in arrivals)
        for merged, sources in checked_merges(window_fn, windows):
            target.update(dict.fromkeys(sources, merged))
            present = [source for source in sources if source in cell]
            if not present or present == [merged]:
                continue
            states = [cell.pop(source) for source in present]
            for source, state in zip(present, states, strict=True):
                _set_timers(effects, cell_id, source, state, Wakeup())
            cell[merged] = self._merged_state(states, merged, now)
        return target

    def _merged_state(
        self, states: Sequence[WindowState], window: Window, now: _Now
    ) -> WindowState:
        merged = states[0] if len(states) == 1 else self._sum_of(states)
        # A window that has grown past the watermark has its on-time moment ahead of it again.
        merged.is_past = merged.is_past and now.watermark_us >= window.end_us
        merged.trigger = self._trigger.on_merge(
            [state.trigger for state in states], window, watermark_us=now.watermark_us
        )
        return merged

    def _sum_of(self, states: Sequence[WindowState]) -> WindowState:
        full = [state.accumulator for state in states if state.accumulator is not NOTHING]
        return WindowState(
            accumulator=self._combine_fn.merge_accumulators(full) if full else NOTHING,
            pending=sum(state.pending for state in states),
            said=tuple(said for state in states for said in state.said),
            firings=max(state.firings for state in states),
            nonspeculative_firings=max(state.nonspeculative_firings for state in states),
            is_past=any(state.is_past for state in states),
        )

    def _new_state(self, window: Window, now: _Now) -> WindowState:
        return WindowState(
            is_past=now.watermark_us >= window.end_us,
            trigger=self._untouched,
        )

    def _absorb(
        self, state: WindowState, window: Window, accumulator: Any, count: int, now: _Now
    ) -> None:
        if state.accumulator is NOTHING:
            state.accumulator = accumulator
        else:
            state.accumulator = self._combine_fn.merge_accumulators(
                (state.accumulator, accumulator)
            )
        state.pending += count
        if not state.trigger.is_finished:
            seen = self._trigger.on_elements(
                state.trigger.state,
                window,
                count,
                watermark_us=now.watermark_us,
                now_us=now.now_us,
            )
            if seen is not state.trigger.state:
                state.trigger = Progress(seen)

    def _settle(
        self,
        cells: MutableMapping[CellId, Cell],
        cell_id: CellId,
        window: Window,
        state: WindowState,
        effects: Effects,
        now: _Now,
    ) -> None:
        """Fire if it is time; then set the next timers or, past the window's expiry, free its state.

        A record may meet an expired window whose timer has not acted yet, so both callers come here.
        """
        expiry_us = self._strategy.expiry_us(window)
        if now.watermark_us >= expiry_us:
            if state.pending:
                self._fire(cell_id[0], window, state, effects, now, is_last=True)
            _set_timers(effects, cell_id, window, state, Wakeup())
            _free(cells, cell_id, window)
            return
        if not state.trigger.is_finished:
            self._ask_trigger(cell_id[0], window, state, effects, now)
        if state.trigger is not state.armed_for:
            self._arm(cell_id, window, state, expiry_us, effects, now)

    def _arm(
        self,
        cell_id: CellId,
        window: Window,
        state: WindowState,
        expiry_us: int,
        effects: Effects,
        now: _Now,
    ) -> None:
        """Set the timers that the trigger's progress asks for, and the one at which the window expires."""
        wakeup = Wakeup(expiry_us)
        if not state.trigger.is_finished:
            wanted = self._trigger.next_wakeup(
                state.trigger.state, window, watermark_us=now.watermark_us, now_us=now.now_us
            )
            wakeup = wakeup.sooner(wanted.ahead_of(now.watermark_us, now.now_us))
        _set_timers(effects, cell_id, window, state, wakeup)
        state.armed_for = state.trigger

    def _ask_trigger(
        self, key: Any, window: Window, state: WindowState, effects: Effects, now: _Now
    ) -> None:
        watermark_us, now_us = now.watermark_us, now.now_us
        if not self._trigger.should_fire(
            state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
        ):
            return
        if state.pending:
            self._fire(key, window, state, effects, now, is_last=False)
        else:
            # With nothing new the moment passes in silence, but it passes.
            state.is_past |= now.watermark_us >= window.end_us
        state.trigger = self._trigger.on_fire(
            state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
        )

    def _fire(
        self,
        key: Any,
        window: Window,
        state: WindowState,
        effects: Effects,
        now: _Now,
        *,
        is_last: bool,
    ) -> None:
        if now.watermark_us < window.end_us:
            timing = PaneTiming.EARLY
        else:
            timing = PaneTiming.LATE if state.is_past else PaneTiming.ON_TIME
            state.is_past = True
        is_speculative = timing is PaneTiming.EARLY
        pane = PaneInfo(
            index=state.firings,
            timing=timing,
            is_first=state.firings == 0,
            is_last=is_last,
            nonspeculative_index=-1 if is_speculative else state.nonspeculative_firings,
        )
        for value, said_window, said_pane in state.said:
            effects.emit(value, said_window, said_pane, -1)
        result = (key, self._extracted(state.accumulator))
        effects.emit(result, window, pane, +1)
        state.firings += 1
        state.nonspeculative_firings += not is_speculative
        state.pending = 0
        state.said = ((result, window, pane),) if self._strategy.is_retracting else ()
        if self._strategy.accumulation_mode is AccumulationMode.DISCARDING:
            state.accumulator = NOTHING

    def _extracted(self, accumulator: Any) -> Any:
        output = self._combine_fn.extract_output(accumulator)
        if output is accumulator and not isinstance(output, _IMMUTABLE):
            # The accumulator goes on changing; what was said must not change with it.
            return copy.deepcopy(output)
        return output


def _set_timers(
    effects: Effects, cell_id: CellId, window: Window, state: WindowState, wanted: Wakeup
) -> None:
    """Have the timers of a window as wanted."""
    if wanted == state.wakeup:
        return
    event_us, processing_us = wanted
    if event_us != state.wakeup.event_us:
        effects.timers[cell_id, window, TimeDomain.EVENT] = event_us
    if processing_us != state.wakeup.processing_us:
        effects.timers[cell_id, window, TimeDomain.PROCESSING] = processing_us
    state.wakeup = wanted
    state.armed_for = None


def _free(cells: MutableMapping[CellId, Cell], cell_id: CellId, window: Window) -> None:
    cell = cells[cell_id]
    if isinstance(cell, dict):
        del cell[window]
        if cell:
            return
    del cells[cell_id]
