"""Sessions: periods of activity of one key, separated by a gap.  Dataflow Model, sections 1.2 and 2.2.2."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from windowing.errors import TimeError, WindowError, not_positive
from windowing.merging import OverlapMergingWindowFn
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    US_PER_SECOND,
    DurationLike,
    clamp_timestamp_us,
    to_duration_us,
)
from windowing.window import ALL_OF_TIME_US, Window, windows_of
from windowing.window_columns import Int64s, WindowColumns

#: Up to here floats have every microsecond.
_COLUMN_GAP_MAX_S = (1 << 53) // US_PER_SECOND


@attrs.frozen(init=False)
class Sessions(OverlapMergingWindowFn):
    """Records of a key less than ``gap`` apart share a window that ends one gap after the last of them.

    Windows are half-open, so two records exactly one gap apart are two sessions, as in Beam and unlike Spark.

    If each element has its own gap, it keeps its session open for that long: elements are in one session if their
    spans ``[event time, event time + gap)`` overlap.  A long gap is not shortened by a short one that comes after it.

    Args:
        gap: positive; or a deterministic function from the element (as it is at the `WindowInto`, in most cases a
            ``(key, value)`` pair) to its gap, e.g. ``lambda pair: "1 minute" if pair[1] == "pay" else "30 minutes"``.
            An expression, ``df.col("gap_s")``, is a function too, and computed for a whole column of rows.

    Attributes:
        gap_us: the gap of every element; None where ``gap_of`` returns it.
        gap_of: the function from an element to its gap; None where all have the same.

    Raises:
        WindowError: ``gap`` is not positive; later, what the function returned for an element is not.
        TimeError: ``gap`` is not a duration.
    """

    gap_us: int | None
    gap_of: Callable[[Any], DurationLike] | None

    def __init__(self, gap: DurationLike | Callable[[Any], DurationLike]) -> None:
        if callable(gap):
            self.__attrs_init__(None, gap)
            return
        gap_us = to_duration_us(gap)
        if gap_us <= 0:
            raise not_positive("sessions need a positive gap", gap)
        self.__attrs_init__(gap_us, None)

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The proto-session of one record: from its event time to one gap later."""
        gap_us = self._own_gap_us(value) if self.gap_us is None else self.gap_us
        return (Window(timestamp_us, clamp_timestamp_us(timestamp_us + gap_us)),)

    def assign_bundle(
        self,
        timestamps_us: Sequence[int],
        values: Sequence[Any],
    ) -> Sequence[Sequence[Window]]:
        """The proto-session of each record."""
        gap_us = self.gap_us
        if gap_us is None or max(timestamps_us, default=0) + gap_us > MAX_TIMESTAMP_US:
            return super().assign_bundle(timestamps_us, values)
        ends_us = [timestamp_us + gap_us for timestamp_us in timestamps_us]
        return list(zip(windows_of(timestamps_us, ends_us), strict=True))

    def assign_columns(self, timestamps_us: Int64s) -> WindowColumns | None:
        """The proto-session of each event time; None near the end of time, and where each element has its own gap."""
        if self.gap_us is None or self.gap_us > ALL_OF_TIME_US:
            return None
        return WindowColumns.of_size(timestamps_us, self.gap_us)

    def assign_element_columns(
        self, timestamps_us: Int64s, values: Sequence[Any]
    ) -> WindowColumns | None:
        """The proto-session of each element; None where gaps are not computed in columns, or are refused."""
        if self.gap_of is None:
            return self.assign_columns(timestamps_us)
        gaps_us = _column_of_gaps_us(self.gap_of, values)
        if gaps_us is None:
            return None
        return WindowColumns(timestamps_us, np.minimum(timestamps_us + gaps_us, MAX_TIMESTAMP_US))

    def _own_gap_us(self, value: Any) -> int:
        assert self.gap_of is not None
        gap = self.gap_of(value)
        try:
            gap_us = to_duration_us(gap)
        except TimeError as error:
            raise _refusal(gap, value, error.fact) from None
        if gap_us <= 0:
            raise _refusal(gap, value, "it is not above zero")
        return gap_us


def _column_of_gaps_us(
    gap_of: Callable[[Any], DurationLike], values: Sequence[Any]
) -> Int64s | None:
    """The gaps of elements that are columns, all positive; None where each has to be asked."""
    on_columns = getattr(gap_of, "on_columns", None)
    found = None if on_columns is None else on_columns(values, None)
    # Texts and durations are read one by one, and so is what is refused, for the error that names it.
    if found is None or not all(type(each) in {int, float} for each in found):
        return None
    seconds = np.asarray(found)
    if not bool((np.abs(seconds) <= _COLUMN_GAP_MAX_S).all()):
        return None
    gaps_us = np.rint(seconds * US_PER_SECOND).astype(np.int64)
    return gaps_us if bool((gaps_us > 0).all()) else None


def _refusal(gap: object, value: object, why: str) -> WindowError:
    return WindowError(
        f"sessions need a positive gap, not {gap!r}",
        detail=f"the function returned it for the element {value!r}; {why}",
        hint="return a timedelta, text or a number of seconds above zero for every element",
    )
