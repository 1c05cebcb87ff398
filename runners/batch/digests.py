"""Digests of what a stage sends to later groupings: how many records of each key and window, as a sum.

A task that is run again must send what it has sent before, but not the same bytes: partials are folded as far as
memory allows, and come in any order. So what is compared is a sum over all records, of a mixture of the key's hash and
the window. No order changes it, and no folding. Records that may be retracted count with their sign, because nothing
guarantees how often a window fires early.

What a record's value is does not count: sums of floats differ in their last digit when they are added in another
order. Neither do windows that merge, which are as large as what was folded together.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from windowing.window import Window

_BITS = 64
MASK = (1 << _BITS) - 1
# Odd numbers without a pattern: windows whose bounds differ a little get salts that differ in all bits.
_START_FACTOR, _END_FACTOR = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F


def salt_of(window: Window) -> int:
    """What distinguishes the records of a window from the same records in another window."""
    mixed = (window[0] * _START_FACTOR + window[1] * _END_FACTOR) & MASK
    return mixed ^ (mixed >> 29)


def salts_of(starts_us: NDArray[np.int64], ends_us: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The salts of windows that come as columns.

    Args:
        starts_us: where each begins, in microseconds since 1970.
        ends_us: where each ends, likewise.
    """
    # Products wrap around, as they are meant to.
    mixed = starts_us.astype(np.uint64) * np.uint64(_START_FACTOR)
    mixed += ends_us.astype(np.uint64) * np.uint64(_END_FACTOR)
    salts: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(29))
    return salts


def sums_of(
    hashes: NDArray[np.uint64],
    salts: NDArray[np.uint64] | None,
    counts: NDArray[np.int64],
    ranges: NDArray[np.int64],
    size: int,
) -> list[int]:
    """What records given as columns add to the digest of each range.

    Args:
        hashes: of the records' keys.
        salts: of their windows (`salts_of`); None: windows do not count.
        counts: how many records each row stands for.
        ranges: the index of the key range of each row.
        size: how many key ranges there are.
    """
    mixed = hashes if salts is None else hashes ^ salts
    sums = np.zeros(size, np.uint64)
    np.add.at(sums, ranges, mixed * counts.astype(np.uint64))
    return [int(each) for each in sums]


class Digest:
    """The digests of one grouping's key ranges.

    Args:
        ranges: how many there are.
        with_windows: whether windows count.
    """

    def __init__(self, ranges: int, *, with_windows: bool) -> None:
        self._with_windows = with_windows
        #: By range, not yet cut to 64 bits.
        self.sums: list[int] = [0] * ranges
        self._window: Window | None = None
        self._salt = 0

    def salt(self, window: Window) -> int:
        """What to mix with the hash of a key."""
        # Records that follow each other mostly share one window object.
        if window is not self._window and self._with_windows:
            self._window, self._salt = window, salt_of(window)
        return self._salt

    def with_counts(self, counted: Iterable[tuple[int, int, Window, int]]) -> Sequence[int]:
        """The sums with some more records, which are not added: range, hash of the key, window, number."""
        sums = list(self.sums)
        for index, key_hash, window, count in counted:
            sums[index] += (key_hash ^ self.salt(window)) * count
        return sums
