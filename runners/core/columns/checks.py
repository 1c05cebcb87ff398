"""Checks of what column functions return, because a wrong array would lose or mix up accumulators silently.

They are a few comparisons for each bundle, so nobody's functions are exempt.
"""

from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from dataflow.column_combine_fn import Accumulators, ColumnCombineFn, ColumnGroups
from dataflow.errors import TransformError

_KINDS = frozenset(map(np.dtype, (np.int64, np.float64, np.bool_)))


def checked(
    combiner: ColumnCombineFn,
    method: str,
    found: Accumulators | None,
    groups: ColumnGroups,
    like: Accumulators | None = None,
) -> Accumulators | None:
    """What a method returned, if it can be accumulators of these groups.

    Args:
        combiner: the function.
        method: the name of its method.
        found: what it returned.
        groups: a place for each is wanted.
        like: arrays of the wanted types; None: of any types that accumulators may have.

    Raises:
        TransformError: it cannot.
    """
    if found is None:
        return found
    if not isinstance(found, tuple) or not found:
        _refuse(combiner, method, f"it returned {found!r}", "return a tuple of arrays, or None")
    for array in found:
        if not isinstance(array, np.ndarray) or array.dtype not in _KINDS:
            kind = getattr(array, "dtype", type(array).__name__)
            hint = "accumulators are numpy arrays of 64-bit integers, 64-bit floats or booleans"
            _refuse(combiner, method, f"an array is of {kind}", hint)
        if array.shape != (len(groups),):
            detail = f"an array has the shape {array.shape}, for {len(groups)} groups"
            _refuse(combiner, method, detail, "return one place for each group")
    if like is not None and [each.dtype for each in found] != [each.dtype for each in like]:
        detail = f"{_kinds(like)} became {_kinds(found)}"
        _refuse(combiner, method, detail, "merging keeps the number and the types of the arrays")
    return found


def checked_results(combiner: ColumnCombineFn, found: pa.Array, size: int) -> pa.Array:
    """What `ColumnCombineFn.results` returned, if it can be the results of so many accumulators.

    Args:
        combiner: the function.
        found: what it returned.
        size: the number of accumulators.

    Raises:
        TransformError: it cannot.
    """
    if not isinstance(found, pa.Array) or len(found) != size:
        number = f" of {len(found)}" if isinstance(found, pa.Array) else ""
        detail = f"it returned a {type(found).__name__}{number} for {size} accumulators"
        _refuse(combiner, "results", detail, "return an Arrow array with one result for each")
    return found


def _kinds(arrays: Accumulators) -> list[str]:
    return [str(each.dtype) for each in arrays]


def _refuse(combiner: Any, method: str, detail: str, hint: str) -> NoReturn:
    raise TransformError(
        f"{type(combiner).__name__}.{method} returns no columns of accumulators"
        if method != "results"
        else f"{type(combiner).__name__}.results returns no column of results",
        detail=detail,
        hint=hint,
    )
