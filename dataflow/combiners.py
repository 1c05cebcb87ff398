"""Combine functions that most pipelines want; each can take back what it was given."""

from collections.abc import Iterable
from typing import Any

from dataflow.combine_fn import CombineFn


class CountCombineFn(CombineFn):
    """How many values; takes them back exactly."""

    def create_accumulator(self) -> int:
        """Zero."""
        return 0

    def add_input(self, accumulator: int, value: Any) -> int:
        """One more."""
        return accumulator + 1

    def add_inputs(self, accumulator: int, values: Iterable[Any]) -> int:
        """As many more."""
        return accumulator + len(values if isinstance(values, list | tuple) else list(values))

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        """Add up."""
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        """The number."""
        return accumulator

    def retract_input(self, accumulator: int, value: Any) -> int:
        """One less."""
        return accumulator - 1


class SumCombineFn(CombineFn):
    """The sum of numbers.

    It takes values back exactly where subtraction is exact: ints, Decimals within their precision, Fractions.
    For floats use the function ``sum``, which is folded anew.
    """

    def create_accumulator(self) -> Any:
        """Zero."""
        return 0

    def add_input(self, accumulator: Any, value: Any) -> Any:
        """Add."""
        return accumulator + value

    def add_inputs(self, accumulator: Any, values: Iterable[Any]) -> Any:
        """Add all."""
        return sum(values, accumulator)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Add up."""
        return sum(accumulators)

    def extract_output(self, accumulator: Any) -> Any:
        """The sum."""
        return accumulator

    def retract_input(self, accumulator: Any, value: Any) -> Any:
        """Subtract."""
        return accumulator - value


class MeanCombineFn(CombineFn):
    """The arithmetic mean of numbers, NaN of none; an accumulator is sum and number.  Takes back as `SumCombineFn`."""

    def create_accumulator(self) -> tuple[Any, int]:
        """Of none."""
        return 0, 0

    def add_input(self, accumulator: tuple[Any, int], value: Any) -> tuple[Any, int]:
        """One more."""
        return accumulator[0] + value, accumulator[1] + 1

    def add_inputs(self, accumulator: tuple[Any, int], values: Iterable[Any]) -> tuple[Any, int]:
        """As many more."""
        several = list(values)
        return sum(several, accumulator[0]), accumulator[1] + len(several)

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, int]]) -> tuple[Any, int]:
        """Add up both."""
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: tuple[Any, int]) -> float:
        """Divide."""
        total, count = accumulator
        return total / count if count else float("nan")

    def retract_input(self, accumulator: tuple[Any, int], value: Any) -> tuple[Any, int]:
        """One less."""
        return accumulator[0] - value, accumulator[1] - 1
