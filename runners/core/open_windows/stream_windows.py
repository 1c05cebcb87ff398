"""StreamWindows: open windows whose keys have owners that come and go, as the key ranges on a worker of a stream do.

Cells and timers belong to keys, and so to the owner of the key.  What is kept beside cells is kept by owner, and every
change of it is in a step (`Step.noted`), for the engine to make it durable: then the next owner restores it.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from runners.core.ground.cells import CellId
from runners.core.open_windows.open_windows import OpenWindows
from runners.core.partials.partial import Partial
from runners.core.stages.entries import Entry
from runners.core.stages.grouping import Step
from runners.core.stages.stage_clocks import StageClocks


class StreamWindows(OpenWindows):
    """The open windows of one grouping for all owners of its keys that are here; cells are the engine's."""

    @property
    @abstractmethod
    def next_event_us(self) -> int | None:
        """The watermark at which `advance` has something to do first, in microseconds; None: at none."""

    @abstractmethod
    def cell_ids(self) -> Iterable[CellId]:
        """The cells that are in memory, or have a timer."""

    @abstractmethod
    def restore(self, entry: Entry, owner: Any = None, *, nbytes: int = 0) -> None:
        """Apply an entry: what was spilled, or what an owner before has noted, in the same order.

        Args:
            entry: the entry.
            owner: whose it is; see `Arrival`.
            nbytes: the size that it had where it was stored.

        Raises:
            StoreError: such windows cannot have such entries.
        """

    @abstractmethod
    def restore_holds(self, cell_ids: Iterable[CellId]) -> None:
        """Hold the watermark for the windows of cells that were restored, or have come from elsewhere."""

    @abstractmethod
    def forget(self, owner: Any, is_gone: Callable[[CellId], bool]) -> None:
        """Forget an owner: timers and holds of its cells, and what is kept beside them; cells are the engine's.

        Args:
            owner: who is gone.
            is_gone: whether a cell is its.
        """

    def go_over(self, cell_ids: Collection[CellId], clocks: StageClocks) -> Step:
        """Do with some cells, which are in memory, what is to be done with each once; see `GroupingStage.go_over`.

        Args:
            cell_ids: the cells.
            clocks: the clocks.
        """
        raise AssertionError(f"windows that do not retract have no standing panes at {clocks}")

    # The rest is about what is kept for each owner beside cells: nothing, unless a subclass keeps something.

    @property
    def nbytes(self) -> int:
        """The bytes that are used for anything beside cells."""
        return 0

    @property
    def owners(self) -> Sequence[Any]:
        """The owners of whom anything is kept beside cells."""
        return ()

    @property
    def crowded(self) -> Sequence[Any]:
        """The owners of what takes more room than there is, or cannot be kept small; `relieve` them."""
        return ()

    def relieve(self, owner: Any, clocks: StageClocks) -> Step:
        """Bring everything that is kept of an owner into cells.

        Args:
            owner: one of `owners`.
            clocks: the clocks, as for `take`.
        """
        raise AssertionError(f"everything of {owner} is in cells at {clocks}")

    def whole(self, owner: Any) -> Sequence[Sequence[Partial]]:
        """Everything that is kept of an owner beside cells, merged as far as possible.

        Args:
            owner: of which it is asked.
        """
        return ()

    def note_size(self, owner: Any, nbytes: int) -> None:
        """Note how large everything is that `whole` returned.

        Args:
            owner: whose it is.
            nbytes: the size that it has where it is stored.
        """

    def forget_fired(self, owner: Any, until_us: int) -> None:
        """Forget what has fired already, after everything of an owner was restored.

        Args:
            owner: whose windows have fired.
            until_us: up to which event time, in microseconds.
        """
