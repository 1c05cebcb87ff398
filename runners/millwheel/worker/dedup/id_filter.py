"""IdFilter: a Bloom filter over the ids that one split of a source remembers, in front of the exact table.

"No" is certain; for "maybe" the table is asked.  The filter grows with its ids, and drops those that are behind the
horizon: it is made of *generations*, each with room for a fixed number of ids.  A full one is followed by another, and
is dropped when all of its ids are behind the horizon.

**Invariants**

* For an id that was added and is not behind the horizon the answer is maybe.  A missing bit would count a record twice,
  so a filter is never stored: it lives in memory, and is rebuilt from the table.
* Of new ids, no more than the target rate are maybes, however many ids there are: each generation has half of what is
  left of the rate (Almeida et al., *Scalable Bloom Filters*, 2007).

MillWheel, section 6.1.1.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import attrs
from rbloom import Bloom

from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

# A digest is a hash already; the filter wants it as a signed number of 128 bits.
_hash = partial(int.from_bytes, byteorder="big", signed=True)
#: A filter with so many times the ids that were left when it was built last is worth building again.
_GARBAGE_FACTOR = 2


@attrs.define
class _Generation:
    bloom: Bloom
    capacity: int
    count: int = 0
    earliest_us: int = MAX_TIMESTAMP_US
    latest_us: int = MIN_TIMESTAMP_US


class IdFilter:
    """The digests of one split; not thread-safe.

    Args:
        expected_ids: the size of the first generation; at least 1.
        false_positive_rate: how many new ids may be maybes, of all; between 0 and 1.
    """

    def __init__(self, expected_ids: int, false_positive_rate: float) -> None:
        self._expected, self._rate = expected_ids, false_positive_rate
        self._generations: list[_Generation] = []
        self._built_with = 0

    def __len__(self) -> int:
        """The number of ids added and not dropped; some are behind the horizon."""
        return sum(each.count for each in self._generations)

    @property
    def generations(self) -> int:
        """The number of generations."""
        return len(self._generations)

    @property
    def size_bytes(self) -> int:
        """The bytes of all bits together."""
        return sum(each.bloom.size_in_bits for each in self._generations) // 8

    def maybes(self, digests: Iterable[bytes]) -> list[bytes]:
        """The ids that may have been added, in no particular order; the others have not been."""
        rest, maybes = list(digests), list[bytes]()
        for each in self._generations:
            bloom = each.bloom
            found = [digest for digest in rest if digest in bloom]
            if found:
                maybes += found
                rest = list(set(rest).difference(found))
        return maybes

    def add(self, ids: Sequence[tuple[bytes, int]]) -> None:
        """Add digests, each with its event time in microseconds."""
        start = 0
        while start < len(ids):
            newest = self._newest()
            part = ids[start : start + newest.capacity - newest.count]
            newest.bloom.update([digest for digest, _ in part])
            newest.count += len(part)
            times_us = [timestamp_us for _, timestamp_us in part]
            newest.earliest_us = min(newest.earliest_us, *times_us)
            newest.latest_us = max(newest.latest_us, *times_us)
            start += len(part)

    def collect(self, horizon_us: int) -> None:
        """Drop generations whose ids are all behind the horizon."""
        self._generations = [each for each in self._generations if each.latest_us >= horizon_us]

    def note_built(self) -> None:
        """Note that all ids in the table have been added."""
        self._built_with = len(self)

    def is_worth_building(self, horizon_us: int) -> bool:
        """Whether many of its ids may be behind the horizon, in generations kept by a few that are far ahead.

        Building it again reads as many rows of the table as have been added since, at most.
        """
        return len(self) > _GARBAGE_FACTOR * (self._built_with + self._expected) and any(
            each.earliest_us < horizon_us for each in self._generations[:-1]
        )

    def _newest(self) -> _Generation:
        if not self._generations or self._generations[-1].count >= self._generations[-1].capacity:
            # A new generation has room for as many as all before it together, so that there are few of them.
            capacity = max(self._expected, len(self))
            rate = self._rate / 2 ** (len(self._generations) + 1)
            self._generations.append(_Generation(Bloom(capacity, rate, _hash), capacity))
        return self._generations[-1]
