"""Lifter: makes the partials of bundles, as columns where all that is needed for it is columns, and else as rows.

What it uses can be used by itself: `RowFolding`, `PartialMerging`, and `lifted_columns`.
Where records may be retracted, inputs carry their sign.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dataflow.columns import IntColumn, PairColumns, picked
from dataflow.errors import KeyEncodingError
from dataflow.graph import PipelineGraph, TransformNode
from dataflow.metric_updates import RunningAs
from runners.core.columns.partials import lifted_columns
from runners.core.ground.bundle import Bundle
from runners.core.ground.pairs import refuse_other_than_pairs
from runners.core.partials.failures import not_folded, refused
from runners.core.partials.folding import Accumulation
from runners.core.partials.merging import PartialMerging
from runners.core.partials.partial import Partial
from runners.core.partials.parts import together
from runners.core.partials.row_folding import RowFolding
from runners.core.partials.unfolded import UnfoldedPartials
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window_columns import Int64s

_PAIRS = frozenset((tuple,))


class Lifter:
    """Builds the partials for one grouping.

    Args:
        node: the grouping, for messages.
        accumulation: how its values are folded.
    """

    def __init__(self, node: TransformNode, accumulation: Accumulation) -> None:
        self._node, self._accumulation = node, accumulation
        #: Merges partials, and windows.
        self.merging = PartialMerging(node, accumulation)
        #: Folds records that are no columns.
        self.rows = RowFolding(node, accumulation, self.merging)
        #: The functions that fold records as columns; None where that is not possible.
        self.combiners = self.merging.combiners

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
                with RunningAs(self._node.label):
                    pairs, windows, late = self.rows.without_late(pairs, bundle, watermark_us)
        except (KeyEncodingError, TypeError, ValueError) as error:
            raise refused(self._node, bundle.values, error) from error
        partials = UnfoldedPartials(pairs, windows, self.rows.partials)
        return [*partials, *late] if late else partials

    def _lifted_columns(self, bundle: Bundle, watermark_us: int) -> Sequence[Partial] | None:
        assert self.combiners is not None
        times = bundle.timestamps_us
        if not isinstance(times, IntColumn):
            return None
        if int(times.array.min(initial=watermark_us)) >= watermark_us:
            try:
                with RunningAs(self._node.label):
                    return lifted_columns(
                        bundle, self.combiners, is_merging=self.merging.is_of_overlaps
                    )
            except Exception as error:
                raise not_folded(self._node, bundle.values, error) from error
        behind = times.array < watermark_us
        in_time, late = np.flatnonzero(~behind), np.flatnonzero(behind)
        if not len(in_time):
            return None
        parts = (_only(bundle, in_time), _only(bundle, late))
        return together([self.lift(each, watermark_us=watermark_us) for each in parts])


def _only(bundle: Bundle, indexes: Int64s) -> Bundle:
    return bundle.take(indexes, picked(bundle.values, indexes))
