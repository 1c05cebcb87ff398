"""Combining inputs that may be retracted: accumulators over signed inputs, which can also shrink.

An input is ``(value, sign)``; -1 retracts a value, and may come before the +1 that it belongs to.
A `CombineFn` with `retract_input` (the paper's "uncombine") removes values itself; for any other the multiset of
values is kept and folded anew.

Dataflow Model, section 2.3 (accumulating and retracting).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, repeat
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn, PassingCombineFn
from dataflow.errors import TransformError
from dataflow.views import SignedViewPart
from runners.core.ground.element_text import shown

SignedInput = tuple[Any, int]


class NaN(Enum):
    """Stands for the number NaN, which is not equal to itself, so that it can be found again in a mapping."""

    NAN = "nan"


NAN = NaN.NAN


def as_given(value: Any) -> Any:
    """A counted value in its original form, with NaN restored."""
    return float("nan") if value is NAN else value


def not_found_again(value: Any, error: TypeError) -> TransformError:
    """The error to raise for a value that cannot be hashed.

    Args:
        value: the value.
        error: what hashing it raised.
    """
    return TransformError(
        f"it was given a value that cannot be hashed: {error}",
        detail=f"value {shown(value)}; its input may be retracted, so a value must be found again among those before",
        hint="use tuples for lists and frozen attrs classes for objects, or combine with a CombineFn that "
        "has retract_input",
    )


def counted(counts: dict[Any, int], inputs: Iterable[SignedInput]) -> dict[Any, int]:
    """Count values up and retractions down.

    Args:
        counts: how often each value is there; changed in place.
        inputs: values with signs.

    Raises:
        TransformError: a value cannot be hashed.
    """
    for given, sign in inputs:
        value = NAN if type(given) is float and given != given else given  # noqa: PLR0124 - true of NaN alone
        try:
            count = counts.get(value, 0) + sign
        except TypeError as error:
            raise not_found_again(given, error) from None
        if count:
            counts[value] = count
        else:
            del counts[value]
    return counts


def added_up(several: Iterable[dict[Any, int]]) -> dict[Any, int]:
    """Counts of `counted` as one.

    Args:
        several: the counts; the first are changed in place.
    """
    iterator = iter(several)
    merged = next(iterator, {})
    for other in iterator:
        for value, more in other.items():
            count = merged.get(value, 0) + more
            if count:
                merged[value] = count
            else:
                del merged[value]
    return merged


def size_of(counts: Mapping[Any, int]) -> int:
    """How many values are there.

    Args:
        counts: of `counted`.
    """
    return sum(count for count in counts.values() if count > 0)


def there(counts: Mapping[Any, int]) -> list[Any]:
    """The values that are there, each as often as it is.

    Args:
        counts: of `counted`.
    """
    return list(
        chain.from_iterable(
            repeat(as_given(value), count) for value, count in counts.items() if count > 0
        )
    )


class SignedCombineFn(CombineFn):
    """A `CombineFn` over `SignedInput`."""

    @abstractmethod
    def size(self, accumulator: Any) -> int:
        """The number of values; with zero there is nothing to emit."""

    @abstractmethod
    def is_void(self, accumulator: Any) -> bool:
        """Whether the accumulator may be deleted: it has no value, and no retraction that waits for its value."""

    @abstractmethod
    def unsigned(self, accumulator: Any) -> Any:
        """The accumulator of the function that takes inputs without signs, with the values that are there."""

    def add_input(self, accumulator: Any, value: SignedInput) -> Any:
        """Add one input."""
        return self.add_inputs(accumulator, (value,))


@attrs.frozen
class MultisetCombineFn(SignedCombineFn):
    """Counts how often each value is there, below zero if it was retracted too early; folds when a result is needed.

    Values must be hashable; equal values are the same value.
    """

    combine_fn: CombineFn

    def create_accumulator(self) -> dict[Any, int]:
        """An empty multiset."""
        return {}

    def add_inputs(
        self, accumulator: dict[Any, int], values: Iterable[SignedInput]
    ) -> dict[Any, int]:
        """Count values up and retractions down.

        Raises:
            TransformError: a value cannot be hashed.
        """
        return counted(accumulator, values)

    def merge_accumulators(self, accumulators: Iterable[dict[Any, int]]) -> dict[Any, int]:
        """Add the counts up."""
        return added_up(accumulators)

    def extract_output(self, accumulator: dict[Any, int]) -> Any:
        """The fold of the values that are there."""
        return self.combine_fn.extract_output(self.unsigned(accumulator))

    def size(self, accumulator: dict[Any, int]) -> int:
        """The number of values, each counted as often as it is there."""
        return size_of(accumulator)

    def is_void(self, accumulator: dict[Any, int]) -> bool:
        """Whether every value has been retracted."""
        return not accumulator

    def unsigned(self, accumulator: dict[Any, int]) -> Any:
        """The fold of the values that are there, before its result is extracted."""
        return self.combine_fn.add_inputs(self.combine_fn.create_accumulator(), there(accumulator))


@attrs.frozen
class RetractingCombineFn(SignedCombineFn):
    """Passes retractions to `CombineFn.retract_input`; an accumulator is the user's, and how many values are in it."""

    combine_fn: CombineFn

    def create_accumulator(self) -> tuple[Any, int]:
        """An accumulator of no value."""
        return self.combine_fn.create_accumulator(), 0

    def add_inputs(
        self, accumulator: tuple[Any, int], values: Iterable[SignedInput]
    ) -> tuple[Any, int]:
        """Add emitted values, and remove retracted ones."""
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
        """Merge the accumulators, and add the sizes up."""
        inner, sizes = zip(*accumulators, strict=True)
        return self.combine_fn.merge_accumulators(inner), sum(sizes)

    def extract_output(self, accumulator: tuple[Any, int]) -> Any:
        """The result of the user's function."""
        return self.combine_fn.extract_output(accumulator[0])

    def size(self, accumulator: tuple[Any, int]) -> int:
        """The number of values emitted less those retracted."""
        return accumulator[1]

    def is_void(self, accumulator: tuple[Any, int]) -> bool:
        """False, since it is never known: as many retractions may wait for their values as there are values."""
        return False

    def unsigned(self, accumulator: tuple[Any, int]) -> Any:
        """The accumulator of the user's function."""
        return accumulator[0]


