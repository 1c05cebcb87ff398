"""GroupAlsoByWindow: the window, trigger and pane machine, the same for every engine.

Takes partials and due timers, keeps cells, and says which panes are emitted, which timers change and which records are
too late.  The clock is two arguments: ``watermark_us`` (event time) and ``now_us`` (processing time).

A *cell* is the unit of state that is read and written together: one window of a key, or, where windows merge, all
windows of a key.  Whoever calls owns the cells and applies the effects atomically.

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
from enum import Enum
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn
from runners.core.bundle import Bundle
from runners.core.partials import Partial
from triggers.accumulation import AccumulationMode
from triggers.windowing_strategy import WindowingStrategy
from windowing.checks import checked_merges
from windowing.pane import PaneInfo, PaneTiming
from windowing.window import Window
from windowing.window_fn import MergingWindowFn

#: Key, and the window where the cell is per window.
CellId = tuple[Any, Window | None]
TimerId = tuple[CellId, Window]


class _Nothing(Enum):
    """In place of an accumulator that holds nothing; an Enum, because its identity survives pickling."""

    NOTHING = "nothing"


_NOTHING = _Nothing.NOTHING
_IMMUTABLE = (int, float, str, bytes, bool, type(None))


@attrs.define
class WindowState:
    """What is kept for one key and window.

    ``pending``: inputs since the last firing.  ``said``: what is to be taken back at the next
        firing, with the window it
    was said for: after a merge that may be several.  ``is_past``: the on-time moment is behind.
    """

    accumulator: Any = _NOTHING
    pending: int = 0
    said: tuple[tuple[Any, Window, PaneInfo], ...] = ()
    firings: int = 0
    nonspeculative_firings: int = 0
    is_past: bool = False
    trigger_state: Any = None
    timer_us: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A plain call pickles in half the time of attrs' state protocol; cells are pickled at every commit.
        return WindowState, (
            self.accumulator,
            self.pending,
            self.said,
            self.firings,
            self.nonspeculative_firings,
            self.is_past,
            self.trigger_state,
            self.timer_us,
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
    """What one step makes happen; ``timers`` maps to the new event time, or None to delete."""

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

    def _emit(self, value: Any, window: Window, pane: PaneInfo, sign: int) -> None:
        self.values.append(value)
        self.timestamps_us.append(window.max_timestamp_us)
        self.windows.append(window)
        self.panes.append(pane)
        self.signs.append(sign)


@attrs.frozen
class _Now:
    watermark_us: int
    now_us: int


class GroupAlsoByWindow:
    """The machine of one grouping; holds configuration only."""

    def __init__(self, combine_fn: CombineFn, strategy: WindowingStrategy) -> None:
        self._combine_fn, self._strategy = combine_fn, strategy
        self._trigger = strategy.trigger
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
        for cell_id, window in due:
            cell = cells.get(cell_id)
            state = cell.get(window) if isinstance(cell, dict) else cell
            if state is None:
                continue
            state.timer_us = None
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
                if state.timer_us is not None:
                    effects.timers[cell_id, source] = None
            cell[merged] = self._merged_state(states, merged, now)
        return target

    def _merged_state(
        self, states: Sequence[WindowState], window: Window, now: _Now
    ) -> WindowState:
        merged = states[0] if len(states) == 1 else self._sum_of(states)
        # A window that has grown past the watermark has its on-time moment ahead of it again.
        merged.is_past = merged.is_past and now.watermark_us >= window.end_us
        merged.trigger_state = self._trigger.on_merge(
            [state.trigger_state for state in states], window
        )
        merged.timer_us = None
        return merged

    def _sum_of(self, states: Sequence[WindowState]) -> WindowState:
        full = [state.accumulator for state in states if state.accumulator is not _NOTHING]
        return WindowState(
            accumulator=self._combine_fn.merge_accumulators(full) if full else _NOTHING,
            pending=sum(state.pending for state in states),
            said=tuple(said for state in states for said in state.said),
            firings=max(state.firings for state in states),
            nonspeculative_firings=max(state.nonspeculative_firings for state in states),
            is_past=any(state.is_past for state in states),
        )

    def _new_state(self, window: Window, now: _Now) -> WindowState:
        return WindowState(
            is_past=now.watermark_us >= window.end_us, trigger_state=self._trigger.initial_state()
        )

    def _absorb(
        self, state: WindowState, window: Window, accumulator: Any, count: int, now: _Now
    ) -> None:
        if state.accumulator is _NOTHING:
            state.accumulator = accumulator
        else:
            state.accumulator = self._combine_fn.merge_accumulators(
                (state.accumulator, accumulator)
            )
        state.pending += count
        state.trigger_state = self._trigger.on_elements(
            state.trigger_state,
            window,
            count,
            watermark_us=now.watermark_us,
            now_us=now.now_us,
        )

    def _settle(
        self,
        cells: MutableMapping[CellId, Cell],
        cell_id: CellId,
        window: Window,
        state: WindowState,
        effects: Effects,
        now: _Now,
    ) -> None:
        """Fire if it is time; then set the next timer or, past the window's expiry, free its state.

        A record may meet an expired window whose timer has not acted yet, so both callers come here.
        """
        watermark_us, now_us = now.watermark_us, now.now_us
        expiry_us = self._strategy.expiry_us(window)
        is_expired = watermark_us >= expiry_us
        if state.pending and (
            is_expired
            or self._trigger.should_fire(
                state.trigger_state, window, watermark_us=watermark_us, now_us=now_us
            )
        ):
            self._fire(cell_id[0], window, state, effects, now, is_last=is_expired)
        if is_expired:
            if state.timer_us is not None:
                effects.timers[cell_id, window] = None
            _free(cells, cell_id, window)
            return
        wakeup_us = self._trigger.next_wakeup(state.trigger_state, window).event_us
        if wakeup_us is None or wakeup_us <= watermark_us:
            wakeup_us = expiry_us
        timer_us = min(wakeup_us, expiry_us)
        if timer_us != state.timer_us:
            state.timer_us = effects.timers[cell_id, window] = timer_us

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
            effects._emit(value, said_window, said_pane, -1)  # noqa: SLF001 - one module, two classes
        result = (key, self._extracted(state.accumulator))
        effects._emit(result, window, pane, +1)  # noqa: SLF001
        state.firings += 1
        state.nonspeculative_firings += not is_speculative
        state.pending = 0
        state.said = ((result, window, pane),) if self._strategy.is_retracting else ()
        if self._strategy.accumulation_mode is AccumulationMode.DISCARDING:
            state.accumulator = _NOTHING
        state.trigger_state = self._trigger.on_fire(
            state.trigger_state, window, watermark_us=now.watermark_us, now_us=now.now_us
        )

    def _extracted(self, accumulator: Any) -> Any:
        output = self._combine_fn.extract_output(accumulator)
        if output is accumulator and not isinstance(output, _IMMUTABLE):
            # The accumulator goes on changing; what was said must not change with it.
            return copy.deepcopy(output)
        return output


def _free(cells: MutableMapping[CellId, Cell], cell_id: CellId, window: Window) -> None:
    cell = cells[cell_id]
    if isinstance(cell, dict):
        del cell[window]
        if cell:
            return
    del cells[cell_id]
