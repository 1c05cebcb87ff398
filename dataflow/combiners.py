"""Combine functions that support retraction (`CombineFn.retract_input`): counts, sums, means, and tuples of others."""

from collections.abc import Iterable
from typing import Any

from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.combine_fn import ROW_METHODS, CombineFn, CompositeCombineFn, columns_of
from dataflow.combiner_columns import CountColumns, MeanColumns, SumColumns
from dataflow.unbounded_sums import less, total, value_of
from windowing.overriding import stands_for


class CountCombineFn(CombineFn[Any, int, int]):
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

    A retraction is exact where subtraction is exact: ints, Decimals within their precision, Fractions.  An infinity or
    NaN that is retracted leaves the sum of the rest (`dataflow.unbounded_sums`).
    For exact sums of floats use the function ``sum``, which is folded anew.
    """

    def create_accumulator(self) -> Any:
        """Zero."""
        return 0

    def add_input(self, accumulator: Any, value: Any) -> Any:
        """Add."""
        return total((value,), accumulator)

    def add_inputs(self, accumulator: Any, values: Iterable[Any]) -> Any:
        """Add all."""
        return total(values, accumulator)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Add up."""
        return total(accumulators, 0)

    def extract_output(self, accumulator: Any) -> Any:
        """The sum."""
        return value_of(accumulator)

    def retract_input(self, accumulator: Any, value: Any) -> Any:
        """Subtract."""
        return less(accumulator, value)

    def columns(self) -> ColumnCombineFn:
        """Sums."""
        return SumColumns()


class MeanCombineFn(CombineFn[Any, tuple[Any, int], float]):
    """The arithmetic mean of numbers, NaN of none; an accumulator is sum and number.  Retracts as `SumCombineFn`."""

    def create_accumulator(self) -> tuple[Any, int]:
        """The sum and the number of no values."""
        return 0, 0

    def add_input(self, accumulator: tuple[Any, int], value: Any) -> tuple[Any, int]:
        """Add the value to the sum, and count it."""
        return total((value,), accumulator[0]), accumulator[1] + 1

    def add_inputs(self, accumulator: tuple[Any, int], values: Iterable[Any]) -> tuple[Any, int]:
        """Add the values to the sum, and count them."""
        several = list(values)
        return total(several, accumulator[0]), accumulator[1] + len(several)

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, int]]) -> tuple[Any, int]:
        """Add up both."""
        sums, counts = zip(*accumulators, strict=True)
        return total(sums, 0), sum(counts)

    def extract_output(self, accumulator: tuple[Any, int]) -> float:
        """Divide."""
        summed, count = accumulator
        return value_of(summed) / count if count else float("nan")

    def retract_input(self, accumulator: tuple[Any, int], value: Any) -> tuple[Any, int]:
        """Subtract the value from the sum, and count it no more."""
        return less(accumulator[0], value), accumulator[1] - 1

    def columns(self) -> ColumnCombineFn:
        """Sums and counts."""
        return MeanColumns()


class _PlacesCombineFn(CompositeCombineFn):
    """Accumulators and results are tuples, with one place for each function."""

    def create_accumulator(self) -> tuple[Any, ...]:
        """The empty accumulator of each function, as a tuple."""
        return tuple([each.create_accumulator() for each in self.combine_fns])

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Place by place."""
        places = zip(self.combine_fns, zip(*accumulators, strict=True), strict=True)
        return tuple([each.merge_accumulators(inner) for each, inner in places])

    def extract_output(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """The result of each."""
        places = zip(self.combine_fns, accumulator, strict=True)
        return tuple([each.extract_output(inner) for each, inner in places])


class TupleCombineFn(_PlacesCombineFn):
    """Several at once, each of its own values: inputs, accumulators and results are tuples, with one place for each.

    It can retract if all of them can.  Beam's ``TupleCombineFn``.

    Example::

        pairs | df.CombinePerKey(df.TupleCombineFn(df.CountCombineFn(), max))  # of ("key", (flight, delay))

    Args:
        *combine_fns: one for each place of a value: a `CombineFn`, or a function as for `CombinePerKey`.

    Raises:
        PipelineError: one of them is neither.
    """

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

    def retract_input(
        self, accumulator: tuple[Any, ...], value: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Retract each part of a tuple from the accumulator of its function."""
        places = zip(self.combine_fns, accumulator, value, strict=True)
        return tuple([each.retract_input(inner, part) for each, inner, part in places])

    def columns_by_place(self) -> tuple[ColumnCombineFn, ...] | None:
        """How the column in each place is folded; None if one of the functions folds values only."""
        found = tuple(filter(None, map(columns_of, self.combine_fns)))
        return found if len(found) == len(self.combine_fns) else None


class SingleInputTupleCombineFn(_PlacesCombineFn):
    """Several of the same values: each gets all of them, and the result is a tuple with one place for each.

    It can retract if all of them can.  Beam's ``SingleInputTupleCombineFn``.

    Example::

        delays | df.CombinePerKey(df.SingleInputTupleCombineFn(df.MeanCombineFn(), max))

    Args:
        *combine_fns: each a `CombineFn`, or a function as for `CombinePerKey`.

    Raises:
        PipelineError: one of them is neither.
    """

    def add_input(self, accumulator: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        """Add the value to the accumulator of each."""
        places = zip(self.combine_fns, accumulator, strict=True)
        return tuple([each.add_input(inner, value) for each, inner in places])

    def add_inputs(self, accumulator: tuple[Any, ...], values: Iterable[Any]) -> tuple[Any, ...]:
        """Add the values to the accumulator of each."""
        several = list(values)
        places = zip(self.combine_fns, accumulator, strict=True)
        return tuple([each.add_inputs(inner, several) for each, inner in places])

    def retract_input(self, accumulator: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        """Retract the value from the accumulator of each."""
        places = zip(self.combine_fns, accumulator, strict=True)
        return tuple([each.retract_input(inner, value) for each, inner in places])


def columns_by_place(combine_fn: CombineFn) -> tuple[ColumnCombineFn, ...] | None:
    """How a function of tuples folds the column in each place.

    None where it folds tuples only, or a subclass has changed how it does.
    """
    if isinstance(combine_fn, TupleCombineFn) and stands_for(
        combine_fn, "columns_by_place", ROW_METHODS
    ):
        return combine_fn.columns_by_place()
    return None
