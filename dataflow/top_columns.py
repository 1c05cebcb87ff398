"""How the greatest or the least values are chosen in columns (`dataflow.selections.TopCombineFn`).

An accumulator is its values in their order: one array for each place of the order, and one that says how many places
are taken.  Only numbers are chosen so, or tuples of numbers by one of them.
"""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.arrow_numbers import array_of
from dataflow.column_combine_fn import Accumulators, ColumnCombineFn, ColumnGroups, exact_arrays
from dataflow.columns import column_values, tuples_of
from dataflow.element_digests import element_digest
from windowing.window_columns import Int64s

#: As many values are chosen in columns, at most: each accumulator has room for all of them.
SIZE_MAX = 32

#: The fields of values, each with a place for each value.
_Fields = tuple[NDArray[Any], ...]


@attrs.frozen
class TopColumns(ColumnCombineFn):
    """Arrays: of each group the number of values, and then for each place of the order the fields of the value there.

    Attributes:
        size: how many values, at most.
        is_greatest: whether the greatest are chosen, the greatest first, or the least, the least first.
        ranked_by: the field of tuples by which they are compared, from 0; None: values are numbers.
    """

    size: int
    is_greatest: bool
    ranked_by: int | None = None

    def lift(self, values: pa.Array, groups: ColumnGroups) -> Accumulators | None:
        """The first of each group; None unless inputs are numbers, or tuples of them, without NaN and -0.0."""
        fields = self._fields(values)
        if fields is None:
            return None
        group_of = np.repeat(np.arange(len(groups)), groups.counts)
        return self._chosen(tuple(each[groups.order] for each in fields), group_of, len(groups))

    def merge(self, accumulators: Accumulators, groups: ColumnGroups) -> Accumulators:
        """The first of those of each group."""
        counts, fields = self._joined(accumulators, groups.order)
        group_of = np.repeat(np.arange(len(groups)), groups.counts)
        return self._chosen(fields, np.repeat(group_of, counts), len(groups))

    def results(self, accumulators: Accumulators) -> pa.Array:
        """Lists of the values."""
        counts, fields = self._joined(accumulators)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), self._values(fields))

    def rows(self, accumulators: Accumulators) -> Sequence[Any]:
        """A list for each: of what a value is compared by, and the value."""
        counts, fields = self._joined(accumulators)
        ranks = column_values(array_of(fields[self.ranked_by or 0]))
        placed = list(zip(ranks, column_values(self._values(fields)), strict=True))
        ends = list(accumulate(counts.tolist()))
        return [placed[end - size : end] for end, size in zip(ends, counts.tolist(), strict=True)]

    def from_rows(self, rows: Sequence[Any], like: Accumulators) -> Accumulators | None:
        """The inverse of `rows`; None of lists that are too long or not in order, and of values of other types."""
        kinds = like[1 : 1 + (len(like) - 1) // self.size]
        values = [value for _, value in chain.from_iterable(rows)]
        if self.ranked_by is not None and any(
            type(each) is not tuple or len(each) != len(kinds) for each in values
        ):
            return None
        columns = [values] if self.ranked_by is None else list(zip(*values, strict=True))
        fields = exact_arrays(columns or [()] * len(kinds), kinds)
        if fields is None or any(map(_depends_on_order, fields)):
            return None
        counts = np.array([len(each) for each in rows])
        found = self._chosen(fields, np.repeat(np.arange(len(rows)), counts), len(rows))
        return found if list(self.rows(found)) == list(rows) else None

    def _fields(self, values: pa.Array) -> _Fields | None:
        """The fields of values as arrays; None if they are not chosen in columns."""
        columns = [values]
        if self.ranked_by is not None:
            if not pa.types.is_struct(values.type) or self.ranked_by >= values.type.num_fields:
                return None
            columns = values.flatten()
        found = [self.numbers(each) for each in columns]
        fields = tuple(each for each in found if each is not None)
        is_chosen = len(fields) == len(columns) and not any(map(_depends_on_order, fields))
        return fields if is_chosen else None

    def _values(self, fields: _Fields) -> pa.Array:
        """The inverse of `_fields`."""
        columns = [array_of(each) for each in fields]
        return columns[0] if self.ranked_by is None else tuples_of(columns)

    def _joined(
        self, accumulators: Accumulators, order: Int64s | None = None
    ) -> tuple[Int64s, _Fields]:
        """The number of values of each accumulator, and all their values, one accumulator after the other.

        Args:
            accumulators: of some groups.
            order: the wanted order of the accumulators; None: as they are.
        """
        at = slice(None) if order is None else order
        counts = accumulators[0][at]
        is_taken = np.arange(self.size) < counts[:, np.newaxis]
        width = (len(accumulators) - 1) // self.size
        by_field = (accumulators[1 + number :: width] for number in range(width))
        fields = (np.stack([each[at] for each in places], axis=1) for places in by_field)
        return counts, tuple(each[is_taken] for each in fields)

    def _chosen(self, fields: _Fields, group_of: Int64s, groups: int) -> Accumulators:
        """Accumulators of values.

        Args:
            fields: of the values.
            group_of: the group of each value, from 0, ascending.
            groups: how many there are; some may have no value.
        """
        ranks = fields[self.ranked_by or 0]
        order = np.lexsort((ranks, group_of))
        sizes = np.bincount(group_of, minlength=groups)
        ends = np.cumsum(sizes)
        if self.is_greatest:
            order = order[np.repeat(ends + ends - sizes - 1, sizes) - np.arange(len(order))]
        if self.ranked_by is not None:
            self._order_equals(order, fields, ranks, group_of)
        counts = np.minimum(sizes, self.size)
        found = [counts]
        for place in range(self.size):
            has_one = counts > place
            chosen = order[(ends - sizes)[has_one] + place]
            for each in fields:
                column = np.zeros(groups, each.dtype)
                column[has_one] = each[chosen]
                found.append(column)
        return tuple(found)

    def _order_equals(
        self, order: Int64s, fields: _Fields, ranks: NDArray[Any], group_of: Int64s
    ) -> None:
        """Put values of one group with the same rank into the order of their digests, as far as that matters.

        Args:
            order: of the values, by group and rank; is changed.
            fields: of the values.
            ranks: what values are compared by.
            group_of: the group of each value.
        """
        by_rank, by_group = ranks[order], group_of[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (by_group[1:] != by_group[:-1]) | (by_rank[1:] != by_rank[:-1])
        starts = np.flatnonzero(is_first)
        stops = np.append(starts[1:], len(order))
        # Behind the last place that is taken, the order of equals means nothing.
        places = starts - np.searchsorted(by_group, by_group[starts])
        for run in np.flatnonzero((stops - starts > 1) & (places < self.size)).tolist():
            rows = order[starts[run] : stops[run]]
            values = list(zip(*[each[rows].tolist() for each in fields], strict=True))
            digests = {each: element_digest(each) for each in set(values)}
            several = sorted(range(len(values)), key=lambda at: digests[values[at]])
            order[starts[run] : stops[run]] = rows[several]


def _depends_on_order(numbers: NDArray[Any]) -> bool:
    """Whether there is NaN, which has no place in an order, or -0.0, which equals 0.0 and is another value."""
    if numbers.dtype != np.float64:
        return False
    return bool(np.isnan(numbers).any() or np.signbit(numbers[numbers == 0]).any())
