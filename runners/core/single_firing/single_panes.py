"""SinglePanes: the panes of a grouping whose windows all fire once, without a cell and a timer for each window.

`GroupAlsoByWindow` would emit one pane for each key and window, at the end of the window, in the order of the ends.  So
does this class, and in columns where all partials are columns; tests compare the two.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.columns import IntColumn, PairColumns
from dataflow.errors import DataflowError
from dataflow.graph import Group, PipelineGraph, TransformNode
from dataflow.typed_keys import emitted_keys
from runners.core.columns.checks import checked_results
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.partials.folding import Accumulation
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from runners.core.single_firing.window_slices import WindowSlices
from triggers.default_trigger import DefaultTrigger
from triggers.timestamp_combiner import TimestampCombiner
from triggers.windowing_strategy import WindowingStrategy

#: The most panes in one bundle, and the most where they are columns.
BUNDLE_PANES = 10_000
BUNDLE_PANE_COLUMNS = 200_000


class SinglePanes:
    """Makes the panes of the windows of one grouping, if each window fires once.

    Args:
        node: the grouping.
        accumulation: how it folds its records.
        is_of_slices: whether the partials are those of slices of the windows.
    """

    def __init__(
        self, node: TransformNode, accumulation: Accumulation, *, is_of_slices: bool = False
    ) -> None:
        self.lifter, self._accumulation = Lifter(node, accumulation), accumulation
        self._where = str(node)
        #: Whether accumulators are lists of values.
        self.is_list = accumulation.is_list
        #: Makes windows of their slices; None where the partials are those of windows.
        self.slices: WindowSlices | None = None
        if is_of_slices:
            window_fn = accumulation.strategy.window_fn
            self.slices = WindowSlices(window_fn, self.lifter.merging.accumulator)

    @classmethod
    def of_replay(
        cls, graph: PipelineGraph, node: TransformNode, *, is_of_slices: bool = False
    ) -> "SinglePanes | None":
        """The panes of a grouping of the graph, if its windows fire once when all of its input is replayed.

        Args:
            graph: of the pipeline.
            node: the grouping.
            is_of_slices: see the class.
        """
        accumulation = _firing_once(graph, node)
        if accumulation is None:
            return None
        return cls(node, accumulation, is_of_slices=is_of_slices)

    @classmethod
    def of_stream(cls, graph: PipelineGraph, node: TransformNode) -> "SinglePanes | None":
        """The panes of a grouping, if its windows fire once whenever input comes, and can be buffered.

        Windows that merge cannot be buffered so: every new partial would have to be compared with all that are kept.

        Args:
            graph: of the pipeline.
            node: the grouping.
        """
        accumulation = _firing_once(graph, node)
        if accumulation is None or not _ends_with_its_window(accumulation.strategy):
            return None
        return cls(node, accumulation)

    def bundles(self, parts: Iterable[Sequence[Partial]]) -> Iterator[Bundle]:
        """The panes of windows of which these are all the partials.

        Args:
            parts: columns, or rows, which may be changed.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        columns, rows = list[PartialColumns](), list[Partial]()
        for part in parts:
            if isinstance(part, PartialColumns):
                columns.append(part)
            else:
                rows.extend(part)
        if columns and not rows:
            merged = self.lifter.merging.columns(columns)
            if merged is not None:
                yield from self._of_columns(merged)
                return
        for part in columns:
            rows.extend(part)
        yield from self._of_rows(self.lifter.merging.combined(rows))

    def bundle(self, partials: Sequence[Partial]) -> Bundle:
        """The panes of windows of which these are all the partials, one for each window of a key."""
        keys = emitted_keys([key for key, _, _, _ in partials])
        results = self._accumulation.last_results([each for _, _, each, _ in partials])
        windows = [window for _, window, _, _ in partials]
        return Bundle(
            list(zip(keys, results, strict=True)),
            [window[1] - 1 for window in windows],
            windows,
        )

    def _of_columns(self, partials: PartialColumns) -> Iterator[Bundle]:
        parts = None if self.slices is None else self.slices.columns(partials)
        if self.slices is None:
            yield from self._in_columns(partials)
        elif parts is None:
            yield from self._of_rows(list(partials))
        else:
            for part in parts:
                merged = self.lifter.merging.columns([part])
                if merged is None:
                    yield from self._one_by_one(self.lifter.merging.combined(part))
                else:
                    yield from self._in_columns(merged)

    def _of_rows(self, partials: list[Partial]) -> Iterator[Bundle]:
        if self.slices is None:
            yield from self._one_by_one(partials)
            return
        partials.sort(key=_start_us)
        yield from map(self.bundle, in_bundles(self.slices.windows(partials)))

    def _in_columns(self, partials: PartialColumns) -> Iterator[Bundle]:
        order = np.argsort(partials.windows.ends_us, kind="stable")
        for start in range(0, len(order), BUNDLE_PANE_COLUMNS):
            part = partials.take(order[start : start + BUNDLE_PANE_COLUMNS])
            # No panes: the default pane is that of a window which fires only once.
            yield Bundle(
                PairColumns(part.keys, self._results(part), is_single=part.is_single),
                IntColumn(part.windows.ends_us - 1),
                part.windows,
            )

    def _results(self, part: PartialColumns) -> tuple[pa.Array, ...]:
        pairs = zip(part.combiners, part.accumulators, strict=True)
        try:
            return tuple(
                [checked_results(each, each.results(found), len(part)) for each, found in pairs]
            )
        except DataflowError as error:
            raise error.located(self._where) from error

    def _one_by_one(self, partials: list[Partial]) -> Iterator[Bundle]:
        partials.sort(key=_end_us)
        yield from map(self.bundle, in_bundles(iter(partials)))


def in_bundles(partials: Iterator[Partial]) -> Iterator[Sequence[Partial]]:
    """Partials in lists, each with as many as a bundle has panes.

    Args:
        partials: one for each pane.
    """
    while part := list(islice(partials, BUNDLE_PANES)):
        yield part


def _firing_once(graph: PipelineGraph, node: TransformNode) -> Accumulation | None:
    if not isinstance(node.operation, Group):
        return None
    accumulation = Accumulation.of(graph, node)
    strategy = accumulation.strategy
    fires_once = (
        type(strategy.trigger) is DefaultTrigger
        and not strategy.is_retracting
        and not accumulation.is_retracted
        and not accumulation.passes_on
        and strategy.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
    )
    return accumulation if fires_once else None


def _ends_with_its_window(strategy: WindowingStrategy) -> bool:
    """Whether a window keeps nothing, and emits nothing, after the watermark has passed its end."""
    return (
        not strategy.is_merging
        and strategy.allowed_lateness_us == 0
        and not strategy.follows_percentile
    )


def _end_us(partial: Partial) -> Any:
    return partial[1][1]


def _start_us(partial: Partial) -> tuple[int, int]:
    window = partial[1]
    return window[0], window[1]
