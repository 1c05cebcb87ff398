"""How the combine functions of this package fold columns (`dataflow.column_combine_fn`)."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from dataflow.arrow_numbers import array_of
from dataflow.column_combine_fn import Accumulators, ColumnCombineFn, ColumnGroups, largest

#: Integers up to here can be converted to floats without loss.
_EXACT_MAX = 1 << 53


@attrs.frozen
class SumColumns(ColumnCombineFn):
    """Sums of numbers."""

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """The sums; None if one could be beyond 64 bits."""
        numbers = self.numbers(values)
        if numbers is None:
            return None
        if numbers.dtype == np.bool_:
            numbers = numbers.astype(np.int64)
        sums = groups.sums(numbers)
        return None if sums is None else (sums,)

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators | None:
        """The sums of sums; None if one could be beyond 64 bits."""
        sums = groups.sums(accumulators[0])
        return None if sums is None else (sums,)

    def results(self, accumulators: Accumulators) -> pa.Array:
        """The sums."""
        return array_of(accumulators[0])


_SUMS = SumColumns()


@attrs.frozen
class CountColumns(ColumnCombineFn):
    """Numbers of values, of whatever type."""

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """The number of rows of each group."""
        return (groups.counts,)

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators | None:
        """The sums of counts."""
        sums = groups.sums(accumulators[0])
        return None if sums is None else (sums,)

    def results(self, accumulators: Accumulators) -> pa.Array:
        """The counts."""
        return array_of(accumulators[0])


@attrs.frozen
class MeanColumns(ColumnCombineFn):
    """Sums and counts, of which the quotient is the mean."""

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """Sums and counts; None if a sum could be beyond 64 bits."""
        sums = _SUMS.lift(values, groups)
        return None if sums is None else (*sums, groups.counts)

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators | None:
        """Sums and counts, each added up."""
        sums, counts = (groups.sums(each) for each in accumulators)
        return None if sums is None or counts is None else (sums, counts)

    def results(self, accumulators: Accumulators) -> pa.Array:
        """The means."""
        sums, counts = accumulators
        if sums.dtype == np.int64 and largest(sums) > _EXACT_MAX:
            pairs = zip(sums.tolist(), counts.tolist(), strict=True)
            return pa.array([total / count for total, count in pairs])
        return array_of(sums / counts)


@attrs.frozen
class ExtremeColumns(ColumnCombineFn):
    """The least or the greatest numbers."""

    is_greatest: bool

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """The extremes; None with NaN or -0.0, of which the first that came would be the extreme."""
        numbers = self.numbers(values)
        return None if numbers is None else self.merge((numbers,), groups)

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators | None:
        """The extremes of extremes."""
        (numbers,) = accumulators
        if numbers.dtype == np.float64:
            # Which of NaN, or of 0.0 and -0.0, is the least depends on the order.
            zeros = numbers[numbers == 0]
            if np.isnan(numbers).any() or np.signbit(zeros).any():
                return None
        return (groups.reduced(np.maximum if self.is_greatest else np.minimum, numbers),)

    def results(self, accumulators: Accumulators) -> pa.Array:
        """The extremes."""
        return array_of(accumulators[0])


@attrs.frozen
class ListedColumns(ColumnCombineFn):
    """The columns of a function from values to a value, whose accumulators are lists of one value."""

    single: ColumnCombineFn

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """Do what `lift` of the single function does."""
        return self.single.lift(values, groups)

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators | None:
        """Do what `merge` of the single function does."""
        return self.single.merge(accumulators, groups)

    def results(self, accumulators: Accumulators) -> pa.Array:
        """Do what `results` of the single function does."""
        return self.single.results(accumulators)

    def rows(self, accumulators: Accumulators) -> Sequence[Any]:
        """A list of one value for each."""
        return [[value] for value in self.single.rows(accumulators)]

    def from_rows(self, rows: Sequence[Any], like: Accumulators) -> Accumulators | None:
        """The only value of each list; None if one has others."""
        if any(len(each) != 1 for each in rows):
            return None
        return self.single.from_rows([value for (value,) in rows], like)


_CALLABLES: tuple[tuple[Callable[..., Any], ColumnCombineFn], ...] = (
    (sum, ListedColumns(SumColumns())),
    (min, ListedColumns(ExtremeColumns(is_greatest=False))),
    (max, ListedColumns(ExtremeColumns(is_greatest=True))),
)


def columns_of_callable(function: Callable[..., Any]) -> ColumnCombineFn | None:
    """The columns of a built-in function, by identity; None if it has none."""
    return next((columns for known, columns in _CALLABLES if known is function), None)
