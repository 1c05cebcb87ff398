"""Combine functions that most pipelines want; each supports retraction (`CombineFn.retract_input`)."""

from collections.abc import Iterable
from typing import Any

from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.combine_fn import ROW_METHODS, CombineFn, can_retract_input, columns_of
from dataflow.combiner_columns import CountColumns, MeanColumns, SumColumns
from windowing.overriding import stands_for


class CountCombineFn(CombineFn):
    """How many values; a retraction is exact."""

    def create_accumulator(self) -> int:
        """Zero."""
        return 0

    def add_input(self, accumulator: int, value: Any) -> int:
        """Count the value."""
        return accumulator + 1

    def add_inputs(self, accumulator: int, values: Iterable[Any]) -> int:
        """Count the values."""
        return accumulator + len(values if isinstance(values, list | tuple) else list(values))

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        """Add up."""
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        """The number."""
        return accumulator

    def retract_input(self, accumulator: int, value: Any) -> int:
        """Count the value no more."""
        return accumulator - 1

    def columns(self) -> ColumnCombineFn:
        """Counts."""
        return CountColumns()


class SumCombineFn(CombineFn):
    """The sum of numbers.

    A retraction is exact where subtraction is exact: ints, Decimals within their precision, Fractions.
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

    def columns(self) -> ColumnCombineFn:
        """Sums."""
        return SumColumns()


class MeanCombineFn(CombineFn):
    """The arithmetic mean of numbers, NaN of none; an accumulator is sum and number.  Retracts as `SumCombineFn`."""

    def create_accumulator(self) -> tuple[Any, int]:
        """The sum and the number of no values."""
        return 0, 0

    def add_input(self, accumulator: tuple[Any, int], value: Any) -> tuple[Any, int]:
        """Add the value to the sum, and count it."""
        return accumulator[0] + value, accumulator[1] + 1

    def add_inputs(self, accumulator: tuple[Any, int], values: Iterable[Any]) -> tuple[Any, int]:
        """Add the values to the sum, and count them."""
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
        """Subtract the value from the sum, and count it no more."""
        return accumulator[0] - value, accumulator[1] - 1

    def columns(self) -> ColumnCombineFn:
        """Sums and counts."""
        return MeanColumns()


class TupleCombineFn(CombineFn):
    """Several at once: inputs, accumulators and results are tuples, with one place for each; made by `tuple_of`."""

    def __init__(self, combine_fns: Iterable[CombineFn]) -> None:
        self.combine_fns = tuple(combine_fns)

    def create_accumulator(self) -> tuple[Any, ...]:
        """The empty accumulator of each function, as a tuple."""
        return tuple([each.create_accumulator() for each in self.combine_fns])

    def add_input(self, accumulator: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add each part of a tuple to the accumulator of its function."""
        places = zip(self.combine_fns, accumulator, value, strict=True)
        return tuple([each.add_input(inner, part) for each, inner, part in places])

    def add_inputs(
        self, accumulator: tuple[Any, ...], values: Iterable[tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """Add each part of tuples to the accumulator of its function, as one list."""
        parts = list(zip(*values, strict=True))
        if not parts:
            return accumulator
        places = zip(self.combine_fns, accumulator, parts, strict=True)
        return tuple([each.add_inputs(inner, part) for each, inner, part in places])

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Place by place."""
        places = zip(self.combine_fns, zip(*accumulators, strict=True), strict=True)
        return tuple([each.merge_accumulators(inner) for each, inner in places])

    def extract_output(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """The result of each."""
        places = zip(self.combine_fns, accumulator, strict=True)
        return tuple([each.extract_output(inner) for each, inner in places])

    def columns_by_place(self) -> tuple[ColumnCombineFn, ...] | None:
        """How the column in each place is folded; None if one of the functions folds values only."""
        found = tuple(filter(None, map(columns_of, self.combine_fns)))
        return found if len(found) == len(self.combine_fns) else None


class _RetractableTupleCombineFn(TupleCombineFn):
    """The tuple of combine functions that all support retraction."""

    def retract_input(
        self, accumulator: tuple[Any, ...], value: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Retract each part of a tuple from the accumulator of its function."""
        places = zip(self.combine_fns, accumulator, value, strict=True)
        return tuple([each.retract_input(inner, part) for each, inner, part in places])


def tuple_of(combine_fns: Iterable[CombineFn]) -> TupleCombineFn:
    """A combine function of several, which supports retraction if all of them do."""
    found = tuple(combine_fns)
    kind = _RetractableTupleCombineFn if all(map(can_retract_input, found)) else TupleCombineFn
    return kind(found)


def columns_by_place(combine_fn: CombineFn) -> tuple[ColumnCombineFn, ...] | None:
    """How a function of tuples folds the column in each place.

    None where it folds tuples only, or a subclass has changed how it does.
    """
    if isinstance(combine_fn, TupleCombineFn) and stands_for(
        combine_fn, "columns_by_place", ROW_METHODS
    ):
        return combine_fn.columns_by_place()
    return None
