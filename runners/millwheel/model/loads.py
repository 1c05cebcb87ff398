"""Loads: how much each range has to do, and for which keys, as its worker counts it.

A record that a source hands over, and a partial that a grouping takes in, count alike: many records that were combined
into one partial before they were sent are little work for the receiver, and count as one.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from dataflow.columns import picked
from runners.millwheel.model.hot_keys import FrequentKey, HotKeys
from runners.millwheel.model.ids import RangeId

#: Of so many partials the key of one is remembered, on average.
_STRIDE = 8
#: Keys that are remembered, of the last partials of a range.
_HASHES_MAX = 64


@attrs.frozen
class RangeLoad:
    """What a range has taken in since its worker owns it: how many records, and the key hashes of some of the last."""

    records: int = 0
    hashes: tuple[int, ...] = ()


class LoadMeter:
    """Counts for the ranges of one computation on one worker.

    Args:
        keeps_keys: whether frequent keys are known as text, and not by their hashes alone.
    """

    def __init__(self, *, keeps_keys: bool = False) -> None:
        self._keeps_keys = keeps_keys
        self._records: dict[RangeId, int] = {}
        self._hashes: dict[RangeId, deque[int]] = {}
        self._hot: dict[RangeId, HotKeys] = {}
        self._skip = self._chance = 0

    def count(self, range_id: RangeId, records: int) -> None:
        """Count records that a range has taken in.

        Args:
            range_id: of the range.
            records: how many.
        """
        self._records[range_id] = self._records.get(range_id, 0) + records

    def take_in(
        self, range_id: RangeId, partials: Sequence[Any], hash_of: Callable[[Any], int]
    ) -> None:
        """Count partials that a range has taken in; ``hash_of`` is called for some of their keys.

        Args:
            range_id: of the range.
            partials: that it has taken in.
            hash_of: from a key to its hash; called for a sample of the keys only.
        """
        self.count(range_id, len(partials))
        keys = self._sample(partials)
        if keys:
            self._note(range_id, [hash_of(key) for key in keys], keys)

    def _sample(self, partials: Sequence[Any]) -> list[Any]:
        """Choose some of the keys of partials, whose hashes are to be noted."""
        indexes = []
        while self._skip < len(partials):
            indexes.append(self._skip)
            self._skip += self._next_step()
        self._skip -= len(partials)
        return [partial[0] for partial in picked(partials, indexes)]

    def _next_step(self) -> int:
        # Irregular, because keys may come in turns; and the same each time, so that a simulation can be repeated.
        self._chance = (self._chance * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return 1 + self._chance * (2 * _STRIDE - 1) // (1 << 64)

    def _note(self, range_id: RangeId, key_hashes: Sequence[int], keys: Sequence[Any]) -> None:
        """Note these keys."""
        hashes = self._hashes.get(range_id)
        if hashes is None:
            hashes = self._hashes[range_id] = deque(maxlen=_HASHES_MAX)
            self._hot[range_id] = HotKeys(keeps_text=self._keeps_keys)
        hashes.extend(key_hashes)
        self._hot[range_id].note(key_hashes, keys)

    def forget(self, range_id: RangeId) -> None:
        """Forget a range that another worker owns now, or that has other keys."""
        self._records.pop(range_id, None)
        self._hashes.pop(range_id, None)
        self._hot.pop(range_id, None)

    def frequent(self) -> Mapping[RangeId, tuple[FrequentKey, ...]]:
        """The frequent keys of each range that has some."""
        return {range_id: tuple(hot.top()) for range_id, hot in self._hot.items()}

    @property
    def loads(self) -> Mapping[RangeId, RangeLoad]:
        """The load of each range that has taken in anything."""
        return {
            range_id: RangeLoad(records, tuple(self._hashes.get(range_id, ())))
            for range_id, records in self._records.items()
        }
