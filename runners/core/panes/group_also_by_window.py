"""GroupAlsoByWindow: the window, trigger and pane machine, the same for every engine.

Takes partials and due timers, keeps cells, and returns which panes are emitted, which timers change and which records
are too late.  The watermark of the `Clocks` decides what is too late; triggers and panes follow the percentile
watermark where there is one and it is ahead (`Clocks.for_triggers`).

The caller owns the cells (`runners.core.ground.cells`) and applies the effects atomically.

**Invariants**

* With retractions, the signed sum of the panes of a key is, at every moment, what was last emitted for each of its
  windows.
* A record is dropped only after merging could have saved it, and every drop is an effect.
* Input may be retracted: a window that then has nothing left emits nothing.  If such a window has fired before and
  expires some time, it keeps the numbers of its panes, and the progress of its trigger, until then; otherwise it
  keeps nothing.
* At expiry what is pending is emitted, then the cell is deleted: nothing is kept for a closed window.

Dataflow Model, sections 2.2.2 and 2.3.  Reads no clock, touches no store.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from runners.core.ground.active_windows import ActiveWindows
from runners.core.ground.cells import (
    NOTHING,
    Cell,
    CellId,
    Effects,
    LateArrival,
    TimerId,
    WindowState,
    window_holds,
)
from runners.core.panes.merging_cells import Merger, Regrouper, fresh_state
from runners.core.panes.plain_input import PlainInput
from runners.core.panes.window_lifecycle import WindowLifecycle, clear
from runners.core.partials.folding import Accumulation
from runners.core.partials.partial import LatePartial, Partial
from triggers.clocks import Clocks
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import Elements
from windowing.window import Window
from windowing.window_fn import MergingWindowFn

#: So many values that need not stay together go on, of a key and window.
PASSED_VALUES = 256


class GroupAlsoByWindow:
    """The state machine of one grouping; it keeps configuration only, and no state."""

    def __init__(self, accumulation: Accumulation) -> None:
        strategy = accumulation.strategy
        self._accumulation, self._strategy = accumulation, strategy
        self._combine_fn = accumulation.combine_fn
        window_fn = strategy.window_fn
        self._merger: Merger | None = None
        self._regrouper: Regrouper | None = None
        if isinstance(window_fn, MergingWindowFn):
            if accumulation.is_retracted:
                self._regrouper = Regrouper(window_fn, accumulation.combine_fn, strategy)
            else:
                active = ActiveWindows(window_fn)
                self._merger = Merger(accumulation.combine_fn, strategy, active)
        self._life = WindowLifecycle(accumulation, self._regrouper)
        #: Leads the windows over to a pipeline in which their input is never retracted; None: it is not now.
        self.plain_input: PlainInput | None = None
        if accumulation.is_retracted:
            self.plain_input = PlainInput(accumulation, self._life, self._regrouper)

    @property
    def is_merging(self) -> bool:
        """Whether a cell holds all windows of a key."""
        return self._strategy.is_merging

    @property
    def can_hold(self) -> bool:
        """Whether cells can have holds."""
        return self._strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW

    def holds(self, cell_id: CellId, cell: Cell | None) -> Iterator[tuple[Window, int]]:
        """The windows of a cell that hold the watermark behind the grouping, and their holds in microseconds.

        Args:
            cell_id: of the cell.
            cell: its state; None: there is none.
        """
        return window_holds(cell_id, cell)

    def trace(self) -> None:
        """Have it say why windows fire, and which have expired (`Effects.causes`, `Effects.expired`)."""
        self._life.explain()

    @property
    def lifecycle(self) -> WindowLifecycle:
        """The lifecycle of the windows of this grouping."""
        return self._life

    def add(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        clocks: Clocks,
    ) -> Effects:
        """Add partials to their windows, and fire the windows that are due.

        Args:
            cells: of the grouping; changed in place.
            partials: what has arrived.
            clocks: the clocks.
        """
        effects = Effects()
        if self._regrouper is not None:
            self._add_regrouping(self._regrouper, cells, partials, effects, clocks)
        elif self._merger is not None:
            self._add_merging(self._merger, cells, partials, effects, clocks)
        else:
            self._add_plain(cells, partials, effects, clocks)
        return effects

    def fire_timers(
        self,
        cells: MutableMapping[CellId, Cell],
        due: Iterable[TimerId],
        clocks: Clocks,
    ) -> Effects:
        """Let the windows of due timers fire, expire, or set their next timer.

        Args:
            cells: of the grouping; changed in place.
            due: the timers, in the order of time.
            clocks: the clocks.
        """
        effects = Effects()
        for cell_id, window, domain in due:
            cell = cells.get(cell_id)
            state = cell.get(window) if isinstance(cell, dict) else cell
            if state is None:
                continue
            state.timers = state.timers.without(domain)
            state.armed_for = None
            effects.touched[cell_id] = None
            self._life.fire_if_due(cells, cell_id, window, state, effects, clocks)
        return effects

    def retract_standing(
        self, cells: MutableMapping[CellId, Cell], retracted: Iterable[CellId], clocks: Clocks
    ) -> Effects:
        """Retract the standing panes of some cells, which stay as they are.

        Args:
            cells: of the grouping; not changed.
            retracted: the cells whose panes are retracted; those that are not there have none.
            clocks: the clocks.
        """
        del clocks
        effects = Effects()
        for cell_id in retracted:
            cell = cells.get(cell_id)
            states = cell.values() if isinstance(cell, dict) else [cell]
            for state in states:
                if state is not None:
                    self._life.retract_standing(cell_id[0], state, effects)
        return effects

    def _add_plain(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        touched: dict[tuple[Any, Window], WindowState] = {}
        for partial in partials:
            key, window, _, _ = partial
            cell_id = (key, window)
            state: Any = cells.get(cell_id)
            if state is None:
                if self._strategy.expiry_us(window) <= clocks.watermark_us:
                    self._drop(partial, effects, clocks)
                    continue
                state = cells[cell_id] = fresh_state(self._strategy, window, clocks)
            touched[cell_id] = state
            self._absorb(state, window, partial, clocks)
            if self._accumulation.passes_on:
                self._life.pass_on(key, window, state, effects, PASSED_VALUES)
        for cell_id, state in touched.items():
            self._life.fire_if_due(cells, cell_id, cell_id[1], state, effects, clocks)
        effects.touched.update(dict.fromkeys(touched))

    def _add_merging(
        self,
        merger: Merger,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        for key, arrivals in _by_key(partials).items():
            cell_id = (key, None)
            cell: Any = cells.get(cell_id)
            if cell is None:
                cell = {}
            target, gone = merger.merge(cell, arrivals, clocks)
            for window, state in gone:
                clear(effects, cell_id, window, state)
            changed: dict[Window, WindowState] = {}
            for arrival in arrivals:
                window = target.get(arrival[1], arrival[1])
                state = cell.get(window)
                if state is None:
                    if self._strategy.expiry_us(window) <= clocks.watermark_us:
                        self._drop(arrival, effects, clocks)
                        continue
                    state = cell[window] = fresh_state(self._strategy, window, clocks)
                changed[window] = state
                self._absorb(state, window, arrival, clocks)
            if not changed:
                continue
            cells[cell_id] = cell
            effects.touched[cell_id] = None
            for window, state in changed.items():
                self._life.fire_if_due(cells, cell_id, window, state, effects, clocks)

    def _add_regrouping(
        self,
        regrouper: Regrouper,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        for key, arrivals in _by_key(partials).items():
            cell_id = (key, None)
            cell: Any = cells.setdefault(cell_id, {})
            regrouped = regrouper.regroup(cell, self._arrived(arrivals, clocks), clocks)
            for window, state in regrouped.gone:
                clear(effects, cell_id, window, state)
            values = self._values_by_part(arrivals)
            for window, count in regrouped.changed.items():
                parts = cell[window].accumulator
                seen = [value for part in parts for value in values.get(part, ())] if values else []
                self._life.observe(cell[window], window, Elements(count, seen), clocks)
            for window in regrouped.split:
                self._life.fire(key, window, cell[window], effects, clocks)
            for window in regrouped.changed:
                self._life.fire_if_due(cells, cell_id, window, cell[window], effects, clocks)
            late = set(regrouped.late)
            for arrival in arrivals:
                if arrival[1] in late:
                    self._drop(arrival, effects, clocks)
            if regrouped.changed or regrouped.gone:
                effects.touched[cell_id] = None
            if not cell:
                cells.pop(cell_id, None)

    def _absorb(self, state: WindowState, window: Window, partial: Partial, clocks: Clocks) -> None:
        _, _, accumulator, count = partial
        elements = Elements(count)
        if self._accumulation.reads_values:
            elements = Elements(count, self._accumulation.values(accumulator))
            accumulator = self._accumulation.folded(accumulator)
        if self._accumulation.is_stamped and _is_late(partial, clocks):
            accumulator = self._accumulation.unstamped(accumulator)
        if state.accumulator is NOTHING:
            state.accumulator = accumulator
        else:
            state.accumulator = self._combine_fn.merge_accumulators(
                (state.accumulator, accumulator)
            )
        self._life.observe(state, window, elements, clocks)

    def _arrived(self, arrivals: Sequence[Partial], clocks: Clocks) -> Sequence[Partial]:
        """The arrivals, folded; late ones without an event time, as they must not decide the event time of a pane."""
        folded = self._folded(arrivals)
        if not self._accumulation.is_stamped:
            return folded
        unstamped = self._accumulation.unstamped
        return [
            (key, part, unstamped(accumulator), count)
            if _is_late(arrival, clocks)
            else (key, part, accumulator, count)
            for arrival, (key, part, accumulator, count) in zip(arrivals, folded, strict=True)
        ]

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

    def _drop(self, arrival: Partial, effects: Effects, clocks: Clocks) -> None:
        ((key, window, accumulator, count),) = self._folded([arrival])
        if self._accumulation.passes_on:
            part, _ = self._accumulation.passed_on(accumulator)
            accumulator = part.values
        record = arrival.record if isinstance(arrival, LatePartial) else None
        late = LateArrival(key, window, accumulator, count, clocks.watermark_us, record)
        effects.late.append(late)


def _is_late(partial: Partial, clocks: Clocks) -> bool:
    """Whether a partial is of a record that was behind the watermark when it came."""
    return isinstance(partial, LatePartial) and partial.record.timestamp_us < clocks.watermark_us


def _by_key(partials: Iterable[Partial]) -> dict[Any, list[Partial]]:
    by_key: dict[Any, list[Partial]] = defaultdict(list)
    for partial in partials:
        by_key[partial[0]].append(partial)
    return by_key
