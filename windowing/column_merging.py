"""Merging of windows that overlap, over columns: the chains of `windowing.merging`, of all keys at once."""

import numpy as np
from numpy.typing import NDArray

from windowing.column_order import NUMBER_MAX
from windowing.window_columns import Int64s


def begins_chain(
    keys: Int64s, starts_us: Int64s, ends_us: Int64s, *, is_one_size: bool
) -> NDArray[np.bool_]:
    """Whether each window begins a chain of windows that overlap; the others belong to the chain before them.

    Args:
        keys: a number from 0 on for the key of each window; in ascending order.
        starts_us: of the windows, in microseconds; in ascending order for each key.
        ends_us: of the windows.
        is_one_size: whether all windows are of the same length, so that they end in the order in which they start.
    """
    is_new = np.empty(len(keys), np.bool_)
    is_new[:1] = True
    reach_us = ends_us if is_one_size else _reach_us(keys, ends_us)
    is_new[1:] = (keys[1:] != keys[:-1]) | (starts_us[1:] >= reach_us[:-1])
    return is_new


def _reach_us(keys: Int64s, ends_us: Int64s) -> Int64s:
    """For each window the latest end among the windows of its key up to it; the windows are ordered by key."""
    if not len(keys):
        return ends_us
    first_us = int(ends_us.min())
    span_us = int(ends_us.max()) - first_us + 1
    if (int(keys[-1]) + 1) * span_us <= NUMBER_MAX:
        # A later key begins behind the ends of all earlier ones, so none reaches into the next key.
        begins = keys * span_us
        return np.maximum.accumulate(ends_us - first_us + begins) - begins + first_us
    order = np.lexsort((ends_us, keys))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # A later key is ranked behind all windows of an earlier one, so none reaches into the next key.
    return ends_us[order[np.maximum.accumulate(rank)]]
