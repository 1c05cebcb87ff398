"""StreamCells: the open windows of a stream in cells, of which the engine has those in memory that it wants there."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from runners.core.ground.cells import CellId
from runners.core.open_windows.cells import Cells
from runners.core.open_windows.stream_windows import StreamWindows
from runners.core.stages.entries import Changes, Entry
from runners.core.stages.grouping import Step
from runners.core.stages.stage_clocks import StageClocks
from runners.errors import StoreError


class StreamCells(Cells, StreamWindows):
    """Windows in cells, whose keys have owners."""

    @property
    def next_event_us(self) -> int | None:
        """The first timer of event time."""
        return self.timers.next_event_us()

    def cell_ids(self) -> Iterable[CellId]:
        """The cells that are in memory, or have a timer."""
        return dict.fromkeys([*self.cells, *(timer[0] for timer in self.timers)])

    def restore(self, entry: Entry, owner: Any = None, *, nbytes: int = 0) -> None:
        """Set cells and timers."""
        if not isinstance(entry, Changes):
            raise StoreError(
                f"there are partials of {owner}, which the grouping does not buffer",
                detail=f"an entry of type {type(entry).__name__} with {nbytes:,} bytes",
                hint="this is a bug in dataflow-model: keep the database and report it",
            )
        super().restore(entry)

    def go_over(self, cell_ids: Collection[CellId], clocks: StageClocks) -> Step:
        """Do with some cells what is to be done with each once."""
        return self._applied(self._stage.go_over(self.cells, cell_ids, clocks))

    def restore_holds(self, cell_ids: Iterable[CellId]) -> None:
        """Hold the watermark for the windows of cells that were restored, or have come from elsewhere."""
        for cell_id in cell_ids:
            if cell_id in self.cells:
                self._hold_for(cell_id, self.cells[cell_id])

    def forget(self, owner: Any, is_gone: Callable[[CellId], bool]) -> None:
        """Forget the timers and holds of cells that are gone."""
        self.timers.forget(lambda timer: is_gone(timer[0]))
        self.holds.forget(lambda place: is_gone(place[0]))
