"""Occurrences: records that are folded by counting how often each key comes, as where words are counted.

Where a combine function counts its inputs, or adds them up and all of them are the integer 1, its accumulator is how
many there are: nothing has to be kept of a record but that it came, and a `collections.Counter` does that in C.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dataflow.canonical_keys import PLAIN_TYPES
from dataflow.combine_fn import CallableCombineFn, CombineFn
from dataflow.combiners import CountCombineFn, SumCombineFn
from runners.core.partials.partial import Partial
from runners.core.partials.unfolded import Pairs
from windowing.window import GLOBAL_WINDOW

#: There is one integer 1, and neither True nor 1.0 is that object.
_IS_ONE = frozenset([id(1)])


class Occurrences:
    """How often each key of the global window has come.

    Args:
        only_ones: whether no other inputs than 1 may be counted.
        is_listed: whether an accumulator is a list with the number in it.
    """

    def __init__(self, *, only_ones: bool, is_listed: bool = False) -> None:
        self._only_ones, self._is_listed = only_ones, is_listed
        self._counts: Counter[Any] = Counter()

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
        return len(self._counts)

    def add(self, pairs: Pairs) -> bool:
        """Count all of these pairs of keys and inputs; False: they have to be folded, or refused, and none is counted.

        Args:
            pairs: in the global window.
        """
        try:
            keys, values = zip(*pairs, strict=True)
        except ValueError:
            return False
        # Keys of other types may equal one that is there, and be another.
        if not PLAIN_TYPES.issuperset(map(type, keys)):
            return False
        if self._only_ones and not _IS_ONE.issuperset(map(id, values)):
            return False
        self._counts.update(keys)
        return True

    def items(self) -> Iterable[tuple[Any, int]]:
        """The keys, and how often each has come."""
        return self._counts.items()

    def take(self) -> list[Partial]:
        """Remove and return all of it as partials."""
        counts, self._counts = self._counts, Counter()
        if self._is_listed:
            return [(key, GLOBAL_WINDOW, [count], count) for key, count in counts.items()]
        return [(key, GLOBAL_WINDOW, count, count) for key, count in counts.items()]
