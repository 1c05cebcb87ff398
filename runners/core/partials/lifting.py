"""Partials: what goes through the shuffle to a grouping, accumulated as far as one bundle allows (lifted combines).

A partial is ``(key, window, accumulator, count)``, and its key is canonical (`dataflow.canonical_keys`).
Merging windows are merged here as well: proto-sessions of one bundle merge associatively.

Where records may be retracted, inputs carry their sign, and windows that merge stay apart until they are grouped,
because a merge may have to be undone.

A record already behind the watermark stays a partial of its own, and carries the record along (`LatePartial`): it may
turn out to be too late, and then the *record* is what must be kept.  Records ahead of the watermark hold it back until
they are delivered, so they cannot become late on the way.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dataflow.canonical_keys import canonical_key
from dataflow.columns import IntColumn, PairColumns, picked
from dataflow.errors import DataflowError, KeyEncodingError, TransformError
from dataflow.graph import PipelineGraph, TransformNode
from runners.core.columns.partials import PartialColumns, lifted_columns, merged_columns
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import LateElement
from runners.core.ground.pairs import refuse_other_than_pairs
from runners.core.partials.folding import Accumulation
from runners.core.partials.groups import Group, by_window_and_key, chains
from runners.core.partials.parts import together
from runners.core.partials.unfolded import Pairs, UnfoldedPartials, Windows
from runners.core.partials.values_by_key import ValuesByKey
from windowing.checks import checked_merges
from windowing.merging import merges_what_overlaps
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW, Window
from windowing.window_columns import Int64s
from windowing.window_fn import Merge, MergingWindowFn

Partial = tuple[Any, Window, Any, int]


class LatePartial(tuple[Any, Window, Any, int]):  # noqa: SLOT001 - tuples cannot have any
    """A partial of one record that was behind the watermark, with the record as it was before it was folded."""

    record: LateElement

    @classmethod
    def of(cls, partial: Partial, record: LateElement) -> "LatePartial":
        """A late partial of a partial and its record.

        Args:
            partial: of one record.
            record: as it was before it was folded.
        """
        late = cls(partial)
        late.record = record
        return late


_PAIRS = frozenset((tuple,))
#: By key: accumulator, and number of records.
Folded = dict[Any, list[Any]]


class Lifter:
    """Builds the partials for one grouping.

    Args:
        node: the grouping, for messages.
        accumulation: how its values are folded.
    """

    def __init__(self, node: TransformNode, accumulation: Accumulation) -> None:
        self._node, self._accumulation = node, accumulation
        self._combine_fn = accumulation.partial_fn
        window_fn = accumulation.strategy.window_fn
        can_merge = isinstance(window_fn, MergingWindowFn) and not accumulation.is_retracted
        self._merging: MergingWindowFn | None = window_fn if can_merge else None  # type: ignore[assignment]
        self._is_overlap_merging = can_merge and merges_what_overlaps(window_fn)
        #: The functions that fold records as columns; None where that is not possible.
        self.combiners = accumulation.column_combiners
        if isinstance(window_fn, MergingWindowFn) and not self._is_overlap_merging:
            self.combiners = None

    @property
    def is_merging(self) -> bool:
        """Whether windows merge, so that partials of one window may belong to another."""
        return self._is_overlap_merging or self._merging is not None

    @property
    def sign_of(self) -> Callable[[Any], int] | None:
        """A function that returns the sign of an input of `UnfoldedPartials`: -1 if it retracts a record, +1 otherwise.

        None where no record is ever retracted.
        """
        return self._accumulation.sign_of

    @classmethod
    def of(cls, graph: PipelineGraph, node: TransformNode) -> "Lifter":
        """The lifter of a grouping of the graph.

        Args:
            graph: of the pipeline.
            node: the grouping.
        """
        return cls(node, Accumulation.of(graph, node))

    def lift(self, bundle: Bundle, *, watermark_us: int) -> Sequence[Partial]:
        """Make the partials of a bundle of ``(key, value)`` pairs.

        They are columns (`PartialColumns`) where possible, and otherwise mostly not folded before they are read
        (`UnfoldedPartials`).

        Args:
            bundle: the elements.
            watermark_us: the input watermark, in microseconds.

        Raises:
            TransformError: an element is not a pair, or a key cannot be hashed; also when the partials are read.
            KeyEncodingError: something cannot be a key; likewise.
        """
        if self.combiners is not None and isinstance(bundle.values, PairColumns):
            found = self._lifted_columns(bundle, watermark_us)
            if found is not None:
                return found
        if not bundle.kinds <= _PAIRS:
            refuse_other_than_pairs(self._node, bundle.values)
        late: list[Partial] = []
        try:
            pairs, windows = self._accumulation.pairs(bundle), bundle.windows
            # No event time is before the minimum.
            if (
                watermark_us > MIN_TIMESTAMP_US
                and min(bundle.timestamps_us, default=watermark_us) < watermark_us
            ):
                pairs, windows, late = self._without_late(pairs, bundle, watermark_us)
        except KeyEncodingError as error:
            raise error.located(str(self._node)) from None
        except (TypeError, ValueError) as error:
            raise self._refused(bundle.values, error) from error
        partials = UnfoldedPartials(pairs, windows, self.partials)
        return [*partials, *late] if late else partials

    def partials(self, pairs: Pairs, windows: Windows) -> list[Partial]:
        """The partials of records as `lift` has left them.  Raises what `lift` raises.

        Args:
            pairs: keys, and inputs of the combine function.
            windows: of the pairs; None for the global window.
        """
        return [
            (key, window, self._folded(values), len(values))
            for key, window, values in self._groups(pairs, windows)
        ]

    def _groups(self, pairs: Pairs, windows: Windows) -> Iterable[Group]:
        """The values of each key and window, after merging."""
        if self._is_overlap_merging and windows is not None:
            try:
                return chains([key for key, _ in pairs], windows, [value for _, value in pairs])
            except KeyEncodingError as error:
                raise error.located(str(self._node)) from None
            except (TypeError, ValueError) as error:
                raise self._refused(pairs, error) from error
        by_window = ValuesByKey()
        self.sort_into(by_window, pairs, windows)
        found = (
            (key, window, values)
            for window, groups in by_window.items()
            for key, values in groups.items()
        )
        return found if self._merging is None else self._merged(found)

    def sort_into(self, waiting: ValuesByKey, pairs: Pairs, windows: Windows) -> None:
        """Add each value to the others of its canonical key and window, in new lists where there are none.

        Args:
            waiting: receives the values.
            pairs: keys and values.
            windows: of the pairs; None for the global window.

        Raises:
            TransformError: an element is not a pair, or a key cannot be hashed.
            KeyEncodingError: something cannot be a key.
        """
        try:
            waiting.add(pairs, windows)
        except KeyEncodingError as error:
            raise error.located(str(self._node)) from None
        except (TypeError, ValueError) as error:
            raise self._refused(pairs, error) from error

    def fold_into(self, entries: Folded, groups: Mapping[Any, Sequence[Any]]) -> None:
        """Fold more values of some keys into their accumulators.

        Args:
            entries: accumulator and number of records by key; changed in place.
            groups: values by key.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        create, add = self._combine_fn.create_accumulator, self._combine_fn.add_inputs
        values: Sequence[Any] = ()
        try:
            for key, values in groups.items():
                entry = entries.get(key)
                if entry is None:
                    entries[key] = [add(create(), values), len(values)]
                else:
                    entry[0] = add(entry[0], values)
                    entry[1] += len(values)
        except Exception as error:
            raise self._not_folded(values, error) from error

    def _lifted_columns(self, bundle: Bundle, watermark_us: int) -> Sequence[Partial] | None:
        assert self.combiners is not None
        times = bundle.timestamps_us
        if not isinstance(times, IntColumn):
            return None
        if int(times.array.min(initial=watermark_us)) >= watermark_us:
            try:
                return lifted_columns(bundle, self.combiners, is_merging=self._is_overlap_merging)
            except Exception as error:
                raise self._not_folded(bundle.values, error) from error
        behind = times.array < watermark_us
        in_time, late = np.flatnonzero(~behind), np.flatnonzero(behind)
        if not len(in_time):
            return None
        parts = (_only(bundle, in_time), _only(bundle, late))
        return together([self.lift(each, watermark_us=watermark_us) for each in parts])

    def merged_columns(self, partials: Sequence[PartialColumns]) -> PartialColumns | None:
        """Partials of several bundles, merged into fewer; None if `combined` has to merge them.

        Raises:
            TransformError: a `ColumnCombineFn` failed.
        """
        if not partials or self.combiners is None:
            return None
        try:
            return merged_columns(partials, is_merging=self._is_overlap_merging)
        except Exception as error:
            raise self._not_merged(error) from error

    def combined(self, partials: Iterable[Partial]) -> list[Partial]:
        """Merge the partials of several bundles into fewer ones with the same results, to be sent together.

        Not for records behind the watermark, which `lift` keeps apart.  May change the accumulators given.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if self._is_overlap_merging:
            partials = list(partials)
            keys, windows = [each[0] for each in partials], [each[1] for each in partials]
            return [self._as_one(*chain) for chain in chains(keys, windows, partials)]
        by_window = by_window_and_key(partials)
        if self._merging is not None:
            groups = (
                (key, window, entries if type(entries) is list else [entries])
                for window, by_key in by_window.items()
                for key, entries in by_key.items()
            )
            return [self._as_one(*group) for group in self._merged(groups)]
        return [
            self._as_one(key, window, entries) if type(entries) is list else entries
            for window, by_key in by_window.items()
            for key, entries in by_key.items()
        ]

    def _as_one(self, key: Any, window: Window, entries: Sequence[Partial]) -> Partial:
        if len(entries) == 1 and entries[0][1] == window:
            return entries[0]
        accumulator = self.merge([each[2] for each in entries])
        return key, window, accumulator, sum([each[3] for each in entries])

    @property
    def order(self) -> Callable[[Partial], tuple[int, int]] | None:
        """The sort key for the partials of a key that `joined` takes; None where they cannot be sorted for it."""
        if self._is_overlap_merging:
            return _start_first
        return _end_first if self._merging is None else None

    def joined(
        self, partials: Iterable[Partial], join: Callable[[Any, Any], Any]
    ) -> Iterator[Partial]:
        """Merge sorted partials of one key into one for each remaining window; windows come in the order of their ends.

        Args:
            partials: all of one key, sorted by `order`; no more than those of one window are kept in memory.
            join: makes one of two accumulators, and may change the first.
        """
        found: dict[Window | None, Partial] = {}
        bounds: Window | None = None
        for partial in partials:
            if bounds is not None and not self._is_together(bounds, partial[1]):
                yield from found.values()
                found = {}
            place = None if self._is_overlap_merging else partial[1]
            found[place] = _both(found[place], partial, join) if place in found else partial
            bounds = found[place][1]
        yield from found.values()

    def _is_together(self, before: Window, window: Window) -> bool:
        """Whether a partial may belong to the same window as the one before it in `order`."""
        if self._is_overlap_merging:
            return window[0] < before[1]
        # Windows of a user's class may differ in more than their bounds.
        return before[:2] == window[:2]

    def _without_late(
        self,
        pairs: Sequence[tuple[Any, Any]],
        bundle: Bundle,
        watermark_us: int,
    ) -> tuple[list[tuple[Any, Any]], list[Window], list[Partial]]:
        """The pairs and windows that are not behind the watermark, and a partial for each record that is."""
        kept: list[tuple[Any, Any]] = []
        kept_windows: list[Window] = []
        late: list[Partial] = []
        signs = bundle.signs or [1] * len(bundle)
        windows = bundle.windows or [GLOBAL_WINDOW] * len(bundle)
        columns = zip(pairs, windows, bundle.values, bundle.timestamps_us, signs, strict=True)
        for pair, window, element, timestamp_us, sign in columns:
            key, value = pair
            if timestamp_us >= watermark_us:
                kept.append(pair)
                kept_windows.append(window)
            else:
                hash(key)  # nothing else looks at it here
                record = LateElement(element[1], timestamp_us, sign)
                late.append(
                    LatePartial.of((canonical_key(key), window, self._folded([value]), 1), record)
                )
        return kept, kept_windows, late

    def _merged(self, groups: Iterable[Group]) -> Iterator[Group]:
        """Join the values of windows that merge into one list, before anything is accumulated."""
        assert self._merging is not None
        by_key: dict[Any, dict[Window, list[Any]]] = defaultdict(dict)
        for key, window, found in groups:
            by_key[key][window] = found
        for key, by_window in by_key.items():
            if len(by_window) > 1:
                for merged, sources in self._merges(self._merging, list(by_window)):
                    several = [by_window.pop(source) for source in sources]
                    by_window[merged] = [each for found in several for each in found]
            for window, found in by_window.items():
                yield key, window, found

    def _merges(self, window_fn: MergingWindowFn, windows: Sequence[Window]) -> Sequence[Merge]:
        try:
            return checked_merges(window_fn, windows)
        except DataflowError as error:
            raise error.located(str(self._node)) from error

    def _folded(self, values: Sequence[Any]) -> Any:
        try:
            return self._combine_fn.add_inputs(self._combine_fn.create_accumulator(), values)
        except Exception as error:
            raise self._not_folded(values, error) from error

    def _not_folded(self, values: Sequence[Any], error: Exception) -> DataflowError:
        if isinstance(error, DataflowError):
            return error.located(str(self._node))
        return TransformError(
            f"{self._node} raised {type(error).__name__}: {error}",
            detail=f"while combining {len(values)} values, the first {values[0]!r}",
            hint="correct the CombineFn, or sort such values out before the grouping",
        )

    def _refused(self, elements: Sequence[Any], error: Exception) -> DataflowError:
        """The error for elements that are not pairs; the given error, located, if all are pairs."""
        try:
            refuse_other_than_pairs(self._node, elements)
        except TransformError as refused:
            return refused
        return TransformError(f"{self._node} raised {type(error).__name__}: {error}")

    def merge(self, accumulators: Sequence[Any]) -> Any:
        """Merge accumulators into one; may change the first.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if len(accumulators) == 1:
            return accumulators[0]
        try:
            return self._combine_fn.merge_accumulators(accumulators)
        except Exception as error:
            raise self._not_merged(error) from error

    def _not_merged(self, error: Exception) -> DataflowError:
        if isinstance(error, DataflowError):
            return error.located(str(self._node))
        return TransformError(
            f"{self._node} raised {type(error).__name__}: {error}",
            detail="while merging accumulators",
            hint="correct how the CombineFn merges accumulators",
        )


def _start_first(partial: Partial) -> tuple[int, int]:
    # Partials that start together stay in the order in which they came.
    return partial[1][0], 0


def _end_first(partial: Partial) -> tuple[int, int]:
    return partial[1][1], partial[1][0]


def _both(first: Partial, second: Partial, join: Callable[[Any, Any], Any]) -> Partial:
    key, window, accumulator, count = first
    if second[1] != window:
        window = Window(min(window[0], second[1][0]), max(window[1], second[1][1]))
    return key, window, join(accumulator, second[2]), count + second[3]


def _only(bundle: Bundle, indexes: Int64s) -> Bundle:
    return bundle.take(indexes, picked(bundle.values, indexes))
