"""Arrow arrays of numbers as numpy's, and back, without a copy.

Arrow's own conversions import pandas, wherever it is installed, at their first call: a quarter of a second of each
worker's life.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_KINDS: dict[pa.DataType, np.dtype[Any]] = {
    pa.int64(): np.dtype(np.int64),
    pa.float64(): np.dtype(np.float64),
    pa.uint8(): np.dtype(np.uint8),
    pa.uint16(): np.dtype(np.uint16),
    pa.uint32(): np.dtype(np.uint32),
}
_TYPES = {kind: arrow_type for arrow_type, kind in _KINDS.items()}


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """The elements; of 64-bit and unsigned numbers without nulls the very memory, which nobody may change."""
    kind = _KINDS.get(array.type)
    data = None if kind is None or array.null_count else array.buffers()[1]
    if kind is None or data is None:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)


def array_of(numbers: NDArray[Any]) -> pa.Array:
    """An Arrow array over the same memory, which nobody may change from then on."""
    arrow_type = _TYPES.get(numbers.dtype)
    if arrow_type is None:
        return pa.array(numbers)
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(arrow_type, len(numbers), [None, data])
