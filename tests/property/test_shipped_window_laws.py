"""check_window_fn, as it is shipped for users: what is right passes, and what is wrong is caught."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import strategies as our
from dataflow.testing.laws import (
    check_window_fn,
)
from tests.caught import caught

SECOND_US = 1_000_000


@given(our.window_fns(), st.lists(st.tuples(our.timestamps_us(anywhere=True), our.keyed_values())))
def test_shipped_window_fns_are_right(window_fn: df.WindowFn, rows: list[Any]) -> None:
    check_window_fn(window_fn, [at_us for at_us, _ in rows], [value for _, value in rows])


@attrs.frozen
class Own(df.MergingWindowFn):
    """Sessions of a user's own; right, but for what the tests change."""

    gap_us: int = 30 * SECOND_US

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return [df.Window(timestamp_us, timestamp_us + self.gap_us)]

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        return df.merge_overlapping(windows)


class OnlyNeighbours(Own):
    """Forgets that a merged window may overlap the next one."""

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        ordered = sorted(windows)
        pairs = zip(ordered[::2], ordered[1::2], strict=False)
        return [
            df.Merge(df.Window(a.start_us, max(a.end_us, b.end_us)), (a, b))
            for a, b in pairs
            if b.start_us < a.end_us
        ]


class FirstComeFirstMerged(Own):
    """Merges each window with those that it overlaps, in the order in which they are given."""

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        left, merges = list(windows), []
        while left:
            first = left.pop(0)
            found = [w for w in left if w.start_us < first.end_us and first.start_us < w.end_us]
            left = [w for w in left if w not in found]
            if found:
                both = [first, *found]
                span = df.Window(min(w.start_us for w in both), max(w.end_us for w in both))
                merges.append(df.Merge(span, tuple(both)))
        return merges


class LongestWins(Own):
    """A session of at most a minute and a half; what does not fit is cut off."""

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        merges: list[df.Merge] = []
        chain: list[df.Window] = []
        for window in sorted(windows):
            fits = chain and window.end_us - chain[0].start_us <= 90 * SECOND_US
            if chain and fits and window.start_us < chain[-1].end_us:
                chain.append(window)
                continue
            merges += _span(chain)
            chain = [window]
        return merges + _span(chain)


def _span(chain: Sequence[df.Window]) -> list[df.Merge]:
    if len(chain) < 2:
        return []
    return [df.Merge(df.Window(chain[0].start_us, max(w.end_us for w in chain)), tuple(chain))]


class DoesNotCover(Own):
    """Ends with the last window that begins, which need not be the last that ends."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return [df.Window(timestamp_us, timestamp_us + (10 + value) * SECOND_US)]

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        return [
            df.Merge(df.Window(merged.start_us, max(sources).end_us), sources)
            for merged, sources in df.merge_overlapping(windows)
        ]


class LosesWindows(Own):
    """Puts a window that nobody has given into the place of those given."""

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        return [df.Merge(merged, (merged,)) for merged, _ in df.merge_overlapping(windows)]


class EndsInside(df.WindowFn):
    """Off by one at the end of a window."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        end_us = -(-timestamp_us // (60 * SECOND_US)) * 60 * SECOND_US
        return [df.Window(end_us - 60 * SECOND_US, end_us)]


class Counting(df.WindowFn):
    """Assigns something else each time."""

    def __init__(self) -> None:
        self.calls = 0

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        self.calls += 1
        return [df.Window(timestamp_us - self.calls, timestamp_us + 1)]


@given(st.lists(our.timestamps_us(), max_size=8))
def test_a_window_fn_of_ones_own_that_is_right(timestamps_us: list[int]) -> None:
    check_window_fn(Own(), timestamps_us)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window_fn", "part"),
    [
        (OnlyNeighbours(), "is not"),
        (FirstComeFirstMerged(), "is not"),
        (LongestWins(), "is not"),
        (DoesNotCover(), "does not cover"),
        (LosesWindows(), "that are not there"),
        (EndsInside(), "does not contain the element"),
        (Counting(), "is not deterministic"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_wrong_window_fns_are_caught(window_fn: df.WindowFn, part: str) -> None:
    rows = st.lists(st.tuples(our.timestamps_us(), st.sampled_from([1, 50])), max_size=6)

    def law(rows: list[Any]) -> None:
        check_window_fn(window_fn, [at_us for at_us, _ in rows], [value for _, value in rows])

    message = caught(law, rows)

    assert part in message
    assert type(window_fn).__name__ in message
