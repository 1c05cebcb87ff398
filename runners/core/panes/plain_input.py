"""PlainInput: windows whose input may have been retracted so far, and will not be any more.

Accumulators of such windows have signs (`SignedCombineFn`), and those of others do not.  A version of a job on its way
to a pipeline in which nothing retracts the input of a grouping any more makes the one of the other, in two steps: while
the last retractions come, windows correct at once what they have emitted (`fire_changed`); when none is left on its
way, the state becomes that of a grouping that was never retracted (`convert`).

**Law:** afterwards the windows have what they would have if what was retracted had never come, but for the numbers of
their panes and for event times that were chosen from records.

ADR 0069.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import attrs

from runners.core.ground.cells import NOTHING, Cell, CellId, Effects, EmittedPane, WindowState
from runners.core.ground.conversion import Conversion
from runners.core.panes.merging_cells import Regrouper
from runners.core.panes.window_lifecycle import WindowLifecycle, clear, free
from runners.core.partials.folding import Accumulation
from triggers.clocks import Clocks
from windowing.pane import NO_FIRING
from windowing.window import Window


class PlainInput(Conversion):
    """Leads the windows of one grouping over; it keeps configuration only, and no state.

    Args:
        accumulation: of the grouping as it is, whose records may be retracted.
        life: of its windows.
        regrouper: splits windows again; None where windows are never split.
    """

    def __init__(
        self, accumulation: Accumulation, life: WindowLifecycle, regrouper: Regrouper | None
    ) -> None:
        self._accumulation, self._plain = accumulation, accumulation.of_plain_input()
        self._life, self._regrouper = life, regrouper

    def fire_changed(
        self,
        cells: MutableMapping[CellId, Cell],
        cell_ids: Iterable[CellId],
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        """Fire the windows that have changed since they emitted, whether their trigger is ready or not.

        Without that, a window of which nothing is left would have to retract what it has emitted later on.
        """
        for cell_id, window, state in _windows(cells, cell_ids):
            if not (state.emitted and (state.pending or len(state.emitted) > 1)):
                continue
            effects.touched[cell_id] = None
            self._life.fire(cell_id[0], window, state, effects, clocks)
            self._life.fire_if_due(cells, cell_id, window, state, effects, clocks)

    def convert(
        self, cells: MutableMapping[CellId, Cell], cell_ids: Iterable[CellId], clocks: Clocks
    ) -> Effects:
        """Make the state of windows that of a grouping whose input is never retracted; empty windows are deleted."""
        del clocks
        effects = Effects()
        size = self._accumulation.shrinking.size
        for cell_id, window, state in _windows(cells, cell_ids):
            effects.touched[cell_id] = None
            whole = self._whole(state)
            if whole is NOTHING or size(whole) <= 0:
                clear(effects, cell_id, window, state)
                free(cells, cell_id, window)
                continue
            plain = self._accumulation.unsigned(whole)
            state.accumulator, state.armed_for = plain, None
            if self._plain.emits_changes and state.emitted:
                (emitted,) = state.emitted
                # Of windows that emit changes, what was emitted is kept as an accumulator, and apart from what comes.
                state.emitted = (_as_accumulator(emitted, plain),)
                state.accumulator = NOTHING
        return effects

    def _whole(self, state: WindowState) -> Any:
        """One accumulator of all that a window has; `NOTHING` if it has none."""
        if self._accumulation.emits_changes and state.emitted:
            return state.emitted[0].value
        if self._regrouper is not None:
            return self._regrouper.whole(state.accumulator)
        return state.accumulator


def _as_accumulator(emitted: EmittedPane, accumulator: Any) -> EmittedPane:
    return attrs.evolve(emitted, value=accumulator, pane=NO_FIRING)


def _windows(
    cells: MutableMapping[CellId, Cell], cell_ids: Iterable[CellId]
) -> Iterator[tuple[CellId, Window, WindowState]]:
    """The windows of cells, which may be deleted meanwhile; cells that are not there have none."""
    for cell_id in [*cell_ids]:
        cell = cells.get(cell_id)
        if isinstance(cell, dict):
            yield from ((cell_id, window, state) for window, state in [*cell.items()])
        elif cell is not None:
            assert cell_id[1] is not None
            yield cell_id, cell_id[1], cell
