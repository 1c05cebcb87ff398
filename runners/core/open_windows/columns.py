"""Columns: open windows of a stream that all fire once, as columns of partials until they fire, where they can be.

A window that has a cell is *single* until its end: partials for it go to its cells, for all keys, and with the first
of them all columns of it.  So a window is kept as columns or in cells for a key, never in both, and cannot fire twice.
Owners that come together can have kept a window in both ways, each for its own keys: it stays so while nothing comes.

What is kept as columns is kept by owner, and every change of it is noted in the step (`Noted`), for an engine that
makes it durable.  That windows have fired is noted without an entry: an owner keeps nothing that ends at or before the
event time that it has reached.

ADR 0025.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import CellId, TimerId
from runners.core.open_windows.open_windows import Arrival
from runners.core.open_windows.stream_cells import StreamCells
from runners.core.partials.partial import Partial
from runners.core.partials.parts import parts_of
from runners.core.single_firing.column_windows import NEVER_US, ColumnWindows, is_of
from runners.core.single_firing.single_panes import SinglePanes
from runners.core.stages.entries import Changes, Entry, Noted, Released, Whole
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageOutputs
from windowing.window import Window


class Columns(StreamCells):
    """Windows as columns, and in cells.

    Args:
        stage: the grouping.
        panes: makes the panes of windows that are columns.
        cells: see `Cells`.
        need: see `Cells`.
        bytes_max: how many bytes of columns may be kept between two steps; None: as many as there are.
    """

    def __init__(
        self,
        stage: GroupingStage,
        panes: SinglePanes,
        cells: dict[CellId, Any],
        need: Callable[[Iterable[CellId]], None] | None = None,
        bytes_max: int | None = None,
    ) -> None:
        super().__init__(stage, cells, need)
        self._panes, self._bytes_max = panes, bytes_max
        self._buffered: dict[Any, ColumnWindows] = {}
        #: The windows that are single.
        self.singles: set[Window] = set()
        #: No rows, in the form of the partials taken in last: other partials that can be kept are converted to it.
        self._like: PartialColumns | None = None

    def take(self, arrivals: Sequence[Arrival], clocks: StageClocks) -> Step:
        """Keep as columns what can be kept so, and add the rest to its cells, with all columns of the same windows."""
        noted, others = list[Noted](), list[Partial]()
        for arrival in arrivals:
            for part in parts_of(arrival.partials):
                kept, rest = self._kept(arrival.owner, part, clocks.watermark_us)
                if kept is not None:
                    received = arrival.received if kept is arrival.partials else None
                    noted.append(Noted(arrival.owner, kept, received))
                others.extend(rest)
        if not others:
            return Step(noted=noted)
        windows = self._make_single(others, clocks.watermark_us)
        return self._into_cells(self._release(windows), clocks, noted, others)

    def _make_single(self, partials: Iterable[Partial], fired_us: int) -> Collection[Window]:
        """Make the windows of partials that go to cells single from here on, but for those that have ended."""
        windows = {window for _, window, _, _ in partials if window.end_us > fired_us}
        self.singles |= windows
        return windows

    def _note_cells(self, timers: Iterable[tuple[TimerId, int | None]]) -> None:
        """Make the windows of these timers single: each timer is that of a cell."""
        self.singles.update(window for (_, window, _), fire_us in timers if fire_us is not None)

    def _kept(
        self, owner: Any, partials: Sequence[Partial], fired_us: int
    ) -> tuple[PartialColumns | None, Sequence[Partial]]:
        """Keep those partials that can be kept as columns, and return them, and the others."""
        if not isinstance(partials, PartialColumns):
            return self._rows_kept(owner, partials, fired_us)
        if self._like is None or self._like.schema != partials.schema:
            self._like = partials.take([])
        is_other = partials.windows.ends_us <= fired_us
        if self.singles:
            is_other |= is_of(partials, self.singles)
        others: Sequence[Partial] = ()
        if is_other.any():
            others, partials = partials.parted(is_other)
        self._of(owner).hold(partials)
        return (partials if len(partials) else None), others

    def _rows_kept(
        self, owner: Any, partials: Sequence[Partial], fired_us: int
    ) -> tuple[PartialColumns | None, Sequence[Partial]]:
        """Keep partials that came one by one: records behind the watermark, whose windows are still open."""
        buffered, others = list[Partial](), list[Partial]()
        for each in partials:
            is_open = each[1].end_us > fired_us and each[1] not in self.singles
            (buffered if is_open else others).append(each)
        columns = self._like.like(buffered) if buffered and self._like is not None else None
        if columns is None:
            return None, partials
        self._of(owner).hold(columns)
        return columns, others

    def _into_cells(
        self,
        released: Iterable[tuple[Noted, list[PartialColumns]]],
        clocks: StageClocks,
        noted: Sequence[Noted] = (),
        partials: Sequence[Partial] = (),
    ) -> Step:
        """Add partials to their cells, together with columns that were released."""
        noted, partials = [*noted], [*partials]
        for each, parts in released:
            noted.append(each)
            for part in parts:
                partials.extend(part)
        return attrs.evolve(self._add(partials, clocks), noted=noted)

    def advance(
        self,
        clocks: StageClocks,
        *,
        timers_max: int | None = None,
        panes_max: int | None = None,
    ) -> Step | None:
        """Fire windows as they end: those with timers, and between them those that are columns."""
        next_end_us = self.next_end_us
        if next_end_us > clocks.watermark_us:
            step = super().advance(clocks, timers_max=timers_max)
            if step is None or step.reached_us is not None:
                self._forget_singles(clocks.watermark_us)
            return step
        until = attrs.evolve(clocks, watermark_us=next_end_us)
        due = self.timers.pop_due(until, timers_max)
        return self._fired(due, clocks, None) if due else self._columns_fired(clocks, panes_max)

    def _columns_fired(self, clocks: StageClocks, panes_max: int | None) -> Step:
        """Fire windows that are columns, up to the next timer."""
        timer_us, until_us = self.timers.next_event_us(), clocks.watermark_us
        if timer_us is not None:
            until_us = min(until_us, timer_us - 1)
        popped, reached_us = self._pop_due(until_us, panes_max)
        if self.next_end_us > until_us:
            reached_us = until_us
        bundles = self._panes.bundles([each for parts in popped.values() for each in parts])
        outputs = StageOutputs()
        while (step := self._stage.emit_next(bundles, clocks)) is not None:
            outputs.add(step.outputs)
            outputs.dead += step.outputs.dead
        self._forget_singles(reached_us)
        noted = [Noted(owner, None) for owner in popped]
        return Step(outputs=outputs, reached_us=reached_us, noted=noted)

    def _pop_due(
        self, until_us: int, panes_max: int | None
    ) -> tuple[Mapping[Any, list[PartialColumns]], int]:
        """Remove and return the columns of windows that end by then; of many windows, only of the first ones.

        Returns:
            The columns by owner, and the event time up to which these are all.
        """
        ends_us = np.concatenate([each.ends_us(until_us) for each in self._buffered.values()])
        if panes_max is not None and len(ends_us) > panes_max:
            ends_us.sort()
            until_us = max(int(ends_us[0]), int(ends_us[panes_max]) - 1)
        popped = {owner: buffered.pop_due(until_us) for owner, buffered in self._buffered.items()}
        return {owner: parts for owner, parts in popped.items() if parts}, until_us

    def _forget_singles(self, fired_us: int) -> None:
        """Forget single windows that end by then: they have fired, and have no cells any more."""
        if self.singles:
            self.singles = {window for window in self.singles if window.end_us > fired_us}

    @property
    def next_end_us(self) -> int:
        """The end of the first window that is columns, in microseconds."""
        return min((each.next_end_us for each in self._buffered.values()), default=NEVER_US)

    @property
    def nbytes(self) -> int:
        """The bytes of the columns."""
        return sum(buffered.nbytes for buffered in self._buffered.values())

    @property
    def owners(self) -> Sequence[Any]:
        """The owners of columns."""
        return [owner for owner, buffered in self._buffered.items() if len(buffered)]

    @property
    def is_crowded(self) -> bool:
        """Whether the columns take more than the bound, or cannot be merged."""
        if self._bytes_max is not None and self.nbytes > self._bytes_max:
            return True
        return any(buffered.is_unfoldable for buffered in self._buffered.values())

    def relieve(self, owner: Any, clocks: StageClocks) -> Step:
        """Bring all columns of an owner into cells."""
        return self._into_cells(self._release(None, owner), clocks)

    def _release(
        self, windows: Collection[Window] | None = None, owner: Any = None
    ) -> Iterator[tuple[Noted, list[PartialColumns]]]:
        """Remove and yield the columns of some windows, or all, of each owner, or one; these windows become single."""
        for each, buffered in self._buffered.items():
            if owner is None or each == owner:
                parts = buffered.pop_all() if windows is None else buffered.pop_windows(windows)
                if parts:
                    found = {window for part in parts for window in part.windows}
                    self.singles |= found
                    yield Noted(each, Released(sorted(found))), parts

    def keys(self) -> Iterator[Any]:
        """The key of every cell, and of every partial in columns."""
        yield from super().keys()
        for buffered in self._buffered.values():
            for part in buffered.parts:
                yield from (key for key, _, _, _ in part)

    def contents(self) -> Iterator[Entry]:
        """Every cell, and the columns."""
        yield from super().contents()
        for owner in self.owners:
            yield from self.whole(owner)

    def spill(self) -> Iterator[Entry]:
        """Cells with their timers, and the columns, which must be of one owner."""
        yield from super().spill()
        buffered, self._buffered = [*self._buffered.values()], {}
        self.singles = set()
        assert len(buffered) <= 1
        for each in buffered:
            yield from each.pop_all()

    def whole(self, owner: Any) -> Sequence[PartialColumns]:
        """All columns of an owner, in as few parts as can be."""
        buffered = self._buffered.get(owner)
        if not buffered:
            return ()
        buffered.fold()
        return buffered.parts

    def restore(self, entry: Entry, owner: Any = None) -> None:
        """Set cells and timers, whose windows become single, or columns."""
        if isinstance(entry, Changes):
            super().restore(entry, owner)
            self._note_cells(entry.timers)
            return
        buffered = self._of(owner)
        if isinstance(entry, Released):
            buffered.pop_windows(entry.windows)
            return
        if isinstance(entry, Whole):
            buffered.pop_all()
        for part in entry.parts if isinstance(entry, Whole) else parts_of(entry):
            assert isinstance(part, PartialColumns)
            buffered.hold(part)

    def forget_fired(self, owner: Any, until_us: int) -> None:
        """Forget the columns of an owner whose windows have fired."""
        if owner in self._buffered:
            self._buffered[owner].pop_due(until_us)

    def forget(self, owner: Any, is_gone: Callable[[CellId], bool]) -> None:
        """Forget an owner, with its columns."""
        super().forget(owner, is_gone)
        self._buffered.pop(owner, None)

    def _of(self, owner: Any) -> ColumnWindows:
        if owner not in self._buffered:
            self._buffered[owner] = ColumnWindows(self._panes.lifter.merging)
        return self._buffered[owner]
