"""ReplayPanes: a grouping whose windows all speak once, when all input is there (Dataflow Model, section 2.4).

What does not fit is the caller's to keep elsewhere: `release` gives it back, `order` and `joined` put what was kept of
one key together again, and `bundle` says it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dataflow.graph import PipelineGraph, TransformNode
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.partials.lifting import Partial
from runners.core.single_firing.single_panes import SinglePanes


class ReplayPanes:
    """Holds partials until all of them are there.

    Args:
        panes: what they say then.
    """

    def __init__(self, panes: SinglePanes) -> None:
        self._panes, self._lifter = panes, panes.lifter
        #: Whether accumulators are lists of values; any other sequence may stand for one in `bundle`.
        self.is_list = panes.is_list
        #: What to sort the partials of a key by for `joined`; None where that cannot be.
        self.order = self._lifter.order
        self._partials: list[Partial] = []
        self._columns: list[PartialColumns] = []

    @classmethod
    def of(cls, graph: PipelineGraph, node: TransformNode) -> "ReplayPanes | None":
        """The panes of a grouping of the graph, if its windows fire once when all of its input is replayed."""
        panes = SinglePanes.of_replay(graph, node)
        return None if panes is None else cls(panes)

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
                for columns in self._columns:
                    self._partials.extend(columns)
            self._columns = [] if merged is None else [merged]
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
        return self._panes.bundle(partials)

    def bundles(self) -> Iterator[Bundle]:
        """What the windows say; nothing is held afterwards.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        columns, partials = self._columns, self._partials
        self._columns, self._partials = [], []
        yield from self._panes.bundles(columns, partials)
