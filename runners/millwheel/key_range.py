"""Key ranges: how the 64-bit key-hash space of a computation is divided.

**Invariant:** the ranges of a computation cover the space with no gap and no overlap.
"""

from itertools import pairwise

import attrs

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


def even_ranges(count: int) -> tuple[KeyRange, ...]:
    """Divide the whole space into ``count`` ranges of equal size (the last takes the remainder)."""
    if count < 1:
        raise ValueError(f"a computation needs at least one key range, not {count}")
    width = KEY_SPACE_END // count
    bounds = [index * width for index in range(count)] + [KEY_SPACE_END]
    return tuple(KeyRange(low, high) for low, high in pairwise(bounds))


def range_index(key_hash: int, count: int) -> int:
    """The index of the range of `even_ranges` that holds ``key_hash``, in constant time."""
    return min(key_hash // (KEY_SPACE_END // count), count - 1)
