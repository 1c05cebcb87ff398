"""Key ranges: how the 64-bit key-hash space of a computation is divided.

**Invariant:** the ranges of a computation cover the space with no gap and no overlap.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

from runners.millwheel.model.ids import RangeId

#: One past the largest key hash.
KEY_SPACE_END = 1 << 64


@attrs.frozen
class KeyRange:
    """Half-open range ``[low, high)`` of unsigned 64-bit key hashes."""

    low: int
    high: int

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.low < self.high <= KEY_SPACE_END:
            raise ValueError(f"not a range of 64-bit key hashes: [{self.low}, {self.high})")

    def __contains__(self, key_hash: int) -> bool:
        return self.low <= key_hash < self.high

    def __str__(self) -> str:
        return f"[{self.low:016x}, {self.high:016x})"


class KeyMap:
    """Finds the range that a key hash is in, among ranges that do not overlap.

    Args:
        keys: what each range covers.
    """

    def __init__(self, keys: Mapping[RangeId, KeyRange]) -> None:
        placed = sorted((each.low, each.high, range_id) for range_id, each in keys.items())
        self._lows = [low for low, _, _ in placed]
        self._highs = [high for _, high, _ in placed]
        #: The ranges, in the order of their keys.
        self.range_ids: Sequence[RangeId] = [range_id for _, _, range_id in placed]

    def find(self, key_hash: int) -> RangeId | None:
        """The range that has the key hash; None if it is in none of them."""
        index = bisect_right(self._lows, key_hash) - 1
        if index < 0 or key_hash >= self._highs[index]:
            return None
        return self.range_ids[index]

    @property
    def is_whole(self) -> bool:
        """Whether the ranges cover the space with no gap and no overlap."""
        bounds = [0, *self._highs]
        return [*self._lows, KEY_SPACE_END] == bounds


def even_ranges(count: int) -> tuple[KeyRange, ...]:
    """Divide the whole space into ``count`` ranges of equal size (the last takes the remainder)."""
    if count < 1:
        raise ValueError(f"a computation needs at least one key range, not {count}")
    width = KEY_SPACE_END // count
    bounds = [index * width for index in range(count)] + [KEY_SPACE_END]
    return tuple(KeyRange(low, high) for low, high in pairwise(bounds))


def range_index(key_hash: int, count: int) -> int:
    """The index of the range of `even_ranges` that contains ``key_hash``, in constant time.

    Args:
        key_hash: from 0 to 2^64 - 1.
        count: the number of ranges.
    """
    return min(key_hash // (KEY_SPACE_END // count), count - 1)


def range_indexes(key_hashes: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """What `range_index` is for each of several hashes.

    Args:
        key_hashes: unsigned, of 64 bits.
        count: the number of ranges.
    """
    if count == 1:
        return np.zeros(len(key_hashes), np.int64)
    width = np.uint64(KEY_SPACE_END // count)
    indexes: NDArray[np.int64] = np.minimum(key_hashes // width, count - 1).astype(np.int64)
    return indexes
