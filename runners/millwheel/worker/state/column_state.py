"""ColumnState: the state that key ranges of a grouping keep as columns, and its entries in the journal.

It is used only where windows fire once (`runners.core.single_firing.single_panes`).  A window that has a cell is
*single* until its end: partials for it go to the window machine, for all keys, and no columns are kept for it.

The journal has three kinds of entries about columns: partials that were taken in; `Whole`, all columns of a range,
which replaces all entries before it; and `Released`, windows that have become single.  There is no entry for windows
that have fired: a range keeps nothing that ends at or before its input watermark, which is a part of every commit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from dataflow.column_combine_fn import ColumnCombineFn
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import TimerId
from runners.core.open_windows.entries import Released, Whole
from runners.core.partials.partial import Partial
from runners.core.partials.parts import parts_of
from runners.core.single_firing.column_windows import NEVER_US, ColumnWindows, is_of
from runners.core.single_firing.single_panes import SinglePanes
from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX, Pieces
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.stored.journal import encode_whole
from runners.stored.partials import encode_partials
from windowing.window import Window

#: The range, the entry of the journal, and the columns that the range had for the windows in it.
Release = tuple[RangeId, Released, list[PartialColumns]]


class ColumnState:
    """The columns that one computation buffers on one worker.

    Args:
        panes: the panes that its windows emit; None: nothing is ever kept as columns.
        bytes_max: how many bytes may be kept between two steps; None: as many as there are.
        steps: how many panes are emitted in one step.
    """

    def __init__(
        self, panes: SinglePanes | None, bytes_max: int | None, steps: StepLimits = STEP_LIMITS
    ) -> None:
        self._panes, self._bytes_max, self._steps = panes, bytes_max, steps
        self._buffered: dict[RangeId, ColumnWindows] = {}
        # No row of columns is large.
        self._pieces = Pieces(VALUE_BYTES_MAX, repr, steps)
        self._singles: set[Window] = set()
        #: No rows, in the form of the partials taken in last: other partials that can be kept are converted to it.
        self._like: PartialColumns | None = None

    @property
    def combiners(self) -> tuple[ColumnCombineFn, ...] | None:
        """The functions that fold the columns; None where nothing is ever kept as columns."""
        return None if self._panes is None else self._panes.lifter.combiners

    @property
    def is_empty(self) -> bool:
        """Whether no columns are kept."""
        return not any(map(len, self._buffered.values()))

    @property
    def nbytes(self) -> int:
        """The bytes that the columns take."""
        return sum(buffered.nbytes for buffered in self._buffered.values())

    @property
    def is_crowded(self) -> bool:
        """Whether they take more than the bound, or cannot be kept small; then all of them are to be released."""
        if self._bytes_max is not None and self.nbytes > self._bytes_max:
            return True
        return any(buffered.is_unfoldable for buffered in self._buffered.values())

    @property
    def next_end_us(self) -> int:
        """The end of the first window for which there are columns."""
        return min((buffered.next_end_us for buffered in self._buffered.values()), default=NEVER_US)

    def take_in(
        self, range_id: RangeId, partials: Sequence[Partial], input_watermark_us: int
    ) -> tuple[PartialColumns | None, Sequence[Partial]]:
        """Keep those partials of a range that can be kept as columns; returns these, and the others.

        Args:
            range_id: the range that they are for.
            partials: what has come for it.
            input_watermark_us: the event time up to which windows have fired.
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
        """Make the windows of partials that go to the machine single from here on; returns these windows.

        Args:
            partials: those that are not kept as columns.
            input_watermark_us: the event time up to which windows have fired; windows that end by then do not become
                single.
        """
        if self._panes is None:
            return ()
        windows = {window for _, window, _, _ in partials if window.end_us > input_watermark_us}
        self._singles |= windows
        return windows

    def note_cells(self, timers: Iterable[TimerId]) -> None:
        """Make the windows of these timers single: each timer is that of a cell."""
        if self._panes is not None:
            self._singles.update(window for _, window, _ in timers)

    @property
    def singles(self) -> Collection[Window]:
        """The windows that are single."""
        return self._singles

    def has_fired(self, input_watermark_us: int) -> None:
        """Forget single windows that end by then: they have fired, and have no cells any more."""
        if self._singles:
            self._singles = {
                window for window in self._singles if window.end_us > input_watermark_us
            }

    def pop_due(self, until_us: int) -> tuple[Mapping[RangeId, list[PartialColumns]], int]:
        """Remove and return the columns of windows that end by then; of many windows, only of the first ones.

        Returns:
            The columns by range, and the event time up to which these are all.
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

    def bundles(self, columns: Sequence[PartialColumns]) -> Iterator[Bundle]:
        """The panes of windows of which these are all the columns."""
        assert self._panes is not None
        return self._panes.bundles(columns)

    def release(
        self, windows: Collection[Window] | None = None, range_id: RangeId | None = None
    ) -> Iterator[Release]:
        """Remove and yield the columns of some windows, or all, in each range, or one; these windows become single.

        Args:
            windows: the windows; None: all.
            range_id: the range; None: all that have columns.

        Returns:
            For each range with such columns: its id, the entry of the journal that notes the release, and the columns.
        """
        for each, buffered in self._buffered.items():
            if range_id in (None, each):
                parts = buffered.pop_all() if windows is None else buffered.pop_windows(windows)
                if parts:
                    found = {window for part in parts for window in part.windows}
                    self._singles |= found
                    yield each, Released(sorted(found)), parts

    @property
    def is_conflicting(self) -> bool:
        """Whether a range has columns for windows that are single because of cells that came with another range."""
        buffered = [part for each in self._buffered.values() for part in each.parts]
        return bool(self._singles) and any(is_of(part, self._singles).any() for part in buffered)

    @property
    def range_ids(self) -> Sequence[RangeId]:
        """The ranges that have columns."""
        return [range_id for range_id, buffered in self._buffered.items() if len(buffered)]

    def whole(self, range_id: RangeId) -> Iterator[tuple[int, bytes]]:
        """Yield all columns of a range, in as few partials as can be: entries of the journal, and the rows in each.

        The first entry replaces whatever came before.
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

        Args:
            owned: the range; entries come in the order in which they were committed.
            content: the entry: all columns as of then, windows that went to the machine, or columns that were added.

        Raises:
            StoreError: the grouping cannot have such entries.
        """
        if self._panes is None:
            raise StoreError(
                f"the journal of {owned.range_id} has columns, which the grouping does not hold",
                detail=f"an entry of type {type(content).__name__}",
                hint="this is a bug in dataflow-sdk: keep the database and report it",
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
        """Forget the columns of a range that was taken over whose windows have fired already."""
        if owned.range_id in self._buffered:
            self._buffered[owned.range_id].pop_due(owned.watermark_us)

    def forget(self, range_id: RangeId) -> None:
        """Forget a range that another worker owns now."""
        self._buffered.pop(range_id, None)

    def _of(self, range_id: RangeId) -> ColumnWindows:
        assert self._panes is not None
        if range_id not in self._buffered:
            self._buffered[range_id] = ColumnWindows(self._panes.lifter.merging)
        return self._buffered[range_id]
