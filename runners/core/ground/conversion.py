"""Conversion: leads the state of one keyed operation over to a pipeline in which nothing retracts its input any more.

Pure; ADR 0069.
"""

from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

from runners.core.ground.cells import CellId, Effects
from triggers.clocks import Clocks


class Conversion(Protocol):
    """Leads state over, in two steps: while the last retractions come, and when none is left on its way."""

    def fire_changed(
        self,
        cells: MutableMapping[CellId, Any],
        cell_ids: Iterable[CellId],
        effects: Effects,
        clocks: Clocks,
    ) -> None:
        """Correct what was emitted, in some cells that may have changed.

        Args:
            cells: of the operation; changed in place.
            cell_ids: of the cells.
            effects: receives what is emitted, and what else changes.
            clocks: the clocks.
        """

    def convert(
        self, cells: MutableMapping[CellId, Any], cell_ids: Iterable[CellId], clocks: Clocks
    ) -> Effects:
        """Make of some cells those of an operation whose input is never retracted.

        Args:
            cells: of the operation; changed in place.
            cell_ids: of the cells to convert, each once; no retraction is on its way to them, and `fire_changed` has
                nothing to do.
            clocks: the clocks.
        """
