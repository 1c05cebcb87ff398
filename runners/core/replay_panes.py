"""ReplayPanes: a grouping whose windows all speak once, when all input is there.

That is a replay (Dataflow Model, section 2.4) with the default trigger, without retractions: nothing is late, and the
machine (`GroupAlsoByWindow`) would say one pane for each key and window, at the end of the window, in the order of
these.  So does this, without a cell and a timer for each, and in columns where all partials are; a test holds one
against the other.

What does not fit is the caller's to keep elsewhere: `release` gives it back, `order` and `joined` put what was kept of
one key together again, and `bundle` says it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dataflow.columns import IntColumn, PairColumns
from dataflow.graph import Group, PipelineGraph, TransformNode
from runners.core.accumulation import Accumulation
from runners.core.bundle import Bundle
from runners.core.column_partials import PartialColumns
from runners.core.partials import Lifter, Partial
from triggers.default_trigger import DefaultTrigger
from triggers.timestamp_combiner import TimestampCombiner

#: Panes in one bundle, and the same where they are columns.
BUNDLE_PANES = 10_000
BUNDLE_PANE_COLUMNS = 200_000


class ReplayPanes:
    """Holds partials until all of them are there.

    Args:
        node: the grouping.
        accumulation: how it folds its records.
    """

    def __init__(self, node: TransformNode, accumulation: Accumulation) -> None:
        self._lifter, self._accumulation = Lifter(node, accumulation), accumulation
        #: Whether accumulators are lists of values; any other sequence may stand for one in `bundle`.
        self.is_list = accumulation.is_list
        #: What to sort the partials of a key by for `joined`; None where that cannot be.
        self.order = self._lifter.order
        self._partials: list[Partial] = []
        self._columns: list[PartialColumns] = []

    @classmethod
    def of(cls, graph: PipelineGraph, node: TransformNode) -> "ReplayPanes | None":
        """Those of a grouping of the graph, if its windows speak once when all of its input is replayed."""
        if not isinstance(node.operation, Group):
            return None
        accumulation = Accumulation.of(graph, node)
        strategy = accumulation.strategy
        speaks_once = (
            type(strategy.trigger) is DefaultTrigger
            and not strategy.is_retracting
            and not accumulation.is_retracted
            and strategy.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
        )
        return cls(node, accumulation) if speaks_once else None

    def hold(self, partials: Sequence[Partial]) -> None:
        """Take partials in."""
        if isinstance(partials, PartialColumns):
            self._columns.append(partials)
        else:
            self._partials.extend(partials)

    def fold(self) -> Sequence[Sequence[Partial]]:
        """Make as few partials of those that are held as can be; what is held then.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if len(self._columns) > 1:
            merged = self._lifter.merged_columns(self._columns)
            if merged is None:
                self._release_columns()
            else:
                self._columns = [merged]
        self._partials = self._lifter.combined(self._partials)
        return [part for part in (*self._columns, self._partials) if part]

    def release(self) -> list[Sequence[Partial]]:
        """Give back what is held."""
        held: list[Sequence[Partial]] = [*self._columns, self._partials]
        self._partials, self._columns = [], []
        return held

    def joined(
        self, partials: Iterable[Partial], join: Callable[[Any, Any], Any]
    ) -> Iterator[Partial]:
        """The partials of one key, sorted by `order`, as one for each window; see `Lifter.joined`."""
        return self._lifter.joined(partials, join)

    def merged(self, accumulators: Sequence[Any]) -> Any:
        """One accumulator that says what all of them say; may change the first.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        return self._lifter.merge(accumulators)

    def bundle(self, partials: Sequence[Partial]) -> Bundle:
        """What windows say of which these are all that there is."""
        result = self._accumulation.last_result
        return Bundle(
            [(key, result(accumulator)) for key, _, accumulator, _ in partials],
            [window.max_timestamp_us for _, window, _, _ in partials],
            [window for _, window, _, _ in partials],
        )

    def bundles(self) -> Iterator[Bundle]:
        """What the windows say; nothing is held afterwards.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if self._columns and not self._partials:
            merged = self._lifter.merged_columns(self._columns)
            if merged is not None:
                self._columns = []
                yield from _said_in_columns(merged)
                return
        self._release_columns()
        partials = self._lifter.combined(self._partials)
        self._partials = []
        yield from self._said(partials)

    def _release_columns(self) -> None:
        for columns in self._columns:
            self._partials.extend(columns)
        self._columns = []

    def _said(self, partials: list[Partial]) -> Iterator[Bundle]:
        partials.sort(key=_end_us)
        left = iter(partials)
        while part := list(islice(left, BUNDLE_PANES)):
            yield self.bundle(part)


def _end_us(partial: Partial) -> Any:
    return partial[1][1]


def _said_in_columns(partials: PartialColumns) -> Iterator[Bundle]:
    order = np.argsort(partials.windows.ends_us, kind="stable")
    for start in range(0, len(order), BUNDLE_PANE_COLUMNS):
        part = partials.take(order[start : start + BUNDLE_PANE_COLUMNS])
        pairs = zip(part.combiners, part.accumulators, strict=True)
        results = tuple(each.results(found) for each, found in pairs)
        # No panes: that of elements without one is that of a window's only firing.
        yield Bundle(
            PairColumns(part.keys, results, is_single=part.is_single),
            IntColumn(part.windows.ends_us - 1),
            part.windows,
        )
