"""ColumnWindows: partials of windows that are still open, buffered as columns until the windows fire.

For a stream's grouping whose windows all fire once (`runners.core.single_firing.single_panes`).  New partials are not
merged with those of the same key and window when they come; partials are merged now and then, when about as many have
come as there were.
"""

from collections.abc import Callable, Collection

import numpy as np

from runners.core.columns.partials import Bools, PartialColumns
from runners.core.partials.merging import PartialMerging
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window
from windowing.window_columns import Int64s

#: Merging fewer partials than this is not worth its cost.
FOLD_PARTIALS_MIN = 20_000
#: The end of the first window where no partial is kept: no watermark gets so far.
NEVER_US = MAX_TIMESTAMP_US + 1


class ColumnWindows:
    """A buffer of partials of one grouping.

    Args:
        merging: merges them.
    """

    def __init__(self, merging: PartialMerging) -> None:
        self._merging = merging
        #: The partials; the first part is what was merged last, in the order of the ends of the windows.
        self.parts: list[PartialColumns] = []
        #: The end of the window that ends first, in microseconds.
        self.next_end_us = NEVER_US
        #: The size of the arrays, in bytes.
        self.nbytes = 0
        #: Whether the partials cannot be merged as columns, so that their number would only grow.
        self.is_unfoldable = False
        self._size = self._folded_size = 0

    def __len__(self) -> int:
        return self._size

    def hold(self, partials: PartialColumns) -> None:
        """Add partials."""
        self._add(partials)
        if self._size > self._folded_size + max(self._folded_size, FOLD_PARTIALS_MIN):
            self.fold()

    def fold(self) -> None:
        """Merge the partials that are kept into as few as possible."""
        if len(self.parts) > 1:
            merged = self._merging.columns(self.parts)
            self.is_unfoldable = merged is None
            if merged is not None:
                self._keep([merged.take(np.argsort(merged.windows.ends_us, kind="stable"))])
            self._folded_size = self._size

    def ends_us(self, until_us: int) -> Int64s:
        """The ends of the windows of all partials whose window ends at or before an instant, all in microseconds."""
        ends_us = [each.windows.ends_us for each in self.parts]
        return np.concatenate(
            [each[each <= until_us] for each in ends_us] or [np.empty(0, np.int64)]
        )

    def pop_due(self, until_us: int) -> list[PartialColumns]:
        """Remove and return the partials of windows that end at or before an instant, in microseconds."""
        if self.next_end_us > until_us:
            return []
        return self._pop(lambda each: each.windows.ends_us <= until_us)

    def pop_windows(self, windows: Collection[Window]) -> list[PartialColumns]:
        """Remove and return the partials of some windows."""
        return self._pop(lambda each: is_of(each, windows)) if windows else []

    def pop_all(self) -> list[PartialColumns]:
        """Remove and return all partials."""
        present = self.parts
        self._keep([])
        self._folded_size, self.is_unfoldable = 0, False
        return present

    def _pop(self, chosen_of: Callable[[PartialColumns], Bools]) -> list[PartialColumns]:
        popped, kept = [], []
        for part in self.parts:
            is_chosen = chosen_of(part)
            # Most are of a few records, which came together and so are in one window: they stay whole.
            if is_chosen.all():
                popped.append(part)
            elif not is_chosen.any():
                kept.append(part)
            else:
                chosen, others = part.parted(is_chosen)
                popped.append(chosen)
                kept.append(others)
        self._folded_size = min(self._folded_size, sum(map(len, kept)))
        self._keep(kept)
        return [each for each in popped if len(each)]

    def _keep(self, parts: list[PartialColumns]) -> None:
        self.parts, self._size, self.nbytes, self.next_end_us = [], 0, 0, NEVER_US
        for each in parts:
            self._add(each)

    def _add(self, part: PartialColumns) -> None:
        if len(part):
            self.parts.append(part)
            self._size += len(part)
            self.nbytes += part.nbytes
            self.next_end_us = min(self.next_end_us, int(part.windows.ends_us.min()))


def is_of(partials: PartialColumns, windows: Collection[Window]) -> Bools:
    """An array that is true for each partial that is in one of some windows.

    Args:
        partials: the partials.
        windows: the windows.
    """
    found = np.zeros(len(partials), np.bool_)
    starts_us, ends_us = partials.windows.starts_us, partials.windows.ends_us
    for window in windows:
        found |= (starts_us == window.start_us) & (ends_us == window.end_us)
    return found
