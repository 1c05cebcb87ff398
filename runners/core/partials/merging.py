"""PartialMerging: merges partials of one grouping into fewer with the same results, in rows and in columns.

Merging windows are merged here: proto-sessions of one bundle merge associatively.  Where records may be retracted,
windows that merge stay apart until they are grouped, because a merge may have to be undone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, groupby
from operator import not_
from typing import Any

from dataflow.canonical_keys import CanonicalKeys, are_canonical
from dataflow.columns import WindowColumn
from dataflow.errors import DataflowError
from dataflow.graph import TransformNode
from dataflow.metric_updates import RunningAs
from runners.core.columns.partials import PartialColumns, merged_columns
from runners.core.partials.failures import not_merged
from runners.core.partials.folding import Accumulation
from runners.core.partials.groups import Group, by_window_and_key
from runners.core.partials.partial import Partial
from runners.core.partials.unfolded import Pairs
from windowing.checks import checked_merges
from windowing.merging import (
    chains,
    chains_in_order,
    joined_chains,
    merges_what_overlaps,
    reaching_into_others,
)
from windowing.window import Window
from windowing.window_fn import MergingWindowFn


class PartialMerging:
    """Merges the partials, and the windows, of one grouping.

    Args:
        node: the grouping.
        accumulation: how it folds its records.
    """

    def __init__(self, node: TransformNode, accumulation: Accumulation) -> None:
        self._node, self._combine_fn = node, accumulation.partial_fn
        window_fn = accumulation.strategy.window_fn
        self._window_fn: MergingWindowFn | None = None
        if isinstance(window_fn, MergingWindowFn) and not accumulation.is_retracted:
            self._window_fn = window_fn
        #: Whether windows merge, so that partials of one window may belong to another.
        self.is_merging = self._window_fn is not None
        #: Whether these are the windows that overlap.
        self.is_of_overlaps = self.is_merging and merges_what_overlaps(window_fn)
        self.combiners = accumulation.column_combiners
        if isinstance(window_fn, MergingWindowFn) and not self.is_of_overlaps:
            self.combiners = None

    def columns(self, partials: Sequence[PartialColumns]) -> PartialColumns | None:
        """Partials of several bundles, merged into fewer; None if `combined` has to merge them.

        Raises:
            TransformError: a `ColumnCombineFn` failed.
        """
        if not partials or self.combiners is None:
            return None
        try:
            with RunningAs(self._node.label):
                return merged_columns(partials, is_merging=self.is_of_overlaps)
        except Exception as error:
            raise not_merged(self._node, error) from error

    def combined(self, partials: Iterable[Partial]) -> list[Partial]:
        """Merge the partials of several bundles into fewer ones with the same results, to be sent together.

        Not for records behind the watermark, which `Lifter.lift` keeps apart.  May change the accumulators given.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        with RunningAs(self._node.label):
            return self._combined(partials)

    def combined_parts(self, parts: Sequence[list[Partial]]) -> list[Partial]:
        """Merge parts of partials, each of which is combined; where they follow each other in time little is looked at.

        Args:
            parts: at least one, and none is empty.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if len(parts) == 1:
            return parts[0]
        if not self.is_of_overlaps:
            return self.combined(chain(*parts))
        apart, touching = list[Partial](), list[Partial]()
        are_reaching = reaching_into_others([[each[1] for each in part] for part in parts])
        for part, is_reaching in zip(parts, are_reaching, strict=True):
            touching += compress(part, is_reaching)
            apart += compress(part, map(not_, is_reaching))
        return apart + self.combined(touching)

    def _combined(self, partials: Iterable[Partial]) -> list[Partial]:
        if self.is_of_overlaps:
            partials = list(partials)
            keys, windows = [each[0] for each in partials], [each[1] for each in partials]
            return joined_chains(keys, windows, partials, self.as_one)
        by_window = by_window_and_key(partials)
        if self._window_fn is not None:
            groups = (
                (key, window, entries if type(entries) is list else [entries])
                for window, by_key in by_window.items()
                for key, entries in by_key.items()
            )
            return [self.as_one(*group) for group in self.groups(groups)]
        return [
            self.as_one(key, window, entries) if type(entries) is list else entries
            for window, by_key in by_window.items()
            for key, entries in by_key.items()
        ]

    def as_one(self, key: Any, window: Window, entries: Sequence[Partial]) -> Partial:
        """Merge partials of a key into one.

        Args:
            key: theirs.
            window: of the one.
            entries: at least one partial; may be changed.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if len(entries) == 1 and entries[0][1] == window:
            return entries[0]
        accumulator = self.accumulator([each[2] for each in entries])
        return key, window, accumulator, sum([each[3] for each in entries])

    def accumulator(self, accumulators: Sequence[Any]) -> Any:
        """Merge accumulators into one; may change the first.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if len(accumulators) == 1:
            return accumulators[0]
        try:
            return self._combine_fn.merge_accumulators(accumulators)
        except Exception as error:
            raise not_merged(self._node, error) from error

    @property
    def order(self) -> Callable[[Partial], tuple[int, int]] | None:
        """The sort key for the partials of a key that `joined` takes; None where they cannot be sorted for it."""
        if self.is_of_overlaps:
            return _start_first
        return _end_first if self._window_fn is None else None

    def joined(
        self, partials: Iterable[Partial], join: Callable[[Any, Any], Any]
    ) -> Iterator[Partial]:
        """Merge sorted partials of one key into one for each remaining window; windows come in the order of their ends.

        Args:
            partials: all of one key, sorted by `order`; no more than those of one window are kept in memory.
            join: makes one of two accumulators, and may change the first.
        """
        both = _both_by(join)
        if self.is_of_overlaps:
            items = ((each[1], each) for each in partials)
            for window, (key, _, accumulator, count) in chains_in_order(items, both):
                yield key, window, accumulator, count
            return
        # Windows of a user's class may differ in more than their bounds.
        for _, together in groupby(partials, key=_end_first):
            found: dict[Window, Partial] = {}
            for each in together:
                window = each[1]
                found[window] = both(found[window], each) if window in found else each
            yield from found.values()

    def overlapping(self, pairs: Pairs, windows: Sequence[Window]) -> Iterator[Group]:
        """The values of each canonical key, in chains of windows that overlap.

        Args:
            pairs: keys and values.
            windows: of the pairs.

        Raises:
            KeyEncodingError: something cannot be a key.
            TypeError, ValueError: something is not a pair, or a key cannot be hashed.
        """
        keys = [key for key, _ in pairs]
        if not are_canonical(keys):
            canonical = CanonicalKeys()
            keys = [canonical[key] for key in keys]
        bounds_us = None
        if isinstance(windows, WindowColumn):
            bounds_us = windows.starts_us, windows.ends_us
        return chains(keys, windows, [value for _, value in pairs], bounds_us)

    def groups(self, groups: Iterable[Group]) -> Iterable[Group]:
        """Join the items of windows that merge into one list, before anything is accumulated.

        Raises:
            WindowError: the user's window function failed.
        """
        window_fn = self._window_fn
        return groups if window_fn is None else self._merged(window_fn, groups)

    def _merged(self, window_fn: MergingWindowFn, groups: Iterable[Group]) -> Iterator[Group]:
        by_key: dict[Any, dict[Window, list[Any]]] = defaultdict(dict)
        for key, window, found in groups:
            by_key[key][window] = found
        for key, by_window in by_key.items():
            if len(by_window) > 1:
                try:
                    merges = checked_merges(window_fn, list(by_window))
                except DataflowError as error:
                    raise error.located(str(self._node)) from error
                for merged, sources in merges:
                    several = [by_window.pop(source) for source in sources]
                    by_window[merged] = [each for found in several for each in found]
            for window, found in by_window.items():
                yield key, window, found


def _start_first(partial: Partial) -> tuple[int, int]:
    # Partials that start together stay in the order in which they came.
    return partial[1][0], 0


def _end_first(partial: Partial) -> tuple[int, int]:
    return partial[1][1], partial[1][0]


def _both_by(join: Callable[[Any, Any], Any]) -> Callable[[Partial, Partial], Partial]:
    """How two partials of a key become one, which has the window of the first."""

    def both(first: Partial, second: Partial) -> Partial:
        key, window, accumulator, count = first
        return key, window, join(accumulator, second[2]), count + second[3]

    return both
