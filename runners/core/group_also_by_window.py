"""GroupAlsoByWindow: the window, trigger and pane machine, the same for every engine.

Takes partials and due timers, keeps cells, and says which panes are emitted, which timers change and which records are
too late.  The clock is two arguments: ``watermark_us`` (event time) and ``now_us`` (processing time).

Whoever calls owns the cells (`runners.core.cells`) and applies the effects atomically.

**Invariants**

* With retractions, the signed sum of the panes of a key is, at every moment, what was last said
  for each of its windows.
* A record is dropped only after merging could have saved it, and every drop is an effect.
* What comes in may be taken back: then a window without anything left says nothing, and keeps nothing.
* At expiry what is pending is emitted, then the cell is gone: nothing is kept for a closed window.

Dataflow Model, sections 2.2.2 and 2.3.  Reads no clock, touches no store.
"""

from collections import defaultdict
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from runners.core.accumulation import Accumulation
from runners.core.cells import (
    NOTHING,
    Cell,
    CellId,
    Effects,
    LateArrival,
    Now,
    TimerId,
    WindowState,
)
from runners.core.merging_cells import Merger, Regrouper, fresh_state
from runners.core.panes import Panes
from runners.core.partials import Partial
from triggers.firing_behavior import FiringBehavior
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import Elements, Progress, Wakeup
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import MergingWindowFn