#: How many values have gone on, and how often each is there that has not; below zero if it is retracted.
_Passed = tuple[int, dict[Any, int]]


@attrs.frozen
class SignedPassOnFn(
    SignedCombineFn, PassingCombineFn[SignedInput, _Passed, tuple[int, list[Any]]]
):
    """Passes values on, and their retractions; a value that is retracted before it has gone on does not go.

    Whether a value that is retracted has gone on nobody knows here, nor therefore how many there are: a window of which
    some have gone on has panes until it expires.
    """

    combine_fn: PassingCombineFn[Any, Any, Any]

    def create_accumulator(self) -> _Passed:
        """Nothing."""
        return 0, {}

    def add_inputs(self, accumulator: _Passed, values: Iterable[SignedInput]) -> _Passed:
        """Count values up and retractions down.

        Raises:
            TransformError: a value cannot be hashed.
        """
        gone, counts = accumulator
        return gone, counted(counts, values)

    def merge_accumulators(self, accumulators: Iterable[_Passed]) -> _Passed:
        """Add the counts up."""
        gone, counts = zip(*accumulators, strict=True)
        return sum(gone), added_up(counts)

    def extract_output(self, accumulator: _Passed) -> tuple[int, list[Any]]:
        """How many have gone on, and the others that are there."""
        return accumulator[0], there(accumulator[1])

    def size(self, accumulator: _Passed) -> int:
        """How many have gone on; if none has, how many are there."""
        return accumulator[0] or size_of(accumulator[1])

    def is_void(self, accumulator: _Passed) -> bool:
        """Whether none has gone on, and every value has been retracted."""
        return accumulator == (0, {})

    def unsigned(self, accumulator: _Passed) -> tuple[int, list[Any]]:
        """The accumulator of the function that takes inputs without signs, if nothing has gone on."""
        return accumulator[0], there(accumulator[1])

    def passed_on(self, accumulator: _Passed) -> tuple[SignedViewPart, _Passed]:
        """The values that have not gone on, and retractions, and the accumulator when they have."""
        gone, counts = accumulator
        values, signs = list[Any](), list[int]()
        for value, count in counts.items():
            values += [as_given(value)] * abs(count)
            signs += [1 if count > 0 else -1] * abs(count)
        return SignedViewPart(values, signs=signs), (gone + len(values), {})

    def gone(self, accumulator: _Passed) -> int:
        """How many have gone on."""
        return accumulator[0]
