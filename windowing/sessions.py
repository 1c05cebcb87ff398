"""Sessions: periods of activity of one key, closed by a gap.  Dataflow Model, sections 1.2 and 2.2.2."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from windowing.errors import WindowError
from windowing.timestamps import MIN_TIMESTAMP_US, DurationLike, clamp_timestamp_us, to_duration_us
from windowing.window import Window
from windowing.window_fn import Merge, MergingWindowFn


@attrs.frozen(init=False)
class Sessions(MergingWindowFn):
    """Records of a key less than ``gap`` apart share a window that ends one gap after the last of them.

    Windows are half-open, so two records exactly one gap apart are two sessions, as in Beam and unlike Spark.

    Args:
        gap: positive.

    Raises:
        WindowError: ``gap`` is not positive.
        TimeError: ``gap`` is not a duration.
    """

    gap_us: int

    def __init__(self, gap: DurationLike) -> None:
        gap_us = to_duration_us(gap)
        if gap_us <= 0:
            raise WindowError(
                f"sessions need a positive gap, not {gap!r}",
                hint="give a timedelta or a number of seconds above zero",
            )
        self.__attrs_init__(gap_us)

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The proto-session of one record: from its event time to one gap later."""
        return (Window(timestamp_us, clamp_timestamp_us(timestamp_us + self.gap_us)),)

    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        """Merge every chain of overlapping windows into the window that spans it."""
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
