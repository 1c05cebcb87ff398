"""CoGroupFn: the values of a group, apart by the collection that they come from."""

from collections.abc import Iterable
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn

#: A value, and the name of the collection that it comes from.
Tagged = tuple[str, Any]


@attrs.frozen
class CoGroupFn(CombineFn):
    """A list of values for each of several collections; inputs are `Tagged`.

    A value is put into the list of its collection once, when it comes, and not again with every pane.
    """

    names: tuple[str, ...]

    def create_accumulator(self) -> tuple[list[Any], ...]:
        """An empty list for each."""
        return tuple([[] for _ in self.names])

    def add_input(self, accumulator: tuple[list[Any], ...], value: Tagged) -> Any:
        """Append."""
        return self.add_inputs(accumulator, (value,))

    def add_inputs(self, accumulator: tuple[list[Any], ...], values: Iterable[Tagged]) -> Any:
        """Append each to its list."""
        append = {name: values.append for name, values in zip(self.names, accumulator, strict=True)}
        for name, value in values:
            append[name](value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[tuple[list[Any], ...]]) -> Any:
        """Concatenate list by list."""
        iterator = iter(accumulators)
        merged = next(iterator, None)
        if merged is None:
            return self.create_accumulator()
        for other in iterator:
            for values, more in zip(merged, other, strict=True):
                values.extend(more)
        return merged

    def extract_output(self, accumulator: tuple[list[Any], ...]) -> Any:
        """Copies of the lists, in the order of the names."""
        return tuple([list(values) for values in accumulator])
