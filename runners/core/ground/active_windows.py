"""ActiveWindows: which of the open windows of a key merge when others arrive, whatever is kept for them.

`GroupAlsoByWindow` keeps accumulators and triggers for a window, a stateful DoFn state and timers; both ask here.

Dataflow Model, section 2.2.2 (window merging).
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from windowing.checks import checked_merges
from windowing.merging import merge_arrival, merges_what_overlaps
from windowing.window import Window
from windowing.window_fn import Merge, MergingWindowFn


class Bridged(NamedTuple):
    """Windows that become one.

    Attributes:
        merged: the window that they become.
        sources: all of them, those that have arrived too.
        present: those of them that were open, none of which stays; nothing if what is open does not change.
    """

    merged: Window
    sources: Sequence[Window]
    present: Sequence[Window]


class ActiveWindows:
    """Merges the open windows of a key with windows that arrive; it keeps configuration only, and no windows.

    Args:
        window_fn: of the grouping.
    """

    def __init__(self, window_fn: MergingWindowFn) -> None:
        self._window_fn = window_fn
        # One arrival can then be compared with each window by itself.
        self._is_overlap_merging = merges_what_overlaps(window_fn)

    def bridged(self, windows: Collection[Window], arrived: Sequence[Window]) -> Iterator[Bridged]:
        """The merges that arrivals make necessary.

        Args:
            windows: those that are open, of which none merge without an arrival.
            arrived: new ones, or some that are open.

        Raises:
            WindowError: the user's window function failed, or its answer cannot be right.
        """
        for merged, sources in self._merges(windows, arrived):
            present = [source for source in sources if source in windows]
            yield Bridged(merged, sources, [] if present == [merged] else present)

    def _merges(self, windows: Collection[Window], arrived: Sequence[Window]) -> Sequence[Merge]:
        if len(arrived) == 1 and self._is_overlap_merging:
            return merge_arrival(windows, arrived[0])
        return checked_merges(self._window_fn, dict.fromkeys(windows) | dict.fromkeys(arrived))
