"""CombineFn: aggregation as a commutative monoid, so that it can run before, during and after the shuffle.

**Laws**, for accumulators that say the same: merging is associative and commutative, `create_accumulator` is neutral,
and adding an input to an accumulator equals merging one made of that input alone.

Dataflow Model, section 2.2 (lifted combines as in FlumeJava).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import attrs

#: A `CallableCombineFn` folds its buffer when it has grown to this many values.
_BUFFER_VALUES_MAX = 64


class CombineFn(ABC):
    """Aggregates the values of one key and window.

    An accumulator is pickled between processes and into the store.
    ``add_input`` and ``merge_accumulators`` may change and return their first argument;
    ``extract_output`` may be called many times on a growing accumulator; it must not change it, nor return a part of it
    that goes on changing, because what was said is remembered to be taken back.
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """An accumulator of nothing."""

    @abstractmethod
    def add_input(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with one more value."""

    def add_inputs(self, accumulator: Any, values: Iterable[Any]) -> Any:
        """The accumulator with more values; override where a whole list is cheaper."""
        add = self.add_input
        for value in values:
            accumulator = add(accumulator, value)
        return accumulator

    @abstractmethod
    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """One accumulator that says what all of them say."""

    @abstractmethod
    def extract_output(self, accumulator: Any) -> Any:
        """The result so far."""

    def retract_input(self, accumulator: Any, value: Any) -> Any:
        """The accumulator without a value: the inverse of `add_input`, the paper's "uncombine".

        Optional.  Without it, where values may be taken back they are all kept, and folded anew for each pane.
        With it only the accumulator is.  A value may be taken out before it is put in, from an accumulator of nothing
        as well: both orders must end in the same.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define retract_input")


class ListCombineFn(CombineFn):
    """All values in a list: what `GroupByKey` combines with."""

    def create_accumulator(self) -> list[Any]:
        """An empty list."""
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Append."""
        accumulator.append(value)
        return accumulator

    def add_inputs(self, accumulator: list[Any], values: Iterable[Any]) -> list[Any]:
        """Extend."""
        accumulator.extend(values)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        """Concatenate."""
        iterator = iter(accumulators)
        merged = next(iterator, [])
        for other in iterator:
            merged.extend(other)
        return merged

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        """A copy: the accumulator goes on growing after the pane is emitted."""
        return list(accumulator)


@attrs.frozen
class CallableCombineFn(CombineFn):
    """A function from an iterable to a value, such as ``sum`` or ``max``, that is associative and commutative."""

    function: Callable[[Iterable[Any]], Any]

    def create_accumulator(self) -> list[Any]:
        """An empty buffer."""
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Buffer, and fold when the buffer is full."""
        accumulator.append(value)
        if len(accumulator) >= _BUFFER_VALUES_MAX:
            accumulator[:] = [self.function(accumulator)]
        return accumulator

    def add_inputs(self, accumulator: list[Any], values: Iterable[Any]) -> list[Any]:
        """Fold the whole list at once."""
        folded = [*accumulator, *values]
        return [self.function(folded)] if folded else folded

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        """Fold the folded."""
        merged = [value for accumulator in accumulators for value in accumulator]
        return [self.function(merged)] if len(merged) > 1 else merged

    def extract_output(self, accumulator: list[Any]) -> Any:
        """Fold what is left."""
        return self.function(accumulator)


def can_retract_input(combine_fn: CombineFn) -> bool:
    """Whether the class defines `CombineFn.retract_input`."""
    return type(combine_fn).retract_input is not CombineFn.retract_input


def as_combine_fn(fn: CombineFn | Callable[[Iterable[Any]], Any]) -> CombineFn:
    """``fn`` itself, or a `CallableCombineFn` around a plain function."""
    return fn if isinstance(fn, CombineFn) else CallableCombineFn(fn)