class GroupAlsoByWindow:
    """The machine of one grouping; holds configuration only."""

    def __init__(self, accumulation: Accumulation) -> None:
        strategy = accumulation.strategy
        self._accumulation, self._strategy = accumulation, strategy
        self._combine_fn, self._trigger = accumulation.combine_fn, strategy.trigger
        self._takes_back_merged = strategy.is_retracting and strategy.is_merging
        self._holds = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        window_fn = strategy.window_fn
        self._merger: Merger | None = None
        self._regrouper: Regrouper | None = None
        if isinstance(window_fn, MergingWindowFn):
            if accumulation.is_retracted:
                self._regrouper = Regrouper(window_fn, accumulation.combine_fn, strategy)
            else:
                self._merger = Merger(window_fn, accumulation.combine_fn, strategy)
        self._panes = Panes(accumulation, self._regrouper.whole if self._regrouper else None)

    @property
    def is_merging(self) -> bool:
        """Whether a cell holds all windows of a key."""
        return self._strategy.is_merging

    def add(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        *,
        watermark_us: int,
        now_us: int,
    ) -> Effects:
        """Take partials in, and fire what is ready."""
        effects, now = Effects(), Now(watermark_us, now_us)
        if self._regrouper is not None:
            self._add_regrouping(self._regrouper, cells, partials, effects, now)
        elif self._merger is not None:
            self._add_merging(self._merger, cells, partials, effects, now)
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
        effects, now = Effects(), Now(watermark_us, now_us)
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
            self.settle(cells, cell_id, window, state, effects, now)
        return effects

    def _add_plain(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        now: Now,
    ) -> None:
        touched: dict[tuple[Any, Window], WindowState] = {}
        for key, window, accumulator, count in partials:
            cell_id = (key, window)
            state: Any = cells.get(cell_id)
            if state is None:
                if self._strategy.expiry_us(window) <= now.watermark_us:
                    self._drop((key, window, accumulator, count), effects, now)
                    continue
                state = cells[cell_id] = fresh_state(self._strategy, window, now)
            touched[cell_id] = state
            self._absorb(state, window, accumulator, count, now)
        for cell_id, state in touched.items():
            self.settle(cells, cell_id, cell_id[1], state, effects, now)
        effects.touched.update(touched)

    def _add_merging(
        self,
        merger: Merger,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        now: Now,
    ) -> None:
        for key, arrivals in _by_key(partials).items():
            cell_id = (key, None)
            cell: Any = cells.get(cell_id)
            if cell is None:
                cell = {}
            target, gone = merger.merge(cell, arrivals, now)
            for window, state in gone:
                _clear(effects, cell_id, window, state)
            changed: dict[Window, WindowState] = {}
            for _, arrived, accumulator, count in arrivals:
                window = target.get(arrived, arrived)
                state = cell.get(window)
                if state is None:
                    if self._strategy.expiry_us(window) <= now.watermark_us:
                        self._drop((key, arrived, accumulator, count), effects, now)
                        continue
                    state = cell[window] = fresh_state(self._strategy, window, now)
                changed[window] = state
                self._absorb(state, window, accumulator, count, now)
            if not changed:
                continue
            cells[cell_id] = cell
            effects.touched.add(cell_id)
            for window, state in changed.items():
                self.settle(cells, cell_id, window, state, effects, now)

    def _add_regrouping(
        self,
        regrouper: Regrouper,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        now: Now,
    ) -> None:
        for key, arrivals in _by_key(partials).items():
            cell_id = (key, None)
            cell: Any = cells.setdefault(cell_id, {})
            regrouped = regrouper.regroup(cell, self._folded(arrivals), now)
            for window, state in regrouped.gone:
                _clear(effects, cell_id, window, state)
            values = self._values_by_part(arrivals)
            for window, count in regrouped.changed.items():
                parts = cell[window].accumulator
                seen = [value for part in parts for value in values.get(part, ())] if values else []
                self._observe(cell[window], window, Elements(count, seen), now)
            for window in regrouped.split:
                is_last = self._strategy.expiry_us(window) <= now.watermark_us
                self._panes.fire(key, window, cell[window], effects, now, is_last=is_last)
            for window in regrouped.changed:
                self.settle(cells, cell_id, window, cell[window], effects, now)
            late = set(regrouped.late)
            for arrival in arrivals:
                if arrival[1] in late:
                    self._drop(arrival, effects, now)
            if regrouped.changed or regrouped.gone:
                effects.touched.add(cell_id)
            if not cell:
                cells.pop(cell_id, None)

    def _absorb(
        self, state: WindowState, window: Window, accumulator: Any, count: int, now: Now
    ) -> None:
        elements = Elements(count)
        if self._accumulation.reads_values:
            elements = Elements(count, self._accumulation.values(accumulator))
            accumulator = self._accumulation.folded(accumulator)
        if state.accumulator is NOTHING:
            state.accumulator = accumulator
        else:
            state.accumulator = self._combine_fn.merge_accumulators(
                (state.accumulator, accumulator)
            )
        self._observe(state, window, elements, now)

    def _observe(self, state: WindowState, window: Window, elements: Elements, now: Now) -> None:
        """Have the trigger see that records have come."""
        state.pending += elements.size
        if elements.size and not state.trigger.is_finished:
            seen = self._trigger.on_elements(
                state.trigger.state,
                window,
                elements,
                watermark_us=now.watermark_us,
                now_us=now.now_us,
            )
            if seen is not state.trigger.state:
                state.trigger = Progress(seen)

    def _folded(self, arrivals: Sequence[Partial]) -> Sequence[Partial]:
        if not self._accumulation.reads_values:
            return arrivals
        folded = self._accumulation.folded
        return [(key, part, folded(inputs), count) for key, part, inputs, count in arrivals]

    def _values_by_part(self, arrivals: Sequence[Partial]) -> dict[Window, list[Any]]:
        by_part: dict[Window, list[Any]] = defaultdict(list)
        if self._accumulation.reads_values:
            for _, part, inputs, _ in arrivals:
                by_part[part].extend(self._accumulation.values(inputs))
        return by_part

    def _drop(self, arrival: Partial, effects: Effects, now: Now) -> None:
        ((key, window, accumulator, count),) = self._folded([arrival])
        effects.late.append(LateArrival(key, window, accumulator, count, now.watermark_us))

    def settle(
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
            _clear(effects, cell_id, window, state)
            _free(cells, cell_id, window)
            return
        if self._deadline_us(window, state) <= now.watermark_us and state.pending:
            self._panes.fire(cell_id[0], window, state, effects, now, is_last=False)
        if not state.trigger.is_finished:
            self._ask_trigger(cell_id[0], window, state, effects, now)
        if self._accumulation.is_retracted and not state.said and self._is_void(state):
            _clear(effects, cell_id, window, state)
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
            self._speaks_on_time(window, state, now)
            and not state.trigger.is_finished
            and self._trigger.should_fire(
                state.trigger.state, window, watermark_us=now.watermark_us, now_us=now.now_us
            )
        )

    def _speaks_on_time(self, window: Window, state: WindowState, now: Now) -> bool:
        """Whether this is the end of the window, and it speaks then with nothing new too."""
        return (
            self._strategy.on_time_behavior is FiringBehavior.FIRE_ALWAYS
            and not state.is_past
            and now.watermark_us >= window.end_us
        )

    def _is_void(self, state: WindowState) -> bool:
        if self._regrouper is not None or state.accumulator is NOTHING:
            return not state.accumulator or state.accumulator is NOTHING
        return bool(self._accumulation.shrinking.is_void(state.accumulator))

    def _hold(self, cell_id: CellId, window: Window, state: WindowState, effects: Effects) -> None:
        """Have the watermark behind the grouping wait at the event time of what the window is to say."""
        hold_us = self._panes.timestamp_us(window, state) if state.pending else None
        if hold_us != state.hold_us:
            effects.holds[cell_id, window] = state.hold_us = hold_us

    def _deadline_us(self, window: Window, state: WindowState) -> int:
        """When what was said for windows that have merged into this one must be taken back, whatever the trigger says.

        Whoever grouped it again keeps those windows for the same lateness, and then no longer.
        """
        if not self._takes_back_merged:
            return MAX_TIMESTAMP_US
        foreign = (said.window for said in state.said if said.window != window)
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
        wakeup = Wakeup(latest_us)
        if not state.trigger.is_finished:
            wanted = self._trigger.next_wakeup(
                state.trigger.state, window, watermark_us=now.watermark_us, now_us=now.now_us
            )
            wakeup = wakeup.sooner(wanted.ahead_of(now.watermark_us, now.now_us))
        _set_timers(effects, cell_id, window, state, wakeup)
        state.armed_for = state.trigger

    def _ask_trigger(
        self, key: Any, window: Window, state: WindowState, effects: Effects, now: Now
    ) -> None:
        watermark_us, now_us = now.watermark_us, now.now_us
        if not self._trigger.should_fire(
            state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
        ):
            return
        if state.pending or self._speaks_on_time(window, state, now):
            self._panes.fire(key, window, state, effects, now, is_last=False)
        else:
            # With nothing new the moment passes in silence, but it passes.
            state.is_past |= now.watermark_us >= window.end_us
        state.trigger = self._trigger.on_fire(
            state.trigger.state, window, watermark_us=watermark_us, now_us=now_us
        )


def _by_key(partials: Iterable[Partial]) -> dict[Any, list[Partial]]:
    by_key: dict[Any, list[Partial]] = defaultdict(list)
    for partial in partials:
        by_key[partial[0]].append(partial)
    return by_key


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


def _clear(effects: Effects, cell_id: CellId, window: Window, state: WindowState) -> None:
    """Let go of everything that a window has set."""
    _set_timers(effects, cell_id, window, state, Wakeup())
    if state.hold_us is not None:
        effects.holds[cell_id, window] = state.hold_us = None


def _free(cells: MutableMapping[CellId, Cell], cell_id: CellId, window: Window) -> None:
    cell = cells[cell_id]
    if isinstance(cell, dict):
        del cell[window]
        if cell:
            return
    del cells[cell_id]
