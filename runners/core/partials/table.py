"""PartialTable: merges the partials of many bundles into few, before they are sent (map-side combining)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dataflow.columns import WindowColumn
from runners.core.partials.lifting import Lifter
from runners.core.partials.occurrences import Occurrences
from runners.core.partials.partial import Partial
from runners.core.partials.row_folding import Folded
from runners.core.partials.stateful_inputs import StatefulInputs
from runners.core.partials.unfolded import UnfoldedPartials
from runners.core.partials.values_by_key import ValuesByKey
from windowing.window import GLOBAL_WINDOW, Window

#: The most records that wait to be folded, if each value is a few numbers.  Folding more at a time costs less.
WAITING_MAX = 200_000
#: A record of another value counts as so many of them, because its size is not known.
_OTHERS_WEIGHT = 20
#: The number of values of a bundle that are inspected for this.
_SAMPLE = 10

_NUMBERS = frozenset((int, float, bool))
_SEVERAL = frozenset((tuple, list))
_NUMBERS_MAX = 8


class PartialTable:
    """One accumulator for each key and window if windows do not merge; otherwise partials that `take` combines.

    Args:
        lifter: of the grouping.
    """

    def __init__(self, lifter: Lifter | StatefulInputs) -> None:
        self._lifter = lifter
        self._unfolded = _Unfolded()
        self._folded: dict[Window, Folded] = defaultdict(dict)
        #: Partials that arrived folded.
        self._listed: list[Partial] = []
        #: Those of windows that merge, fold by fold: of one none can be merged with another.
        self._folds: list[list[Partial]] = []
        #: Records that need only be counted; None where there are none.
        self._occurrences: Occurrences | None = None
        if isinstance(lifter, Lifter) and not lifter.merging.is_merging:
            self._occurrences = Occurrences.of(lifter.rows.combine_fn)
        #: The number of records in the table.
        self.records = 0
        self._folded_size = 0

    @property
    def size(self) -> int:
        """The number of partials in the table, without the records that wait to be folded."""
        return self._folded_size + (0 if self._occurrences is None else len(self._occurrences))

    def add(self, partials: Sequence[Partial]) -> None:
        """Add the partials of one bundle.

        Raises:
            TransformError: a key cannot be hashed, or the `CombineFn` failed.
        """
        if isinstance(partials, UnfoldedPartials) and not partials.is_made:
            self.records += partials.records
            self._wait(partials)
            return
        self._listed.extend(partials)
        self.records += sum([partial[3] for partial in partials])
        self._folded_size += len(partials)

    def _wait(self, partials: UnfoldedPartials) -> None:
        assert isinstance(self._lifter, Lifter)
        counted = self._occurrences if partials.windows is None else None
        if counted is not None and counted.add(partials.pairs):
            return
        unfolded = self._unfolded
        if self._lifter.merging.is_merging:
            unfolded.pairs.extend(partials.pairs)
            unfolded.windows.append(partials.windows or [GLOBAL_WINDOW] * partials.records)
        else:
            self._lifter.rows.sort_into(unfolded.by_window, partials.pairs, partials.windows)
        is_light = _are_numbers([value for _, value in partials.pairs[:_SAMPLE]])
        unfolded.weight += partials.records * (1 if is_light else _OTHERS_WEIGHT)
        if unfolded.weight >= WAITING_MAX:
            self.fold()

    def fold(self) -> None:
        """Fold the records that wait.  Raises what `add` raises."""
        unfolded, self._unfolded = self._unfolded, _Unfolded()
        if not unfolded.weight:
            return
        assert isinstance(self._lifter, Lifter)
        for window, groups in unfolded.by_window.items():
            self._lifter.rows.fold_into(self._folded[window], groups)
        if unfolded.pairs:
            self._folds.append(self._lifter.rows.partials(unfolded.pairs, unfolded.in_order()))
        kept = chain(self._folded.values(), self._folds, [self._listed])
        self._folded_size = sum(map(len, kept))

    def counted(self) -> Iterator[tuple[Any, Window, int]]:
        """Key, window and number of the records in the table, which does not change; merging windows come in parts."""
        unfolded = self._unfolded
        if self._occurrences is not None:
            yield from ((key, GLOBAL_WINDOW, count) for key, count in self._occurrences.items())
        for window, folded in self._folded.items():
            yield from ((key, window, entry[1]) for key, entry in folded.items())
        for window, groups in unfolded.by_window.items():
            yield from ((key, window, len(values)) for key, values in groups.items())
        for (key, _), window in zip(unfolded.pairs, unfolded.in_order(), strict=True):
            yield key, window, 1
        for partial in chain(self._listed, *self._folds):
            yield partial[0], partial[1], self._net_count(partial)

    def _net_count(self, partial: Partial) -> int:
        if isinstance(self._lifter, StatefulInputs):
            return self._lifter.net_count(partial)
        return partial[3]

    def is_of_numbers(self) -> bool:
        """Whether more records would not make accumulators larger, judging by their types: all are a few numbers."""
        entries = chain.from_iterable(folded.values() for folded in self._folded.values())
        return _are_numbers([entry[0] for entry in entries]) and _are_numbers(
            [partial[2] for partial in chain(self._listed, *self._folds)]
        )

    def take(self) -> list[Partial]:
        """Remove and return all partials.  Raises what `add` raises."""
        self.fold()
        taken = list(self._in_table())
        counted = [] if self._occurrences is None else self._occurrences.take()
        if self._folds and not self._listed:
            assert isinstance(self._lifter, Lifter)
            taken = self._lifter.merging.combined_parts(self._folds)
        elif self._folds or self._listed or (taken and counted):
            taken = self._combined([*taken, *counted, *chain(self._listed, *self._folds)])
        else:
            taken += counted
        self._folded.clear()
        self._folds, self._listed = [], []
        self.records = self._folded_size = 0
        return taken

    def _combined(self, partials: list[Partial]) -> list[Partial]:
        if isinstance(self._lifter, StatefulInputs):
            return self._lifter.combined(partials)
        return self._lifter.merging.combined(partials)

    def _in_table(self) -> Iterator[Partial]:
        return (
            (key, window, accumulator, count)
            for window, folded in self._folded.items()
            for key, (accumulator, count) in folded.items()
        )


class _Unfolded:
    """Records that wait to be folded: by window and key, or in the order of arrival where windows merge."""

    def __init__(self) -> None:
        self.weight = 0
        self.by_window = ValuesByKey()
        self.pairs: list[tuple[Any, Any]] = []
        #: Of the pairs, bundle by bundle.
        self.windows: list[Sequence[Window]] = []

    def in_order(self) -> Sequence[Window]:
        """The windows of the pairs; columns, where all of them are."""
        columns = [each for each in self.windows if isinstance(each, WindowColumn)]
        if columns and len(columns) == len(self.windows):
            return WindowColumn(
                np.concatenate([each.starts_us for each in columns]),
                np.concatenate([each.ends_us for each in columns]),
            )
        return list(chain.from_iterable(self.windows))


def _are_numbers(values: Sequence[Any]) -> bool:
    kinds = set(map(type, values))
    several = kinds & _SEVERAL
    if not several:
        return kinds <= _NUMBERS
    if not kinds - several <= _NUMBERS:
        return False
    containers = [value for value in values if type(value) in several]
    return max(map(len, containers)) <= _NUMBERS_MAX and _are_numbers([*chain(*containers)])
