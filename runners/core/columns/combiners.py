"""ColumnCombiners: some built-in functions of `dataflow.combine_fn`, over columns instead of values.

An accumulator of a `ColumnCombiner` is one place in one or two arrays.  It becomes the accumulator of its `CombineFn`
where columns end (`ColumnCombiner.accumulators`), so both can be mixed.

**Law**: the result is that of the `CombineFn`; sums of floats may differ from it in their last bits, as they may
between orders of addition anyway.  Where columns could not keep the law, for example with integers beyond 64 bits, the
result is None, and the caller folds values one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.arrow_numbers import array_of, numbers_of
from dataflow.columns import Int64s
from dataflow.combine_fn import CallableCombineFn, CombineFn
from dataflow.combiners import CountCombineFn, MeanCombineFn, SumCombineFn, TupleCombineFn

#: Arrays with one place for each accumulator.
Accumulators = tuple[NDArray[Any], ...]

_INT64_MAX = (1 << 63) - 1
#: Integers up to here can be converted to floats without loss.
_EXACT_MAX = 1 << 53


@attrs.frozen
class Groups:
    """The rows of each group: rows ``order[bounds[i] : bounds[i + 1]]`` are group i."""

    order: Int64s
    bounds: Int64s

    @property
    def firsts(self) -> Int64s:
        """One row of each group."""
        return self.order[self.bounds]

    @property
    def counts(self) -> Int64s:
        """The number of rows of each group."""
        return np.diff(self.bounds, append=len(self.order))

    def reduced(self, ufunc: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """The values of each group folded into one.

        Args:
            ufunc: folds two values.
            values: one for each row.
        """
        folded: NDArray[Any] = ufunc.reduceat(values[self.order], self.bounds)
        return folded


@attrs.frozen
class ColumnCombiner:
    """One aggregate function.

    ``kind``: sum, count, min, max or mean.  ``is_listed``: whether an accumulator of the `CombineFn` is a list of one
    value, as that of a `CallableCombineFn` is.
    """

    kind: str
    is_listed: bool = False

    def lifted(self, values: pa.Array, groups: Groups) -> Accumulators | None:
        """The accumulators of groups of inputs; None if the inputs cannot be folded as columns.

        Args:
            values: the inputs.
            groups: which of them belong together.
        """
        if self.kind == "count":
            return (groups.counts,)
        numbers = _numbers(values)
        if numbers is None:
            return None
        if self.kind in ("min", "max"):
            return _extremes(numbers, groups, self.kind)
        if numbers.dtype == np.bool_:
            numbers = numbers.astype(np.int64)
        sums = _sums(numbers, groups)
        if sums is None:
            return None
        return (sums,) if self.kind == "sum" else (sums, groups.counts)

    def merged(self, accumulators: Accumulators, groups: Groups) -> Accumulators | None:
        """The accumulators of groups of accumulators; None if they cannot be merged as columns.

        Args:
            accumulators: the arrays.
            groups: which of their places belong together.
        """
        if self.kind in ("min", "max"):
            return _extremes(accumulators[0], groups, self.kind)
        merged = [_sums(each, groups) for each in accumulators]
        return None if any(each is None for each in merged) else tuple(merged)  # type: ignore[arg-type]

    def accumulators(self, accumulators: Accumulators) -> Sequence[Any]:
        """The accumulators in the form that the `CombineFn` uses."""
        if self.kind == "mean":
            sums, counts = accumulators
            return list(zip(sums.tolist(), counts.tolist(), strict=True))
        values: list[Any] = accumulators[0].tolist()
        return [[value] for value in values] if self.is_listed else values

    def arrays(self, accumulators: Sequence[Any], like: Accumulators) -> Accumulators | None:
        """The inverse of `accumulators`; None where converting back would give other values.

        Args:
            accumulators: of the `CombineFn`.
            like: arrays of the types that are wanted.
        """
        columns: list[Sequence[Any]] = [accumulators]
        if self.kind == "mean":
            columns = list(zip(*accumulators, strict=True))
        elif self.is_listed:
            if any(len(each) != 1 for each in accumulators):
                return None
            columns = [[value for (value,) in accumulators]]
        found = [exact_array(*each) for each in zip(columns, like, strict=True)]
        return None if any(each is None for each in found) else tuple(found)  # type: ignore[arg-type]

    def results(self, accumulators: Accumulators) -> pa.Array:
        """The results of the accumulators."""
        if self.kind != "mean":
            return array_of(accumulators[0])
        sums, counts = accumulators
        if sums.dtype == np.int64 and _largest(sums) > _EXACT_MAX:
            pairs = zip(sums.tolist(), counts.tolist(), strict=True)
            return pa.array([total / count for total, count in pairs])
        return array_of(sums / counts)


_CALLABLES: dict[Callable[..., Any], str] = {sum: "sum", min: "min", max: "max"}
_COMBINE_FNS: dict[type[CombineFn], str] = {
    SumCombineFn: "sum",
    CountCombineFn: "count",
    MeanCombineFn: "mean",
}


def column_combiners(combine_fn: CombineFn) -> tuple[ColumnCombiner, ...] | None:
    """The column combiners of a `TupleCombineFn`, if there is one for each of its parts; otherwise None."""
    if not isinstance(combine_fn, TupleCombineFn):
        return None
    found = tuple(filter(None, map(_combiner, combine_fn.combine_fns)))
    return found if len(found) == len(combine_fn.combine_fns) else None


def _combiner(combine_fn: CombineFn) -> ColumnCombiner | None:
    if type(combine_fn) is CallableCombineFn:
        kind = next((each for fn, each in _CALLABLES.items() if fn is combine_fn.function), None)
        return None if kind is None else ColumnCombiner(kind, is_listed=True)
    kind = _COMBINE_FNS.get(type(combine_fn))
    return None if kind is None else ColumnCombiner(kind)


def exact_array(values: Sequence[Any], like: NDArray[Any]) -> NDArray[Any] | None:
    """An array of values with the type of another array; None if the values are of another type, or do not fit.

    Args:
        values: plain Python values.
        like: the array whose type is wanted.
    """
    kind: type = {"i": int, "f": float, "b": bool}[like.dtype.kind]
    if any(type(each) is not kind for each in values):
        return None
    try:
        return np.array(values, like.dtype)
    except OverflowError:
        return None


def _numbers(values: pa.Array) -> NDArray[Any] | None:
    """The values as an array of numbers without nulls; None if the column has others."""
    is_known = pa.types.is_int64(values.type) or pa.types.is_float64(values.type)
    if values.null_count or not (is_known or pa.types.is_boolean(values.type)):
        return None
    return numbers_of(values)


def _extremes(numbers: NDArray[Any], groups: Groups, kind: str) -> Accumulators | None:
    if numbers.dtype == np.float64:
        # Which of NaN, or of 0.0 and -0.0, is the least depends on the order.
        zeros = numbers[numbers == 0]
        if np.isnan(numbers).any() or np.signbit(zeros).any():
            return None
    return (groups.reduced(np.minimum if kind == "min" else np.maximum, numbers),)


def _sums(numbers: NDArray[Any], groups: Groups) -> NDArray[Any] | None:
    """The sum of each group; None where one could be beyond 64 bits."""
    if numbers.dtype == np.int64 and _largest(numbers) * len(numbers) > _INT64_MAX:
        # The rounding error is far less than the factor of two that is left.
        magnitudes = groups.reduced(np.add, np.abs(numbers.astype(np.float64)))
        if magnitudes.max() > _INT64_MAX // 2:
            return None
    # Python begins sums with 0, so a sum is never -0.0.
    sums: NDArray[Any] = groups.reduced(np.add, numbers) + numbers.dtype.type(0)
    return sums


def _largest(numbers: NDArray[Any]) -> int:
    """The largest absolute value."""
    if not len(numbers):
        return 0
    return max(abs(int(numbers.min())), abs(int(numbers.max())))
