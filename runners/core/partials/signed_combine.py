"""Combining what may be taken back: accumulators over signed inputs, that can also shrink.

An input is ``(value, sign)``; -1 takes a value back, and may come before the +1 that it belongs to.
A `CombineFn` with `retract_input` (the paper's "uncombine") gives values back itself; any other is folded anew from the
multiset of values.

Dataflow Model, section 2.3 (accumulating and retracting).
"""

from abc import abstractmethod
from collections.abc import Iterable
from enum import Enum
from itertools import chain, repeat
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn
from dataflow.errors import TransformError

SignedInput = tuple[Any, int]


class NaN(Enum):
    """In place of the one number that is not equal to itself, so that it can be found again."""

    NAN = "nan"


NAN = NaN.NAN


def as_given(value: Any) -> Any:
    """A value that is counted, as it came."""
    return float("nan") if value is NAN else value


def not_found_again(value: Any, error: TypeError) -> TransformError:
    """What to raise for a value that cannot be hashed."""
    return TransformError(
        f"it was given a value that cannot be hashed: {error}",
        detail=f"value {value!r}; its input may be taken back, so values must be found again",
        hint="use tuples for lists and frozen attrs classes for objects, or combine with a CombineFn that "
        "has retract_input",
    )


class SignedCombineFn(CombineFn):
    """A `CombineFn` over `SignedInput`."""

    @abstractmethod
    def size(self, accumulator: Any) -> int:
        """How many values there are; with zero there is nothing to say."""

    @abstractmethod
    def is_void(self, accumulator: Any) -> bool:
        """Whether the accumulator may be forgotten: nothing is in it, and nothing owed to it."""

    def add_input(self, accumulator: Any, value: SignedInput) -> Any:
        """One more."""
        return self.add_inputs(accumulator, (value,))


@attrs.frozen
class MultisetCombineFn(SignedCombineFn):
    """Keeps how often each value is there, below zero if it was taken back too early; folds when asked.

    Values must be hashable; equal values are the same value.
    """

    combine_fn: CombineFn

    def create_accumulator(self) -> dict[Any, int]:
        """Nothing."""
        return {}

    def add_inputs(
        self, accumulator: dict[Any, int], values: Iterable[SignedInput]
    ) -> dict[Any, int]:
        """Count up and down.

        Raises:
            TransformError: a value cannot be hashed.
        """
        for given, sign in values:
            value = NAN if type(given) is float and given != given else given  # noqa: PLR0124 - true of NaN alone
            try:
                count = accumulator.get(value, 0) + sign
            except TypeError as error:
                raise not_found_again(given, error) from None
            if count:
                accumulator[value] = count
            else:
                del accumulator[value]
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[dict[Any, int]]) -> dict[Any, int]:
        """Add the counts up."""
        iterator = iter(accumulators)
        merged = next(iterator, {})
        for other in iterator:
            for value, more in other.items():
                count = merged.get(value, 0) + more
                if count:
                    merged[value] = count
                else:
                    del merged[value]
        return merged

    def extract_output(self, accumulator: dict[Any, int]) -> Any:
        """The fold of what is there."""
        combine_fn = self.combine_fn
        values = chain.from_iterable(
            repeat(float("nan") if value is NAN else value, count)
            for value, count in accumulator.items()
            if count > 0
        )
        return combine_fn.extract_output(
            combine_fn.add_inputs(combine_fn.create_accumulator(), list(values))
        )

    def size(self, accumulator: dict[Any, int]) -> int:
        """Values, each as often as it is there."""
        return sum(count for count in accumulator.values() if count > 0)

    def is_void(self, accumulator: dict[Any, int]) -> bool:
        """Whether every value has been taken back."""
        return not accumulator


@attrs.frozen
class RetractingCombineFn(SignedCombineFn):
    """Hands retractions to `CombineFn.retract_input`; an accumulator is the user's, and how many values are in it."""

    combine_fn: CombineFn

    def create_accumulator(self) -> tuple[Any, int]:
        """Nothing."""
        return self.combine_fn.create_accumulator(), 0

    def add_inputs(
        self, accumulator: tuple[Any, int], values: Iterable[SignedInput]
    ) -> tuple[Any, int]:
        """Add what is said, take out what is taken back."""
        inner, size = accumulator
        emitted: list[Any] = []
        retracted: list[Any] = []
        for value, sign in values:
            (emitted if sign > 0 else retracted).append(value)
        inner = self.combine_fn.add_inputs(inner, emitted)
        for value in retracted:
            inner = self.combine_fn.retract_input(inner, value)
        return inner, size + len(emitted) - len(retracted)

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, int]]) -> tuple[Any, int]:
        """Merge, and add the sizes up."""
        inner, sizes = zip(*accumulators, strict=True)
        return self.combine_fn.merge_accumulators(inner), sum(sizes)

    def extract_output(self, accumulator: tuple[Any, int]) -> Any:
        """The user's."""
        return self.combine_fn.extract_output(accumulator[0])

    def size(self, accumulator: tuple[Any, int]) -> int:
        """Values said less values taken back."""
        return accumulator[1]

    def is_void(self, accumulator: tuple[Any, int]) -> bool:
        """Never known: as many may be owed as are there."""
        return False
