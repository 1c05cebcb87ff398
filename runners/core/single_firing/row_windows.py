"""RowWindows: partials of windows that are still open, buffered by window and key until the windows fire.

For a stream's grouping whose windows all fire once (`runners.core.single_firing.single_panes`) and whose records are no
columns.  Partials of a key and window are merged when there are several of them, a few at a time: so a merge costs
little for each partial, and a window has little left to do when it fires.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from runners.core.partials.merging import PartialMerging
from runners.core.partials.partial import Partial
from runners.core.single_firing.column_windows import NEVER_US
from windowing.window import Window
from windowing.window_columns import Int64s

#: So many partials of a key and window are merged into one.
MERGED_AT = 8


class RowWindows:
    """A buffer of rows of one grouping.

    Args:
        merging: merges them.
    """

    def __init__(self, merging: PartialMerging) -> None:
        self._merging = merging
        #: By window and key: a partial, or a list of several.
        self._by_window: dict[Window, dict[Any, Any]] = {}
        #: How many bytes the partials had in all when that was last noted, and what came since, about.
        self.nbytes = 0
        #: How many bytes they had when that was last noted.
        self.noted_bytes = 0
        #: The end of the window that ends first, in microseconds.
        self.next_end_us = NEVER_US

    def __len__(self) -> int:
        return sum(map(len, self._by_window.values()))

    def hold(self, partials: Sequence[Partial], nbytes: int) -> None:
        """Add partials.

        Args:
            partials: may be changed from here on.
            nbytes: how many bytes they came in.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        self.nbytes += nbytes
        window: Window | None = None
        for partial in partials:
            # Partials that were sent together share one window object.
            if partial[1] is not window:
                window = partial[1]
                by_key = self._opened(window)
            key = partial[0]
            known = by_key.get(key)
            if known is None:
                by_key[key] = partial
            elif type(known) is not list:
                by_key[key] = [known, partial]
            else:
                known.append(partial)
                if len(known) >= MERGED_AT:
                    by_key[key] = self._merging.as_one(key, window, known)

    def _opened(self, window: Window) -> dict[Any, Any]:
        found = self._by_window.get(window)
        if found is None:
            found = self._by_window[window] = {}
            self.next_end_us = min(self.next_end_us, window.end_us)
        return found

    def fold(self) -> None:
        """Merge the partials into one for each key and window.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        for window, by_key in self._by_window.items():
            for key, known in by_key.items():
                if type(known) is list:
                    by_key[key] = self._merging.as_one(key, window, known)

    def note_size(self, nbytes: int) -> None:
        """Note how many bytes all partials have."""
        self.nbytes = self.noted_bytes = nbytes

    @property
    def rows(self) -> list[Partial]:
        """All partials."""
        return [*_rows_of(self._by_window.values())]

    def ends_us(self, until_us: int) -> Int64s:
        """The end of the window of each key, if it is at or before an instant, all in microseconds."""
        ends = [
            np.full(len(by_key), window.end_us, np.int64)
            for window, by_key in self._by_window.items()
            if window.end_us <= until_us
        ]
        return np.concatenate(ends or [np.empty(0, np.int64)])

    def pop_due(self, until_us: int) -> list[Partial]:
        """Remove and return the partials of windows that end at or before an instant, in microseconds."""
        if self.next_end_us > until_us:
            return []
        return self.pop_windows([each for each in self._by_window if each.end_us <= until_us])

    def pop_part(self, end_us: int, most: int) -> list[Partial]:
        """Remove and return the partials of some keys of windows that end at an instant.

        Args:
            end_us: the instant, in microseconds.
            most: how many keys, at most.
        """
        before, popped = len(self), list[dict[Any, Any]]()
        for window in [each for each in self._by_window if each.end_us == end_us]:
            by_key = self._by_window[window]
            keys = list(islice(by_key, most - sum(map(len, popped))))
            popped.append({key: by_key.pop(key) for key in keys})
        self._are_left(before)
        return [*_rows_of(popped)]

    def forget(self, key: Any, window: Window) -> None:
        """Forget the partials of a key and window, if there are any.

        Args:
            key: the key.
            window: the window.
        """
        by_key = self._by_window.get(window)
        if by_key and by_key.pop(key, None) is not None:
            self._are_left(len(self) + 1)

    def pop_windows(self, windows: Collection[Window]) -> list[Partial]:
        """Remove and return the partials of some windows."""
        before = len(self)
        found = [self._by_window.pop(each, {}) for each in windows]
        self._are_left(before)
        return [*_rows_of(found)]

    def _are_left(self, before: int) -> None:
        """Some of so many partials are gone."""
        self._by_window = {each: by_key for each, by_key in self._by_window.items() if by_key}
        self.next_end_us = min((each.end_us for each in self._by_window), default=NEVER_US)
        after = len(self)
        self.nbytes = self.nbytes * after // max(1, before)
        self.noted_bytes = self.noted_bytes * after // max(1, before)

    def pop_all(self) -> list[Partial]:
        """Remove and return all partials."""
        return self.pop_windows(list(self._by_window))


def _rows_of(several: Iterable[dict[Any, Any]]) -> Iterator[Partial]:
    for by_key in several:
        for known in by_key.values():
            if type(known) is list:
                yield from known
            else:
                yield known
