"""ColumnCombineFn: how a `CombineFn` folds columns of inputs, without an object for each.

Optional.  A `CombineFn` that can returns one from its method `columns`; an accumulator then is one place in one or more
arrays.  It becomes the accumulator of the `CombineFn` wherever columns end, so both kinds of accumulators can be mixed.

**Law**: the result is that of the `CombineFn`; sums of floats may differ from it in their last bits, as they may
between orders of addition anyway.  Where columns could not keep the law, for example with integers beyond 64 bits, a
method returns None, and the values are folded one by one.  `dataflow.testing.laws.check_combine_columns` tests it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.arrow_numbers import numbers_of
from windowing.window_columns import Int64s

#: Arrays with one place for each accumulator: 64-bit integers, 64-bit floats, or booleans.
Accumulators = tuple[NDArray[Any], ...]

_INT64_MAX = (1 << 63) - 1
_KINDS: dict[str, type] = {"i": int, "f": float, "b": bool}


@attrs.frozen(eq=False)
class ColumnGroups:
    """Which rows of a column belong together: rows ``order[bounds[i] : bounds[i + 1]]`` are group i.

    Attributes:
        order: the indexes of the rows, group by group; in a group they are in the order in which they came.
        bounds: for each group the index in ``order`` of its first row; at least one group, and none is empty.
    """

    order: Int64s
    bounds: Int64s

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def firsts(self) -> Int64s:
        """The index of the first row of each group."""
        return self.order[self.bounds]

    @property
    def counts(self) -> Int64s:
        """The number of rows of each group."""
        return np.diff(self.bounds, append=len(self.order))

    def reduced(self, ufunc: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """The values of each group, folded into one.

        Args:
            ufunc: folds two values, for example ``np.maximum``.
            values: one for each row.
        """
        folded: NDArray[Any] = ufunc.reduceat(values[self.order], self.bounds)
        return folded

    def sums(self, numbers: NDArray[Any]) -> NDArray[Any] | None:
        """The sum of each group; None where one could be beyond 64 bits.

        Args:
            numbers: 64-bit integers or floats, one for each row.
        """
        if numbers.dtype == np.int64 and largest(numbers) * len(numbers) > _INT64_MAX:
            # The rounding error is far less than the factor of two that is left.
            magnitudes = self.reduced(np.add, np.abs(numbers.astype(np.float64)))
            if magnitudes.max() > _INT64_MAX // 2:
                return None
        # Python begins sums with 0, so a sum is never -0.0.
        sums: NDArray[Any] = self.reduced(np.add, numbers) + numbers.dtype.type(0)
        return sums


class ColumnCombineFn(ABC):
    """Folds columns as a `CombineFn` folds values; see the module for the law that it obeys.

    An instance is shared between threads and stays as it is.  Arrays are shared as well: a method changes none that it
    is given.  An array of accumulators has 64-bit integers, 64-bit floats or booleans.
    """

    @abstractmethod
    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """Accumulators of groups of inputs: what `add_inputs` makes of `create_accumulator`.

        Args:
            values: the inputs, in the order in which they came; of any Arrow type, perhaps with nulls.
            groups: which of them belong together.

        Returns:
            One array or more, with a place for each group; None: these inputs have to be folded one by one.
        """

    @abstractmethod
    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators | None:
        """Accumulators of groups of accumulators: what `merge_accumulators` makes of each group.

        Args:
            accumulators: as `lift` and this method return them.
            groups: which of their places belong together.

        Returns:
            As many arrays, of the same types, with a place for each group; None: these have to be merged one by one.
        """

    @abstractmethod
    def results(self, accumulators: Accumulators) -> pa.Array:
        """The results of accumulators: what `extract_output` makes of each.

        Args:
            accumulators: as `lift` and `merge` return them.
        """

    def rows(self, accumulators: Accumulators) -> Sequence[Any]:
        """The accumulators in the form that the `CombineFn` has.

        Override it where that is not the number in the only array, or the tuple of the numbers in all arrays.

        Args:
            accumulators: as `lift` and `merge` return them.
        """
        columns: list[list[Any]] = [each.tolist() for each in accumulators]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def from_rows(self, rows: Sequence[Any], like: Accumulators) -> Accumulators | None:
        """The inverse of `rows`; None where `rows` would not give these values back, of the same types.

        Args:
            rows: accumulators of the `CombineFn`, at least one.
            like: arrays of the types that are wanted.
        """
        if len(like) == 1:
            return exact_arrays([rows], like)
        if any(type(each) is not tuple or len(each) != len(like) for each in rows):
            return None
        return exact_arrays(list(zip(*rows, strict=True)), like)

    @staticmethod
    def numbers(values: pa.Array) -> NDArray[Any] | None:
        """Inputs as an array of 64-bit integers, 64-bit floats or booleans; None if they are others, or have nulls.

        Args:
            values: the inputs.
        """
        is_known = pa.types.is_int64(values.type) or pa.types.is_float64(values.type)
        if values.null_count or not (is_known or pa.types.is_boolean(values.type)):
            return None
        return numbers_of(values)


def exact_arrays(columns: Sequence[Sequence[Any]], like: Accumulators) -> Accumulators | None:
    """Arrays of plain values with the types of other arrays; None if values are of other types, or do not fit.

    Args:
        columns: the values.
        like: as many arrays, of the types that are wanted.
    """
    found = []
    for values, wanted in zip(columns, like, strict=True):
        kind = _KINDS[wanted.dtype.kind]
        if any(type(each) is not kind for each in values):
            return None
        try:
            found.append(np.array(values, wanted.dtype))
        except OverflowError:
            return None
    return tuple(found)


def largest(numbers: NDArray[Any]) -> int:
    """The largest absolute value; 0 of none."""
    if not len(numbers):
        return 0
    return max(abs(int(numbers.min())), abs(int(numbers.max())))
