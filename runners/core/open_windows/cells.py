"""Cells: open windows of which each has a cell and timers, as `GroupAlsoByWindow` keeps them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from runners.core.ground.cells import CellId, TimerId
from runners.core.ground.timers import TimerQueue, Timers
from runners.core.open_windows.open_windows import Arrival, OpenWindows
from runners.core.partials.partial import Partial
from runners.core.stages.entries import Changes, Entry
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from windowing.window import Window


class Cells(OpenWindows):
    """Windows in cells.

    Args:
        stage: the grouping.
        cells: by their ids; changed in place.
        need: called before a step uses cells, to bring those into ``cells`` that are not there; None: all are.
    """

    def __init__(
        self,
        stage: GroupingStage,
        cells: dict[CellId, Any],
        need: Callable[[Iterable[CellId]], None] | None = None,
    ) -> None:
        self._stage, self.cells, self._need = stage, cells, need
        self.timers = Timers()
        self.holds: TimerQueue[tuple[CellId, Window]] = TimerQueue()

    def take(self, arrivals: Sequence[Arrival], clocks: StageClocks) -> Step:
        """Add partials to their cells."""
        if len(arrivals) == 1:
            return self._add(arrivals[0].partials, clocks)
        return self._add([each for arrival in arrivals for each in arrival.partials], clocks)

    def _add(self, partials: Sequence[Partial], clocks: StageClocks) -> Step:
        if not partials:
            return Step()
        if self._need is not None:
            is_merging = self._stage.machine.is_merging
            self._need((key, None if is_merging else window) for key, window, _, _ in partials)
        return self._applied(self._stage.add(self.cells, partials, clocks))

    def advance(
        self,
        clocks: StageClocks,
        *,
        timers_max: int | None = None,
        panes_max: int | None = None,
    ) -> Step | None:
        """Fire timers that are due, earliest first."""
        due = self.timers.pop_due(clocks, timers_max)
        # Where there was room for more these were all, in every domain of time; firing sets none that is due.
        is_over = timers_max is None or len(due) < timers_max
        return self._fired(due, clocks, clocks.watermark_us if is_over else None) if due else None

    def _fired(self, due: Sequence[TimerId], clocks: StageClocks, reached_us: int | None) -> Step:
        if self._need is not None:
            self._need(cell_id for cell_id, _, _ in due)
        step = self._applied(self._stage.fire_timers(self.cells, due, clocks))
        return Step(step.effects, step.outputs, due, reached_us)

    def signal(
        self, name: str, clocks: StageClocks, receivers: Iterable[CellId] | None = None
    ) -> Step:
        """Notify the windows of cells of a signal."""
        listening = list(self.cells) if receivers is None else receivers
        return self._applied(self._stage.signal(self.cells, listening, name, clocks))

    def _applied(self, step: Step) -> Step:
        effects = step.effects
        for timer, fire_us in effects.timers.items():
            self.timers.set(timer, fire_us)
        for place, hold_us in effects.holds.items():
            self.holds.set(place, hold_us)
        return step

    @property
    def hold_us(self) -> int | None:
        """The first hold of a window."""
        return self.holds.next_us()

    @property
    def next_processing_us(self) -> int | None:
        """The first timer of processing time."""
        return self.timers.next_processing_us()

    def count_overdue(self, clocks: StageClocks, most: int) -> int:
        """Timers of cells; windows without cells have none."""
        return self.timers.count_due(clocks, most)

    def __len__(self) -> int:
        return len(self.cells)

    def keys(self) -> Iterator[Any]:
        """The key of every cell."""
        return (cell_id[0] for cell_id in self.cells)

    def contents(self) -> Iterator[Entry]:
        """Every cell."""
        return (Changes([item], []) for item in self.cells.items())

    def spill(self) -> Iterator[Entry]:
        """One cell at a time, with its timers; those of one instant stay in the order in which they were set."""
        by_cell: dict[CellId, list[tuple[TimerId, int | None]]] = {}
        for timer, fire_us in self.timers.in_order():
            by_cell.setdefault(timer[0], []).append((timer, fire_us))
        self.timers, self.holds = Timers(), TimerQueue()
        while self.cells:
            cell_id, cell = self.cells.popitem()
            yield Changes([(cell_id, cell)], by_cell.pop(cell_id, []))

    def restore(self, entry: Entry) -> None:
        """Set cells and timers, and the holds of the cells."""
        assert isinstance(entry, Changes)
        for cell_id, cell in entry.cells:
            for window, _ in self._stage.machine.holds(cell_id, self.cells.get(cell_id)):
                self.holds.set((cell_id, window), None)
            self._hold_for(cell_id, cell)
            if cell is None:
                self.cells.pop(cell_id, None)
            else:
                self.cells[cell_id] = cell
        for timer, fire_us in entry.timers:
            self.timers.set(timer, fire_us)

    def _hold_for(self, cell_id: CellId, cell: Any) -> None:
        """Hold the watermark for the windows of a cell; None: it is deleted."""
        for window, hold_us in self._stage.machine.holds(cell_id, cell):
            self.holds.set((cell_id, window), hold_us)
