"""ReplayPanes: a grouping whose windows all fire once, when all input is there (Dataflow Model, section 2.4).

The caller keeps elsewhere what does not fit into memory: `release` returns it, `order` and `joined` merge what was kept
of one key again, and `bundle` makes the panes of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dataflow.graph import PipelineGraph, TransformNode
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.partials.partial import Partial
from runners.core.single_firing.single_panes import SinglePanes


class ReplayPanes:
    """Keeps partials until all of them are there.

    Args:
        panes: makes the panes then.
    """

    def __init__(self, panes: SinglePanes) -> None:
        self._panes, self._merging = panes, panes.lifter.merging
        #: Whether accumulators are lists of values; `bundle` then takes any other sequence in place of a list.
        self.is_list = panes.is_list
        #: The sort key for the partials of a key that `joined` takes; None where they cannot be sorted for it.
        self.order = self._merging.order
        self._partials: list[Partial] = []
        self._columns: list[PartialColumns] = []

    @classmethod
    def of(cls, graph: PipelineGraph, node: TransformNode) -> "ReplayPanes | None":
        """The panes of a grouping of the graph, if its windows fire once when all of its input is replayed.

        Args:
            graph: of the pipeline.
            node: the grouping.
        """
        panes = SinglePanes.of_replay(graph, node)
        return None if panes is None else cls(panes)

    def hold(self, partials: Sequence[Partial]) -> None:
        """Add partials."""
        if isinstance(partials, PartialColumns):
            self._columns.append(partials)
        else:
            self._partials.extend(partials)

    def fold(self) -> Sequence[Sequence[Partial]]:
        """Merge the partials that are kept into as few as possible, and return them.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        if len(self._columns) > 1:
            merged = self._merging.columns(self._columns)
            if merged is None:
                for columns in self._columns:
                    self._partials.extend(columns)
            self._columns = [] if merged is None else [merged]
        self._partials = self._merging.combined(self._partials)
        return [part for part in (*self._columns, self._partials) if part]

    def release(self) -> list[Sequence[Partial]]:
        """Return all partials, and keep none."""
        batches: list[Sequence[Partial]] = [*self._columns, self._partials]
        self._partials, self._columns = [], []
        return batches

    def joined(
        self, partials: Iterable[Partial], join: Callable[[Any, Any], Any]
    ) -> Iterator[Partial]:
        """Merge the partials of one key, sorted by `order`, into one for each window; see `PartialMerging.joined`.

        Args:
            partials: all of one key.
            join: makes one of two accumulators, and may change the first.
        """
        return self._merging.joined(partials, join)

    def merged(self, accumulators: Sequence[Any]) -> Any:
        """Merge accumulators into one; may change the first.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        return self._merging.accumulator(accumulators)

    def bundle(self, partials: Sequence[Partial]) -> Bundle:
        """The panes of windows of which these are all the partials, one for each window of a key."""
        return self._panes.bundle(partials)

    def bundles(self) -> Iterator[Bundle]:
        """The panes of all partials that are kept; none is kept afterwards.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        columns, partials = self._columns, self._partials
        self._columns, self._partials = [], []
        yield from self._panes.bundles(columns, partials)
