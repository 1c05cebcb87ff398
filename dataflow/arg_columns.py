"""How values with the greatest or the least rank are chosen in columns (`dataflow.selections.ArgMaxCombineFn`)."""

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.arrow_numbers import array_of
from dataflow.column_combine_fn import Accumulators, ColumnCombineFn, ColumnGroups
from dataflow.element_digests import element_digest
from windowing.window_columns import Int64s


@attrs.frozen
class ArgExtremeColumns(ColumnCombineFn):
    """Two arrays: of each group the value that is chosen, and its rank."""

    is_greatest: bool

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """The best of each group; None unless inputs are pairs of numbers, and no rank is NaN."""
        if not pa.types.is_struct(values.type) or values.type.num_fields != 2:
            return None
        chosen, ranks = map(self.numbers, values.flatten())
        if chosen is None or ranks is None or (ranks.dtype == np.float64 and np.isnan(ranks).any()):
            return None
        return self.merge((chosen, ranks), groups)

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators:
        """The best of each group of the chosen."""
        values, ranks = accumulators
        best = groups.reduced(np.maximum if self.is_greatest else np.minimum, ranks)
        group_of = np.repeat(np.arange(len(groups)), groups.counts)
        is_best = ranks[groups.order] == best[group_of]
        rows, group_of = groups.order[is_best], group_of[is_best]
        # Groups follow each other, and each has one at least.
        firsts = np.flatnonzero(np.diff(group_of, prepend=-1))
        chosen = rows[firsts]
        for group in np.flatnonzero(np.diff(firsts, append=len(rows)) > 1).tolist():
            start = firsts[group]
            stop = firsts[group + 1] if group + 1 < len(firsts) else len(rows)
            chosen[group] = _of_equals(values, rows[start:stop])
        return values[chosen], ranks[chosen]

    def results(self, accumulators: Accumulators) -> pa.Array:
        """The chosen values."""
        return array_of(accumulators[0])


def _of_equals(values: NDArray[np.generic], rows: Int64s) -> int:
    """The row, of several with the same rank, that the digest of its value chooses."""
    _, at = np.unique(values[rows], return_index=True)
    distinct: list[int] = rows[at].tolist()
    if len(distinct) == 1:
        return distinct[0]
    return max(distinct, key=lambda row: element_digest(values[row].item()))
