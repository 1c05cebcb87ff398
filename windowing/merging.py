"""merge_overlapping: the merge that most merging window functions want."""

from collections.abc import Iterable, Sequence

from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import Merge


def merge_overlapping(windows: Iterable[Window]) -> Sequence[Merge]:
    """Merge every chain of overlapping windows into the window that spans it; windows that only touch stay apart.

    Obeys the laws of merging whatever the windows are, so a `MergingWindowFn` whose `merge_windows` returns this has
    only to assign well.
    """
    chains: list[list[Window]] = []
    chain_end_us = MIN_TIMESTAMP_US
    for window in sorted(windows):
        start_us, end_us = window
        if start_us < chain_end_us:
            chains[-1].append(window)
            chain_end_us = max(chain_end_us, end_us)
        else:
            chains.append([window])
            chain_end_us = end_us
    return [_merge(chain) for chain in chains if len(chain) > 1]


def _merge(chain: list[Window]) -> Merge:
    span = Window(chain[0].start_us, max(window.end_us for window in chain))
    return Merge(span, tuple(chain))
