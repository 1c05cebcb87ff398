"""ColumnPanes: a grouping whose windows all speak once, when all input is there, and so can speak in columns.

That is a replay (Dataflow Model, section 2.4) with the default trigger, without retractions: nothing is late, and the
machine (`GroupAlsoByWindow`) would say one pane for each key and window, at the end of the window, in the order of
these.  So does this; a test holds one against the other.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dataflow.columns import IntColumn, PairColumns
from dataflow.graph import Group, PipelineGraph, TransformNode
from runners.core.bundle import Bundle
from runners.core.column_partials import PartialColumns
from runners.core.partials import Lifter
from triggers.default_trigger import DefaultTrigger
from triggers.timestamp_combiner import TimestampCombiner

#: Panes in one bundle.
BUNDLE_PANES = 200_000


class ColumnPanes:
    """Holds what has come in columns until all of it is there.

    Args:
        lifter: of the grouping.
    """

    def __init__(self, lifter: Lifter) -> None:
        self._lifter = lifter
        self._held: list[PartialColumns] = []

    @classmethod
    def of(cls, graph: PipelineGraph, node: TransformNode) -> "ColumnPanes | None":
        """Those of a grouping of the graph, if its windows speak once when all of its input is replayed."""
        if not isinstance(node.operation, Group):
            return None
        strategy = graph.pcollections[node.inputs[0]].strategy
        speaks_once = (
            type(strategy.trigger) is DefaultTrigger
            and not strategy.is_retracting
            and strategy.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
        )
        lifter = Lifter.of(graph, node)
        return cls(lifter) if speaks_once and lifter.combiners is not None else None

    def hold(self, partials: PartialColumns) -> None:
        """Take partials in."""
        self._held.append(partials)

    def release(self) -> Sequence[PartialColumns]:
        """Give back what was taken in; for whoever has to do without columns."""
        held, self._held = self._held, []
        return held

    def bundles(self) -> Iterator[Bundle] | None:
        """What the windows say; None, and nothing is changed, if columns do not suffice for that."""
        merged = self._lifter.merged_columns(self._held)
        if merged is None:
            return None if self._held else iter(())
        self._held = []
        return _said(merged)


def _said(partials: PartialColumns) -> Iterator[Bundle]:
    """As the timers of the windows would have them speak."""
    order = np.argsort(partials.windows.ends_us, kind="stable")
    for start in range(0, len(order), BUNDLE_PANES):
        part = partials.take(order[start : start + BUNDLE_PANES])
        pairs = zip(part.combiners, part.accumulators, strict=True)
        results = tuple(each.results(found) for each, found in pairs)
        # No panes: that of elements without one is that of a window's only firing.
        yield Bundle(
            PairColumns(part.keys, results, is_single=part.is_single),
            IntColumn(part.windows.ends_us - 1),
            part.windows,
        )
