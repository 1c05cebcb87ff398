"""HotKeys: which keys are frequent in a long sequence, in little memory and time: space-saving.

Metwally, Agrawal, El Abbadi, *Efficient Computation of Frequent and Top-k Elements in Data Streams* (2005), in batches:
a batch is counted exactly and merged into the summary (Agarwal et al., *Mergeable Summaries*, 2012), which costs a
tenth of an update for each element.

**Invariants**, of what was noted since the counts were last halved:

* A key's count is never below how often it came, and above that by its error at most.
* A key that came more often than a part of ``1 / KEYS_MAX`` of all is there.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

import attrs

#: Keys that are remembered of a range.
KEYS_MAX = 16
#: Keys that are shown of a range.
SHOWN_MAX = 5
#: How many are counted at once, at least.
BATCH = 1_024
#: When so many were noted all counts are halved: what was long ago is to count for less.
HALVED_AFTER = 1 << 16
#: Of a key as text.
TEXT_CHARS_MAX = 100


@attrs.frozen(kw_only=True)
class FrequentKey:
    """A key that is frequent.

    Attributes:
        key_hash: its hash.
        count: how often it came, at most.
        error: by how much that may be too much.
        of: how many came in all.
        text: the key; None: it is not to be shown.
    """

    key_hash: int
    count: int
    error: int
    of: int
    text: str | None = None


class HotKeys:
    """The summary of one range.

    Args:
        keeps_text: whether keys are remembered as text, and not their hashes alone.
    """

    def __init__(self, *, keeps_text: bool = False) -> None:
        self._keeps_text = keeps_text
        self._batch: list[int] = []
        #: Count and error by hash.
        self._counts: dict[int, tuple[int, int]] = {}
        self._texts: dict[int, str] = {}
        self._total = 0

    def note(self, key_hashes: Sequence[int], keys: Sequence[Hashable]) -> None:
        """Count keys.

        Args:
            key_hashes: their hashes.
            keys: the keys, for their texts.
        """
        self._batch += key_hashes
        if self._keeps_text:
            for key_hash, key in zip(key_hashes, keys, strict=True):
                if key_hash not in self._texts:
                    self._texts[key_hash] = repr(key)[:TEXT_CHARS_MAX]
        if len(self._batch) >= BATCH:
            self._fold()

    def top(self) -> Sequence[FrequentKey]:
        """The most frequent first."""
        self._fold()
        # What came once may have come by chance, and nothing is hot by it.
        found = sorted(self._counts.items(), key=lambda each: (-each[1][0], each[0]))[:SHOWN_MAX]
        return [
            FrequentKey(
                key_hash=key_hash,
                count=count,
                error=error,
                of=self._total,
                text=self._texts.get(key_hash),
            )
            for key_hash, (count, error) in found
            if count > 1
        ]

    def _fold(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        self._total += len(batch)
        # A key that is not in a full summary may have come as often as the rarest that is.
        missed = min(count for count, _ in self._counts.values()) if self._is_full else 0
        merged = dict(self._counts)
        counted = Counter(batch)
        for key_hash, (count, error) in self._counts.items():
            merged[key_hash] = count + counted.pop(key_hash, 0), error
        # Of those that are not known the most frequent of the batch alone can be among those that are kept.
        for key_hash, count in counted.most_common(KEYS_MAX):
            merged[key_hash] = missed + count, missed
        kept = sorted(merged.items(), key=lambda each: -each[1][0])[:KEYS_MAX]
        if self._total >= HALVED_AFTER:
            self._total //= 2
            kept = [(each, ((count + 1) // 2, error // 2)) for each, (count, error) in kept]
        self._counts = dict(kept)
        if self._texts:
            self._texts = {each: self._texts[each] for each in self._counts if each in self._texts}

    @property
    def _is_full(self) -> bool:
        return len(self._counts) >= KEYS_MAX
