"""Buffered: open windows of a stream that all fire once, as the partials that came, until they fire, where they can be.

Partials stay what they are: columns, or rows.  All of that is by owner: a window in which an owner has a cell is
*single* for it until the end of the window, and partials for it go to cells.  So a window is buffered or in cells for a
key, never in both, and cannot fire twice.

Every change of what is buffered is noted in the step (`Noted`), for an engine that makes it durable.  That windows have
fired is noted without an entry: an owner keeps nothing that ends at or before the event time that it has reached.

ADR 0025, ADR 0056.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

import attrs
import numpy as np

from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import CellId, Effects
from runners.core.open_windows.open_windows import Arrival
from runners.core.open_windows.stream_cells import StreamCells
from runners.core.partials.partial import Partial
from runners.core.partials.parts import parts_of
from runners.core.single_firing.buffered_partials import BufferedPartials, windows_of
from runners.core.single_firing.column_windows import NEVER_US, is_of
from runners.core.single_firing.single_panes import SinglePanes
from runners.core.stages.entries import Changes, Entry, Noted, Released, Whole
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageOutputs
from windowing.window import Window
from windowing.window_columns import Int64s

#: Rows that have more bytes than this when the journal is compacted go to cells: all of them are written again by each
#: compaction, and cells only where they have changed.
ROW_BYTES_MAX = 4 << 20


class Buffered(StreamCells):
    """Windows as partials, and in cells.

    Args:
        stage: the grouping.
        panes: makes the panes of windows that are buffered.
        cells: see `Cells`.
        need: see `Cells`.
        bytes_max: how many bytes of partials may be kept between two steps; None: as many as there are.
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
        self._buffered: dict[Any, BufferedPartials] = {}
        #: The windows that are single, by owner.
        self.singles: defaultdict[Any, set[Window]] = defaultdict(set)
        #: No rows, in the form of the partials taken in last: other partials that can be kept are converted to it.
        self._like: PartialColumns | None = None

    def take(self, arrivals: Sequence[Arrival], clocks: StageClocks) -> Step:
        """Buffer what can be buffered, and add the rest to its cells."""
        noted, others = self._stage.tried(lambda: self._buffer(arrivals, clocks.watermark_us))
        return self._into_cells(others, clocks, noted)

    def _buffer(
        self, arrivals: Sequence[Arrival], fired_us: int
    ) -> tuple[list[Noted], list[Partial]]:
        """Buffer those partials that can be, and return what that changes, and the others."""
        noted, others = list[Noted](), list[Partial]()
        for arrival in arrivals:
            size = len(arrival.received or b"") / max(1, len(arrival.partials))
            for part in parts_of(arrival.partials):
                kept, rest = self._parted(arrival.owner, part, fired_us)
                others.extend(rest)
                if len(kept):
                    received = arrival.received if kept is arrival.partials else None
                    noted.append(Noted(arrival.owner, kept, received))
                    if received is None and not isinstance(kept, PartialColumns):
                        # Merging changes rows, and an entry that has no bytes yet is made of them later.
                        kept = deepcopy(kept)
                    self._of(arrival.owner).hold(kept, int(len(kept) * size))
        return noted, others

    def _parted(
        self, owner: Any, partials: Sequence[Partial], fired_us: int
    ) -> tuple[Sequence[Partial], Sequence[Partial]]:
        """Divide partials: those that can be buffered, and the others, of windows that have ended or are single."""
        if not isinstance(partials, PartialColumns):
            return self._rows_parted(owner, partials, fired_us)
        if self._like is None or self._like.schema != partials.schema:
            self._like = partials.take([])
        is_other = partials.windows.ends_us <= fired_us
        if singles := self.singles[owner]:
            is_other |= is_of(partials, singles)
        if not is_other.any():
            return partials, ()
        others, kept = partials.parted(is_other)
        return kept, others

    def _rows_parted(
        self, owner: Any, partials: Sequence[Partial], fired_us: int
    ) -> tuple[Sequence[Partial], Sequence[Partial]]:
        """Divide rows; those between columns become columns too, so that all panes of their windows can be columns."""
        windows = {each[1] for each in partials}
        kept, others = partials, list[Partial]()
        singles = self.singles[owner]
        closed = {each for each in windows if each.end_us <= fired_us or each in singles}
        if closed:
            others = [each for each in partials if each[1] in closed]
            kept = [each for each in partials if each[1] not in closed]
        if self._like is not None and kept:
            columns = self._like.like(kept)
            if columns is not None:
                kept = columns
        return kept, others

    def _into_cells(
        self, partials: Sequence[Partial], clocks: StageClocks, noted: Sequence[Noted]
    ) -> Step:
        """Add partials to their cells."""
        return attrs.evolve(self._add(partials, clocks), noted=noted)

    def advance(
        self,
        clocks: StageClocks,
        *,
        timers_max: int | None = None,
        panes_max: int | None = None,
    ) -> Step | None:
        """Fire windows as they end: those with timers, and between them those that are buffered."""
        next_end_us = self.next_end_us
        if next_end_us > clocks.watermark_us:
            step = super().advance(clocks, timers_max=timers_max)
            if step is None or step.reached_us is not None:
                self._forget_singles(clocks.watermark_us)
            return step
        until = attrs.evolve(clocks, watermark_us=next_end_us)
        due = self.timers.pop_due(until, timers_max)
        if due:
            return self._fired(due, clocks, None)
        return self._buffered_fired(clocks, timers_max, panes_max)

    def _buffered_fired(
        self, clocks: StageClocks, rows_max: int | None, panes_max: int | None
    ) -> Step:
        """Fire windows that are buffered, up to the next timer."""
        timer_us, until_us = self.timers.next_event_us(), clocks.watermark_us
        if timer_us is not None:
            until_us = min(until_us, timer_us - 1)
        allowed_us = self._columns_until(until_us, panes_max)
        rows_us = self._rows_until(allowed_us, rows_max)
        if rows_us is None:
            return self._part_fired(clocks, rows_max or 1)
        popped = {owner: each.pop_due(rows_us) for owner, each in self._buffered.items()}
        reached_us = until_us if self.next_end_us > until_us else rows_us
        self._forget_singles(reached_us)
        return self._emitted(
            {owner: parts for owner, parts in popped.items() if parts}, clocks, reached_us
        )

    def _columns_until(self, until_us: int, panes_max: int | None) -> int:
        """The instant up to which columns may fire in one step, in microseconds; at least those that end first may."""
        several = self._buffered.values()
        return _bounded(until_us, [each.column_ends_us(until_us) for each in several], panes_max)

    def _rows_until(self, until_us: int, rows_max: int | None) -> int | None:
        """The instant up to which rows may fire in one step; None: those that end first are too many for one."""
        several = self._buffered.values()
        ends_us = [each.row_ends_us(until_us) for each in several]
        found_us = _bounded(until_us, ends_us, rows_max)
        if rows_max is None or sum(int((each <= found_us).sum()) for each in ends_us) <= rows_max:
            return found_us
        first_us = min(each.next_column_end_us for each in several)
        if first_us > found_us:
            return None
        # A key may have columns and rows of a window, which fire together.
        return found_us if first_us == found_us else found_us - 1

    def _part_fired(self, clocks: StageClocks, rows_max: int) -> Step:
        """Fire some keys of the rows that end first; what they had is gone from the journal as a cell would be."""
        popped, touched = dict[Any, list[Sequence[Partial]]](), dict[CellId, None]()
        end_us = self.next_end_us
        for owner, buffered in self._buffered.items():
            rows = buffered.pop_rows(end_us, rows_max - len(touched))
            if rows:
                popped[owner] = [rows]
                touched |= dict.fromkeys((key, window) for key, window, _, _ in rows)
        step = self._emitted(popped, clocks, None)
        return attrs.evolve(step, effects=Effects(touched=touched))

    def _emitted(
        self,
        popped: Mapping[Any, Sequence[Sequence[Partial]]],
        clocks: StageClocks,
        reached_us: int | None,
    ) -> Step:
        """Emit the panes of partials, by owner."""
        parts = [part for parts in popped.values() for part in parts]
        bundles = self._panes.bundles(parts)
        outputs = StageOutputs()
        while (step := self._stage.emit_next(bundles, clocks)) is not None:
            outputs.add(step.outputs)
            outputs.dead += step.outputs.dead
        noted = [Noted(owner, None) for owner in popped]
        rows = sum(len(part) for part in parts if not isinstance(part, PartialColumns))
        return Step(outputs=outputs, reached_us=reached_us, noted=noted, fired_rows=rows)

    def _forget_singles(self, fired_us: int) -> None:
        """Forget single windows that end by then: they have fired, and have no cells any more."""
        for owner, windows in self.singles.items():
            self.singles[owner] = {each for each in windows if each.end_us > fired_us}

    @property
    def next_event_us(self) -> int | None:
        """The first timer of event time, or the end of the first window that is buffered."""
        timer_us, end_us = super().next_event_us, self.next_end_us
        if timer_us is None:
            return None if end_us == NEVER_US else end_us
        return min(timer_us, end_us)

    @property
    def next_end_us(self) -> int:
        """The end of the first window that is buffered, in microseconds."""
        return min((each.next_end_us for each in self._buffered.values()), default=NEVER_US)

    @property
    def nbytes(self) -> int:
        """The bytes of the partials."""
        return sum(buffered.nbytes for buffered in self._buffered.values())

    @property
    def owners(self) -> Sequence[Any]:
        """The owners of partials."""
        return [owner for owner, buffered in self._buffered.items() if len(buffered)]

    @property
    def crowded(self) -> Sequence[Any]:
        """The owners of columns that cannot be merged, and the largest owners where there are too many bytes."""
        found = [each for each in self.owners if self._buffered[each].is_unfoldable]
        if self._bytes_max is not None:
            found += self._beyond(self._bytes_max, lambda each: each.nbytes)
        found += self._beyond(ROW_BYTES_MAX, lambda each: each.stored_row_bytes)
        return list(dict.fromkeys(found))

    def _beyond(self, bytes_max: int, size_of: Callable[[BufferedPartials], int]) -> Iterator[Any]:
        """The largest owners, as many as have to go for the others to have room."""
        sizes = {owner: size_of(self._buffered[owner]) for owner in self.owners}
        size = sum(sizes.values())
        for owner in sorted(sizes, key=sizes.__getitem__, reverse=True) if size > bytes_max else ():
            if size <= bytes_max:
                return
            yield owner
            size -= sizes[owner]

    def relieve(self, owner: Any, clocks: StageClocks) -> Step:
        """Bring all partials of an owner into cells."""
        parts = self._buffered[owner].pop_all()
        windows = set(chain.from_iterable(map(windows_of, parts)))
        self.singles[owner] |= windows
        noted = [Noted(owner, Released(sorted(windows)))]
        return self._into_cells([*chain.from_iterable(parts)], clocks, noted)

    def note_size(self, owner: Any, nbytes: int) -> None:
        """Note how many bytes all partials of an owner have."""
        if owner in self._buffered:
            self._buffered[owner].note_size(nbytes)

    def keys(self) -> Iterator[Any]:
        """The key of every cell, and of every partial."""
        yield from super().keys()
        for buffered in self._buffered.values():
            for part in buffered.parts:
                yield from (key for key, _, _, _ in part)

    def contents(self) -> Iterator[Entry]:
        """Every cell, and the partials."""
        yield from super().contents()
        for owner in self.owners:
            yield from self.whole(owner)

    def spill(self) -> Iterator[Entry]:
        """Cells with their timers, and the partials, which must be of one owner."""
        yield from super().spill()
        buffered, self._buffered = [*self._buffered.values()], {}
        self.singles.clear()
        assert len(buffered) <= 1
        for each in buffered:
            yield from each.pop_all()

    def whole(self, owner: Any) -> Sequence[Sequence[Partial]]:
        """All partials of an owner, in as few parts as can be."""
        buffered = self._buffered.get(owner)
        if not buffered:
            return ()
        self._stage.tried(buffered.fold)
        return buffered.parts

    def restore(self, entry: Entry, owner: Any = None, *, nbytes: int = 0) -> None:
        """Set cells and timers, whose windows become single, or partials."""
        if isinstance(entry, Changes):
            super().restore(entry, owner)
            for cell_id, cell in entry.cells:
                if cell is None and owner in self._buffered:
                    self._buffered[owner].forget(cell_id[0], cell_id[1])
            set_timers = (timer for timer, fire_us in entry.timers if fire_us is not None)
            # Each timer is that of a cell.
            self.singles[owner].update(window for _, window, _ in set_timers)
            return
        buffered = self._of(owner)
        if isinstance(entry, Released):
            buffered.pop_windows(entry.windows)
            return
        if isinstance(entry, Whole):
            buffered.pop_all()
            for part in entry.parts:
                buffered.hold(part)
            return
        for some in parts_of(entry):
            buffered.hold(some, nbytes * len(some) // max(1, len(entry)))

    def forget_fired(self, owner: Any, until_us: int) -> None:
        """Forget the partials of an owner whose windows have fired."""
        if owner in self._buffered:
            self._buffered[owner].pop_due(until_us)

    def forget(self, owner: Any, is_gone: Callable[[CellId], bool]) -> None:
        """Forget an owner, with its partials."""
        super().forget(owner, is_gone)
        self._buffered.pop(owner, None)
        self.singles.pop(owner, None)

    def _of(self, owner: Any) -> BufferedPartials:
        if owner not in self._buffered:
            self._buffered[owner] = BufferedPartials(self._panes.lifter.merging)
        return self._buffered[owner]


def _bounded(until_us: int, ends_us: Sequence[Int64s], most: int | None) -> int:
    """The instant by which no more windows end than allowed, or only those that end first, in microseconds."""
    if most is None or sum(map(len, ends_us)) <= most:
        return until_us
    in_order = np.sort(np.concatenate(ends_us))
    return max(int(in_order[0]), int(in_order[most]) - 1)
