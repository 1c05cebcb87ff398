"""Sessions: periods of activity of one key, closed by a gap.  Dataflow Model, sections 1.2 and 2.2.2."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from windowing.errors import WindowError
from windowing.timestamps import DurationLike, clamp_timestamp_us, to_duration_us
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

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:  # noqa: ARG002
        """The proto-session of one record: from its event time to one gap later."""
        return (Window(timestamp_us, clamp_timestamp_us(timestamp_us + self.gap_us)),)

    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        """Merge every chain of overlapping windows into the window that spans it."""
        merges: list[Merge] = []
        chain: list[Window] = []
        end_us = 0
        for window in sorted(windows):
            if chain and window.start_us < end_us:
                chain.append(window)
                end_us = max(end_us, window.end_us)
                continue
            _close(chain, end_us, merges)
            chain, end_us = [window], window.end_us
        _close(chain, end_us, merges)
        return merges


def _close(chain: list[Window], end_us: int, merges: list[Merge]) -> None:
    if len(chain) > 1:
        merges.append(Merge(Window(chain[0].start_us, end_us), tuple(chain)))
