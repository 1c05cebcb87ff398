"""merge_overlapping: the merge that most merging window functions need."""

from collections.abc import Iterable, Sequence

from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import Merge, MergingWindowFn, WindowFn


def merge_overlapping(windows: Iterable[Window]) -> Sequence[Merge]:
    """Merge every chain of overlapping windows into the window that spans it; windows that only touch stay apart.

    It obeys the laws of merging for all windows, so a `MergingWindowFn` whose `merge_windows` returns its result only
    has to assign windows correctly.
    """
    merges: list[Merge] = []
    chain: list[Window] = []
    chain_end_us = MIN_TIMESTAMP_US
    for window in sorted(windows):
        start_us, end_us = window
        if start_us < chain_end_us:
            chain.append(window)
            chain_end_us = max(chain_end_us, end_us)
        else:
            if len(chain) > 1:
                merges.append(Merge(Window(chain[0][0], chain_end_us), tuple(chain)))
            chain = [window]
            chain_end_us = end_us
    if len(chain) > 1:
        merges.append(Merge(Window(chain[0][0], chain_end_us), tuple(chain)))
    return merges


class OverlapMergingWindowFn(MergingWindowFn):
    """A MergingWindowFn that merges overlapping windows; a subclass only assigns windows, and is grouped faster."""

    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        """Merge every chain of overlapping windows into the window that spans it."""
        return merge_overlapping(windows)


def merges_what_overlaps(window_fn: WindowFn) -> bool:
    """Whether a function merges exactly as `merge_overlapping`, so that any way with the same result may be used."""
    overlap = OverlapMergingWindowFn
    return isinstance(window_fn, overlap) and type(window_fn).merge_windows is overlap.merge_windows
