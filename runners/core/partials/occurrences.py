"""Occurrences: records that are folded by counting how often each key comes, as where words are counted.

Where a combine function counts its inputs, or adds them up and all of them are the integer 1, its accumulator is how
many there are: nothing has to be kept of a record but that it came.  A `collections.Counter` does that in C; texts are
counted by Arrow, many at a time, in half of the time.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, repeat
from operator import add
from typing import Any

import pyarrow as pa

from dataflow.canonical_keys import PLAIN_TYPES
from dataflow.combine_fn import CallableCombineFn, CombineFn
from dataflow.combiners import CountCombineFn, SumCombineFn
from runners.core.partials.partial import Partial
from runners.core.partials.unfolded import Pairs
from windowing.window import GLOBAL_WINDOW

#: There is one such integer, and neither True nor 1.0 is that object.
_ONE = 1
_TEXTS = frozenset([str])
#: Bytes of texts that wait to be counted, which are about a million words: the more, the less their counts cost, as the
#: same words are found again in fewer counts, and the more memory they take.
WAITING_MAX_BYTES = 1 << 24


class Occurrences:
    """How often each key of the global window has come.

    Args:
        only_ones: whether no other inputs than 1 may be counted.
        is_listed: whether an accumulator is a list with the number in it.
    """

    def __init__(self, *, only_ones: bool, is_listed: bool = False) -> None:
        self._only_ones, self._is_listed = only_ones, is_listed
        self._counts: Counter[Any] = Counter()
        self._texts: list[pa.Array[Any]] = []
        self._waiting_bytes = 0

    @classmethod
    def of(cls, combine_fn: CombineFn) -> "Occurrences | None":
        """For a combine function whose accumulators are counts; None for any other, and for subclasses of these.

        Args:
            combine_fn: as it folds what is sent.
        """
        if type(combine_fn) is CountCombineFn:
            return cls(only_ones=False)
        if type(combine_fn) is SumCombineFn:
            return cls(only_ones=True)
        if type(combine_fn) is CallableCombineFn and combine_fn.function is sum:
            return cls(only_ones=True, is_listed=True)
        return None

    def __len__(self) -> int:
        """The number of keys, without those of texts that wait to be counted."""
        return len(self._counts)

    def add(self, pairs: Pairs) -> bool:
        """Count all of these pairs of keys and inputs; False: they have to be folded, or refused, and none is counted.

        Args:
            pairs: in the global window.
        """
        any_counts = not self._only_ones
        try:
            keys = [key for key, value in pairs if any_counts or value is _ONE]
        except (TypeError, ValueError):
            return False
        kinds = set(map(type, keys))
        # Keys of other types may equal one that is there, and be another.
        if len(keys) < len(pairs) or not kinds <= PLAIN_TYPES:
            return False
        if kinds != _TEXTS or not self._add_texts(keys):
            self._counts.update(keys)
        return True

    def _add_texts(self, keys: list[str]) -> bool:
        try:
            texts = pa.array(keys, pa.large_string())
        except UnicodeEncodeError:
            return False  # Half of a surrogate pair, which Arrow has no form for.
        self._texts.append(texts)
        self._waiting_bytes += texts.nbytes
        # After so many bytes, whoever asks for them meanwhile: a task that is repeated must send what it has sent.
        if self._waiting_bytes >= WAITING_MAX_BYTES:
            self._count_texts()
        return True

    def _count_texts(self) -> None:
        if not self._texts:
            return
        texts, counts = self._waiting_texts()
        # Each text is once among them; a loop over them takes several times as long.
        totals = map(add, counts, map(self._counts.get, texts, repeat(0)))
        dict.update(self._counts, zip(texts, totals, strict=True))
        self._texts, self._waiting_bytes = [], 0

    def _waiting_texts(self) -> tuple[list[str], list[int]]:
        """Each of them once, and how often it is there."""
        counted = pa.chunked_array(self._texts, pa.large_string()).value_counts()
        return counted.field("values").to_pylist(), counted.field("counts").to_pylist()

    def items(self) -> Iterable[tuple[Any, int]]:
        """The keys, and how often each has come; a key may be there twice, with a part of its count each."""
        return chain(self._counts.items(), zip(*self._waiting_texts(), strict=True))

    def take(self) -> list[Partial]:
        """Remove and return all of it as partials."""
        self._count_texts()
        counts, self._counts = self._counts, Counter()
        if self._is_listed:
            return [(key, GLOBAL_WINDOW, [count], count) for key, count in counts.items()]
        return [(key, GLOBAL_WINDOW, count, count) for key, count in counts.items()]
