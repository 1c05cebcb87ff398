"""check_combine_fn, as it is shipped for users: what is right passes, and what is wrong is caught."""

from collections.abc import Iterable
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import ListCombineFn
from dataflow.testing.laws import (
    check_combine_fn,
)
from tests.caught import caught

NUMBERS = st.lists(st.integers(-9, 9), max_size=8)


@pytest.mark.parametrize(
    "combine_fn", [sum, max, min, df.SumCombineFn(), df.CountCombineFn(), df.MeanCombineFn()]
)
@given(values=NUMBERS)
def test_shipped_combine_fns_are_right(combine_fn: Any, values: list[int]) -> None:
    check_combine_fn(combine_fn, values, by=lambda output: round(output, 9))


@given(NUMBERS)
def test_lists_are_the_same_in_any_order(values: list[int]) -> None:
    check_combine_fn(ListCombineFn(), values, by=sorted)
    if len(set(values)) > 1:
        with pytest.raises(AssertionError, match="not commutative"):
            check_combine_fn(ListCombineFn(), values)


class OwnSum(df.CombineFn):
    """A sum; right, but for what the tests change.  Keeps ``[sum]``, so that it can be changed in place."""

    def create_accumulator(self) -> Any:
        return [0]

    def add_input(self, accumulator: Any, value: Any) -> Any:
        accumulator[0] += value
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return [sum(each for (each,) in accumulators)]

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator[0]

    def retract_input(self, accumulator: Any, value: Any) -> Any:
        accumulator[0] -= value
        return accumulator


class MeanOfMeans(OwnSum):
    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        found = [each for (each,) in accumulators]
        return [sum(found) / len(found)]


class Last(OwnSum):
    def add_input(self, accumulator: Any, value: Any) -> Any:
        return [value]


class StartsAtOne(OwnSum):
    def create_accumulator(self) -> Any:
        return [1]


class Difference(OwnSum):
    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        first, *others = accumulators
        return [first[0] - sum(each for (each,) in others)]


class SkipsTheFirst(OwnSum):
    def add_inputs(self, accumulator: Any, values: Iterable[Any]) -> Any:
        return super().add_inputs(accumulator, list(values)[1:])


class GivesItselfAway(OwnSum):
    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


class EmptiesItself(OwnSum):
    def extract_output(self, accumulator: Any) -> Any:
        total, accumulator[0] = accumulator[0], 0
        return total


class ChangesTheOthers(OwnSum):
    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        first, *others = accumulators
        for other in others:
            first[0], other[0] = first[0] + other[0], 0
        return first


class ForgetsTheSign(OwnSum):
    def retract_input(self, accumulator: Any, value: Any) -> Any:
        accumulator[0] -= abs(value)
        return accumulator


class NotBelowZero(OwnSum):
    """Right for what has been put in before; a retraction may overtake."""

    def retract_input(self, accumulator: Any, value: Any) -> Any:
        accumulator[0] = max(0, accumulator[0] - value)
        return accumulator


@given(NUMBERS)
def test_a_combine_fn_of_ones_own_that_is_right(values: list[int]) -> None:
    check_combine_fn(OwnSum(), values)


@pytest.mark.parametrize(
    ("combine_fn", "message"),
    [
        (df.associative(len), "does not always return the same"),
        (df.associative(mean), "does not always return the same"),
        (MeanOfMeans(), "merged from"),
        (Last(), "commutative"),
        (StartsAtOne(), "merged from"),
        (Difference(), "merged from"),
        (SkipsTheFirst(), "add_input"),
        (GivesItselfAway(), "has changed with its accumulator"),
        (EmptiesItself(), "extract_output is called again"),
        (ChangesTheOthers(), "after its accumulator was merged"),
        (ForgetsTheSign(), "taken out"),
        (NotBelowZero(), "before it is put in"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_wrong_combine_fns_are_caught(combine_fn: Any, message: str) -> None:
    values = (
        st.lists(st.integers(0, 9), max_size=5) if type(combine_fn) is NotBelowZero else NUMBERS
    )

    assert message in caught(lambda values: check_combine_fn(combine_fn, values), values)
