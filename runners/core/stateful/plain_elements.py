"""PlainElements: a stateful DoFn whose input may have been retracted so far, and will not be any more.

What the DoFn has of its own stays: it has seen the retractions (`DoFn.handles_retractions`), and has undone itself
what it could.  Of elements that wait until they are in order those go that are retracted by others that wait.

ADR 0069.
"""

from collections.abc import Iterable, MutableMapping
from typing import Any

from runners.core.ground.cells import CellId, Effects
from runners.core.ground.conversion import Conversion
from runners.core.partials.stateful_inputs import without_retracted
from runners.core.stateful.keyed_state import KeyedState
from triggers.clocks import Clocks
from windowing.time_domain import TimeDomain


class PlainElements(Conversion):
    """Leads the cells of a stateful DoFn over; windows that merge have no input that may be retracted."""

    def fire_changed(
        self,
        cells: MutableMapping[CellId, Any],
        cell_ids: Iterable[CellId],
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        """Do nothing: what a stateful DoFn has emitted is final, and it corrects it by what it emits later."""
        del cells, cell_ids, effects, clocks

    def convert(
        self, cells: MutableMapping[CellId, Any], cell_ids: Iterable[CellId], clocks: Clocks
    ) -> Effects:
        """Let elements that wait go with their retractions; a cell that has nothing else is deleted."""
        del clocks
        effects = Effects()
        for cell_id in [*cell_ids]:
            cell = cells.get(cell_id)
            if not isinstance(cell, KeyedState) or not cell.backlog:
                continue
            cell.backlog = without_retracted(cell.backlog)
            effects.touched[cell_id] = None
            if cell.is_empty:
                window = cell_id[1]
                assert window is not None
                del cells[cell_id]
                for domain in (TimeDomain.EVENT, TimeDomain.PROCESSING):
                    effects.timers[cell_id, window, domain] = None
        return effects
