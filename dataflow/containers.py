"""Combine functions that put all values into a list, a set or a dict.

They must fit into memory.  Where values may be retracted they are counted, and must be hashable; the container is made
anew for each pane.
"""

from collections.abc import Iterable
from typing import Any

from dataflow.combine_fn import CombineFn, ListCombineFn
from dataflow.element_digests import element_digest


class ToListCombineFn(ListCombineFn):
    """All values in a list, whose order means nothing.  Beam's ``ToListCombineFn``.

    Unlike the values of `GroupByKey` it is always a list, in memory.
    """


class ToSetCombineFn(CombineFn):
    """The distinct values in a set; values must be hashable.  Beam's ``ToSetCombineFn``."""

    def create_accumulator(self) -> set[Any]:
        """An empty set."""
        return set()

    def add_input(self, accumulator: set[Any], value: Any) -> set[Any]:
        """Add."""
        accumulator.add(value)
        return accumulator

    def add_inputs(self, accumulator: set[Any], values: Iterable[Any]) -> set[Any]:
        """Add all."""
        accumulator.update(values)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[set[Any]]) -> set[Any]:
        """The union."""
        iterator = iter(accumulators)
        merged = next(iterator, set())
        return merged.union(*iterator)

    def extract_output(self, accumulator: set[Any]) -> set[Any]:
        """A copy: the accumulator goes on growing after the pane is emitted."""
        return set(accumulator)


class ToDictCombineFn(CombineFn):
    """Pairs ``(key, value)`` in a dict; keys must be hashable.  Beam's ``ToDictCombineFn``.

    Of several values of one key a digest of the value decides which is kept: it means nothing, but is the same in every
    run and in every order.  Combine the values of each key first where that matters.
    """

    def create_accumulator(self) -> dict[Any, Any]:
        """An empty dict."""
        return {}

    def add_input(self, accumulator: dict[Any, Any], value: tuple[Any, Any]) -> dict[Any, Any]:
        """Put the pair in, unless another value of the key is to be kept."""
        key, new = value
        if key in accumulator:
            new = max(accumulator[key], new, key=element_digest)
        accumulator[key] = new
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
        """Put all pairs into one."""
        iterator = iter(accumulators)
        merged = next(iterator, {})
        for other in iterator:
            merged = self.add_inputs(merged, other.items())
        return merged

    def extract_output(self, accumulator: dict[Any, Any]) -> dict[Any, Any]:
        """A copy: the accumulator goes on growing after the pane is emitted."""
        return dict(accumulator)
