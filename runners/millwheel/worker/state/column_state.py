"""ColumnState: what the key ranges of a grouping hold as columns, and as which columns the journal has it.

Only where windows speak once (`runners.core.single_firing.single_panes`).  A window that has a cell is *single* until
its end: what comes for it goes to the machine, for all keys, and nothing of it is held here.

The journal has entries of three kinds about columns: partials that were taken in; `Whole`, all that a range holds, in
place of whatever came before; and `Released`, windows that have become single.  What has spoken is not noted: a range
does not hold what ends at or before the event time up to which it has acted, and that is a part of every commit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import TimerId
from runners.core.partials.lifting import Partial
from runners.core.partials.parts import parts_of
from runners.core.single_firing.column_windows import NEVER_US, ColumnWindows, is_of
from runners.core.single_firing.single_panes import SinglePanes
from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX, Pieces
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.stored.journal import Released, Whole, encode_whole
from runners.stored.partials import encode_partials
from windowing.window import Window

#: What a range held of some windows, and what the journal is to say of it.
Release = tuple[RangeId, Released, list[PartialColumns]]


class ColumnState:
    """The columns that one computation buffers on one worker.

    Args:
        panes: what its windows say; None: nothing is ever held.
        bytes_max: how much may be held between two steps; None: whatever there is.
        steps: how much of it speaks in one step.
    """

    def __init__(
        self, panes: SinglePanes | None, bytes_max: int | None, steps: StepLimits = STEP_LIMITS
    ) -> None:
        self._panes, self._bytes_max, self._steps = panes, bytes_max, steps
        self._buffered: dict[RangeId, ColumnWindows] = {}
        # No row of columns is large.
        self._pieces = Pieces(VALUE_BYTES_MAX, repr, steps)
        self._singles: set[Window] = set()
        #: None of the partials that were taken in last: what partials look like that can be held.
        self._like: PartialColumns | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not any(map(len, self._buffered.values()))

    @property
    def nbytes(self) -> int:
        """What is held takes so many bytes."""
        return sum(buffered.nbytes for buffered in self._buffered.values())

    @property
    def is_crowded(self) -> bool:
        """Whether it takes more than it may, or cannot be kept small; then all of it is to be released."""
        if self._bytes_max is not None and self.nbytes > self._bytes_max:
            return True
        return any(buffered.is_unfoldable for buffered in self._buffered.values())

    @property
    def next_end_us(self) -> int:
        """The end of the first window of which something is held."""
        return min((buffered.next_end_us for buffered in self._buffered.values()), default=NEVER_US)

    def take_in(
        self, range_id: RangeId, partials: Sequence[Partial], input_watermark_us: int
    ) -> tuple[PartialColumns | None, Sequence[Partial]]:
        """Hold those that can be held, of a range; these, and the others.

        ``input_watermark_us``: the event time up to which windows have spoken.
        """
        if self._panes is None:
            return None, partials
        if not isinstance(partials, PartialColumns):
            return self._take_rows_in(range_id, partials, input_watermark_us)
        if self._like is None or self._like.schema != partials.schema:
            self._like = partials.take([])
        is_other = partials.windows.ends_us <= input_watermark_us
        if self._singles:
            is_other |= is_of(partials, self._singles)
        others: Sequence[Partial] = ()
        if is_other.any():
            others, partials = partials.parted(is_other)
        self._of(range_id).hold(partials)
        return (partials if len(partials) else None), others

    def _take_rows_in(
        self, range_id: RangeId, partials: Sequence[Partial], input_watermark_us: int
    ) -> tuple[PartialColumns | None, Sequence[Partial]]:
        """Take in partials that came one by one: records behind the watermark, whose windows are still open."""
        buffered: list[Partial] = []
        others: list[Partial] = []
        for each in partials:
            is_open = each[1].end_us > input_watermark_us and each[1] not in self._singles
            (buffered if is_open else others).append(each)
        columns = self._like.like(buffered) if buffered and self._like is not None else None
        if columns is None:
            return None, partials
        self._of(range_id).hold(columns)
        return columns, others

    def make_single(
        self, partials: Iterable[Partial], input_watermark_us: int
    ) -> Collection[Window]:
        """The windows of partials that go to the machine are single from here on; these windows."""
        if self._panes is None:
            return ()
        windows = {window for _, window, _, _ in partials if window.end_us > input_watermark_us}
        self._singles |= windows
        return windows

    def note_cells(self, timers: Iterable[TimerId]) -> None:
        """Cells have these timers: one for each."""
        if self._panes is not None:
            self._singles.update(window for _, window, _ in timers)

    @property
    def singles(self) -> Collection[Window]:
        """The windows that are single."""
        return self._singles

    def has_fired(self, input_watermark_us: int) -> None:
        """Windows that end by then have spoken, and have no cells any more."""
        if self._singles:
            self._singles = {
                window for window in self._singles if window.end_us > input_watermark_us
            }

    def pop_due(self, until_us: int) -> tuple[Mapping[RangeId, list[PartialColumns]], int]:
        """Remove and return what is of windows that end by then, or of the first of them, if there are many.

        With it the event time up to which that is all.
        """
        ends_us = np.concatenate([each.ends_us(until_us) for each in self._buffered.values()])
        if len(ends_us) > self._steps.panes:
            ends_us.sort()
            first_us, next_us = int(ends_us[0]), int(ends_us[self._steps.panes])
            until_us = max(first_us, next_us - 1)
        popped = {
            range_id: buffered.pop_due(until_us) for range_id, buffered in self._buffered.items()
        }
        return {range_id: parts for range_id, parts in popped.items() if parts}, until_us

    def release(
        self, windows: Collection[Window] | None = None, range_id: RangeId | None = None
    ) -> Iterator[Release]:
        """Remove and yield what is held of some windows, or all, in each range, or one; these windows become single."""
        for each, buffered in self._buffered.items():
            if range_id in (None, each):
                parts = buffered.pop_all() if windows is None else buffered.pop_windows(windows)
                if parts:
                    found = {window for part in parts for window in part.windows}
                    self._singles |= found
                    yield each, Released(sorted(found)), parts

    @property
    def is_conflicting(self) -> bool:
        """Whether a range holds something of windows that are single, because of cells that came with another."""
        buffered = [part for each in self._buffered.values() for part in each.parts]
        return bool(self._singles) and any(is_of(part, self._singles).any() for part in buffered)

    @property
    def range_ids(self) -> Sequence[RangeId]:
        """The ranges that hold something."""
        return [range_id for range_id, buffered in self._buffered.items() if len(buffered)]

    def whole(self, range_id: RangeId) -> Iterator[tuple[int, bytes]]:
        """All that a range holds, in as few partials as can be: entries of the journal, and how many are in each.

        The first of them is in place of whatever came before.
        """
        buffered = self._buffered.get(range_id)
        if not buffered:
            return
        buffered.fold()
        is_first = True
        for part in buffered.parts:
            for piece, blob in self._pieces.of(part, encode_partials):
                assert isinstance(piece, PartialColumns)
                yield len(piece), encode_whole(Whole([piece])) if is_first else blob
                is_first = False

    def replay(self, owned: OwnedRange, content: Whole | Released | Sequence[Partial]) -> None:
        """Apply an entry of the journal of a range that was taken over.

        Raises:
            StoreError: the grouping cannot have such entries.
        """
        if self._panes is None:
            raise StoreError(
                f"the journal of {owned.range_id} has columns, which the grouping does not hold",
                detail=f"an entry of type {type(content).__name__}",
                hint="this should be impossible: keep the database and report it",
            )
        buffered = self._of(owned.range_id)
        if isinstance(content, Released):
            buffered.pop_windows(content.windows)
            return
        if isinstance(content, Whole):
            buffered.pop_all()
        for part in content.parts if isinstance(content, Whole) else parts_of(content):
            assert isinstance(part, PartialColumns)
            buffered.hold(part)

    def forget_fired(self, owned: OwnedRange) -> None:
        """What a range that was taken over has said already is held no longer."""
        if owned.range_id in self._buffered:
            self._buffered[owned.range_id].pop_due(owned.watermark_us)

    def forget(self, range_id: RangeId) -> None:
        """A range is somebody else's now."""
        self._buffered.pop(range_id, None)

    def _of(self, range_id: RangeId) -> ColumnWindows:
        assert self._panes is not None
        if range_id not in self._buffered:
            self._buffered[range_id] = ColumnWindows(self._panes.lifter)
        return self._buffered[range_id]
