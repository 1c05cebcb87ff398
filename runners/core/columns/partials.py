"""Partials as columns: built, merged and divided among key ranges without an object for each.

`PartialColumns` is a sequence of ordinary partials (`runners.core.partials.lifting`), so code that does not know
columns can use it as well.  Where columns do not suffice, functions here return None, and values are folded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.arrow_numbers import array_of, numbers_of
from dataflow.column_combine_fn import Accumulators, ColumnCombineFn, ColumnGroups
from dataflow.columns import Column, PairColumns, WindowColumn, key_values
from runners.core.columns.checks import checked
from runners.core.ground.bundle import Bundle
from windowing.column_merging import begins_chain
from windowing.column_order import NUMBER_MAX, argsorted, by_key_and_start, joint_numbers
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_columns import Int64s

LabelT = TypeVar("LabelT", bound=Hashable)

Bools = NDArray[np.bool_]


class PartialColumns(Column[tuple[Any, Any, Any, int]]):
    """Partials of one grouping as columns.

    Args:
        keys: the columns of the key.
        windows: of each partial.
        counts: the number of records in each partial.
        accumulators: the arrays of each combiner.
        combiners: fold the values.
        is_single: whether the key is the value of its only column, and not a tuple.
    """

    def __init__(
        self,
        keys: tuple[pa.Array, ...],
        windows: WindowColumn,
        counts: Int64s,
        accumulators: tuple[Accumulators, ...],
        *,
        combiners: tuple[ColumnCombineFn, ...],
        is_single: bool,
    ) -> None:
        self.keys, self.windows, self.counts = keys, windows, counts
        self.accumulators, self.combiners, self.is_single = accumulators, combiners, is_single

    def __len__(self) -> int:
        return len(self.counts)

    def as_batch(self) -> tuple[pa.RecordBatch, list[Any]]:
        """The columns as a record batch, and plain values that say which is which, but not how they are folded."""
        columns = [self.windows.starts_us, self.windows.ends_us, self.counts]
        columns += [each for found in self.accumulators for each in found]
        arrays = [*self.keys, *map(array_of, columns)]
        names = [str(number) for number in range(len(arrays))]
        sizes = [len(found) for found in self.accumulators]
        shape = [len(self.keys), self.is_single, self.windows.size_us, sizes]
        return pa.RecordBatch.from_arrays(arrays, names=names), shape

    @classmethod
    def of_batch(
        cls, batch: pa.RecordBatch, shape: Sequence[Any], combiners: tuple[ColumnCombineFn, ...]
    ) -> PartialColumns:
        """The inverse of `as_batch`.

        Args:
            batch: the columns.
            shape: which of them is which.
            combiners: fold the values.
        """
        keys, is_single, size_us, sizes = shape
        columns = batch.columns
        starts_us, ends_us, counts, *arrays = [numbers_of(each) for each in columns[keys:]]
        ends = list(accumulate(sizes))
        return cls(
            canonical_columns(columns[:keys]),
            WindowColumn(starts_us, ends_us, size_us),
            counts,
            tuple(tuple(arrays[end - size : end]) for size, end in zip(sizes, ends, strict=True)),
            combiners=combiners,
            is_single=is_single,
        )

    @property
    def records(self) -> int:
        """The number of records that the partials are made of."""
        return int(self.counts.sum())

    @property
    def nbytes(self) -> int:
        """The size of the arrays, in bytes."""
        arrays = [*self.keys, self.windows.starts_us, self.windows.ends_us, self.counts]
        arrays += [each for found in self.accumulators for each in found]
        return sum(int(each.nbytes) for each in arrays)

    @property
    def schema(self) -> tuple[Any, ...]:
        """The properties that must be the same for partials of a grouping to be concatenated."""
        dtypes = [[each.dtype for each in found] for found in self.accumulators]
        # Functions by their type: those who make partials and those who read them have different instances.
        kinds = list(map(type, self.combiners))
        return ([each.type for each in self.keys], self.is_single, kinds, dtypes)

    def like(self, partials: Sequence[tuple[Any, Any, Any, int]]) -> PartialColumns | None:
        """Other partials as columns of the same types as these; None where converting back would give other values."""
        keys, windows, accumulators, counts = zip(*partials, strict=True)
        columns = [keys] if self.is_single else list(zip(*keys, strict=True))
        arrays = [_exact_keys(*each) for each in zip(columns, self.keys, strict=True)]
        folds = zip(self.combiners, zip(*accumulators, strict=True), self.accumulators, strict=True)
        founds = [each.from_rows(values, accumulators) for each, values, accumulators in folds]
        if any(each is None for each in (*arrays, *founds)):
            return None
        starts_us, ends_us = np.array(windows, np.int64).T
        size_us = self.windows.size_us
        is_same = size_us is not None and bool((ends_us - starts_us == size_us).all())
        return PartialColumns(
            tuple(each for each in arrays if each is not None),
            WindowColumn(starts_us, ends_us, size_us if is_same else None),
            np.array(counts, np.int64),
            tuple(each for each in founds if each is not None),
            combiners=self.combiners,
            is_single=self.is_single,
        )

    def take(self, indexes: Sequence[int] | Int64s) -> PartialColumns:
        """The partials at these indexes."""
        at = np.asarray(indexes, np.int64)
        taken = array_of(at)
        return self._with(lambda each: each.take(taken), lambda each: each[at])

    def in_windows(self, windows: WindowColumn) -> PartialColumns:
        """Put the same partials into other windows.

        Args:
            windows: one for each.
        """
        return PartialColumns(
            self.keys,
            windows,
            self.counts,
            self.accumulators,
            combiners=self.combiners,
            is_single=self.is_single,
        )

    def parted(self, is_chosen: Bools) -> tuple[PartialColumns, PartialColumns]:
        """The partials that are chosen, and the others."""
        chosen = int(np.count_nonzero(is_chosen))
        if is_chosen[:chosen].all():
            return self._slice(0, chosen), self._slice(chosen, len(self) - chosen)
        return self.take(np.flatnonzero(is_chosen)), self.take(np.flatnonzero(~is_chosen))

    def _slice(self, start: int, length: int) -> PartialColumns:
        run = slice(start, start + length)
        return self._with(lambda each: each.slice(start, length), lambda each: each[run])

    def _with(
        self, of_arrow: Callable[[Any], Any], of_numpy: Callable[[Any], Any]
    ) -> PartialColumns:
        windows = self.windows
        starts_us, ends_us = of_numpy(windows.starts_us), of_numpy(windows.ends_us)
        return PartialColumns(
            tuple(map(of_arrow, self.keys)),
            WindowColumn(starts_us, ends_us, windows.size_us),
            of_numpy(self.counts),
            tuple(tuple(map(of_numpy, found)) for found in self.accumulators),
            combiners=self.combiners,
            is_single=self.is_single,
        )

    def _make(self) -> list[tuple[Any, Any, Any, int]]:
        pairs = zip(self.combiners, self.accumulators, strict=True)
        accumulators = zip(*[each.rows(found) for each, found in pairs], strict=True)
        keys = key_values(self.keys, is_single=self.is_single)
        return list(zip(keys, self.windows, accumulators, self.counts.tolist(), strict=True))


def canonical_columns(keys: Iterable[pa.Array]) -> tuple[pa.Array, ...]:
    """The columns of canonical keys (`dataflow.canonical_keys`): booleans are 1 and 0."""
    return tuple(key.cast(pa.int64()) if pa.types.is_boolean(key.type) else key for key in keys)


def _exact_keys(values: Sequence[Any], like: pa.Array) -> pa.Array | None:
    kinds = {pa.int64(): int, pa.string(): str}
    if any(type(each) is not kinds[like.type] for each in values):
        return None
    try:
        return pa.array(values, like.type)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return None


def lifted_columns(
    bundle: Bundle, combiners: tuple[ColumnCombineFn, ...], *, is_merging: bool
) -> PartialColumns | None:
    """Make the partials of a bundle of pairs; None if they cannot be folded as columns.

    Args:
        bundle: the pairs.
        combiners: one for each column of values.
        is_merging: whether windows of a key that overlap merge.

    Raises:
        TransformError: a combiner returned what cannot be right; or whatever it raised.
    """
    pairs, windows = bundle.values, bundle.windows
    if not isinstance(pairs, PairColumns) or not len(pairs):
        return None
    if windows is None:
        size = len(pairs)
        starts_us, ends_us = np.full(size, MIN_TIMESTAMP_US), np.full(size, MAX_TIMESTAMP_US)
        windows = WindowColumn(starts_us, ends_us, MAX_TIMESTAMP_US - MIN_TIMESTAMP_US)
    if not isinstance(windows, WindowColumn):
        return None
    keys = canonical_columns(pairs.keys)
    groups = grouped(keys, windows, is_merging=is_merging)
    if groups is None:
        return None
    folds = zip(combiners, pairs.values, strict=True)
    accumulators = [
        checked(each, "lift", each.lift(values, groups), groups) for each, values in folds
    ]
    return _together(keys, windows, groups, groups.counts, accumulators, combiners, pairs.is_single)


def merged_columns(parts: Sequence[PartialColumns], *, is_merging: bool) -> PartialColumns | None:
    """Merge the partials of several bundles into fewer; None if they cannot be merged as columns.

    Args:
        parts: at least one.
        is_merging: whether windows of a key that overlap merge.

    Raises:
        TransformError: a combiner returned what cannot be right; or whatever it raised.
    """
    first = parts[0]
    if any(each.schema != first.schema for each in parts):
        return None
    keys = tuple(
        pa.concat_arrays(columns) for columns in zip(*[each.keys for each in parts], strict=True)
    )
    sizes = {each.windows.size_us for each in parts}
    windows = WindowColumn(
        np.concatenate([each.windows.starts_us for each in parts]),
        np.concatenate([each.windows.ends_us for each in parts]),
        sizes.pop() if len(sizes) == 1 else None,
    )
    counts = np.concatenate([each.counts for each in parts])
    arrays = [
        tuple(map(np.concatenate, zip(*founds, strict=True)))
        for founds in zip(*[each.accumulators for each in parts], strict=True)
    ]
    groups = grouped(keys, windows, is_merging=is_merging)
    if groups is None:
        return None
    folds = zip(first.combiners, arrays, strict=True)
    accumulators = [
        checked(each, "merge", each.merge(found, groups), groups, like=found)
        for each, found in folds
    ]
    counts = groups.reduced(np.add, counts)
    return _together(keys, windows, groups, counts, accumulators, first.combiners, first.is_single)


def _together(
    keys: tuple[pa.Array, ...],
    windows: WindowColumn,
    groups: ColumnGroups,
    counts: Int64s,
    accumulators: Sequence[Accumulators | None],
    combiners: tuple[ColumnCombineFn, ...],
    is_single: bool,  # noqa: FBT001 - called by pickle
) -> PartialColumns | None:
    if any(each is None for each in accumulators):
        return None
    firsts = array_of(groups.firsts)
    starts_us = windows.starts_us[groups.firsts]
    ends_us = groups.reduced(np.maximum, windows.ends_us)
    # After a merge, windows may no longer have the same size.
    is_same = windows.size_us is not None and bool((ends_us - starts_us == windows.size_us).all())
    return PartialColumns(
        tuple(each.take(firsts) for each in keys),
        WindowColumn(starts_us, ends_us, windows.size_us if is_same else None),
        counts,
        tuple(each for each in accumulators if each is not None),
        combiners=combiners,
        is_single=is_single,
    )


def grouped(
    keys: Sequence[pa.Array], windows: WindowColumn, *, is_merging: bool
) -> ColumnGroups | None:
    """Groups of rows with the same key and window; those of a key are in the order of their windows.

    None if Arrow does not compare the values of a key column as Python does.

    Args:
        keys: the columns of the key.
        windows: of the rows.
        is_merging: whether windows of a key that overlap are one group.
    """
    codes = key_codes(keys)
    if codes is None:
        return None
    starts_us, ends_us = windows.starts_us, windows.ends_us
    is_one_size = windows.size_us is not None
    if is_merging:
        order = by_key_and_start(codes, starts_us)
        ordered = codes[order], starts_us[order], ends_us[order]
        return ColumnGroups(order, np.flatnonzero(begins_chain(*ordered, is_one_size=is_one_size)))
    if is_one_size:
        return _grouped_by_start(codes, starts_us)
    order = np.lexsort((ends_us, starts_us, codes))
    is_new = [_begins_run(each[order]) for each in (codes, starts_us, ends_us)]
    return ColumnGroups(order, np.flatnonzero(np.logical_or.reduce(is_new)))


def _grouped_by_start(codes: Int64s, starts_us: Int64s) -> ColumnGroups:
    """Groups of rows with the same key and start."""
    numbers = joint_numbers(codes, starts_us)
    if numbers is None:
        order = np.lexsort((starts_us, codes))
        is_new = _begins_run(codes[order]) | _begins_run(starts_us[order])
    else:
        order = argsorted(numbers)
        is_new = _begins_run(numbers[order])
    return ColumnGroups(order, np.flatnonzero(is_new))


def _begins_run(sorted_numbers: Int64s) -> Bools:
    """Whether each of some sorted numbers is another one than the number before it."""
    is_new = np.empty(len(sorted_numbers), np.bool_)
    is_new[:1] = True
    is_new[1:] = sorted_numbers[1:] != sorted_numbers[:-1]
    return is_new


def key_codes(keys: Sequence[pa.Array]) -> Int64s | None:
    """A number from 0 on for each key: the same for equal keys, different for others; None if there is none."""
    codes: Int64s | None = None
    for key in keys:
        found = _codes(key)
        if found is None:
            return None
        if codes is None:
            codes = found
            continue
        size = int(found.max(initial=0)) + 1
        if (int(codes.max(initial=0)) + 1) * size > NUMBER_MAX:
            codes = np.unique(codes, return_inverse=True)[1]
            found = np.unique(found, return_inverse=True)[1]
            size = int(found.max(initial=0)) + 1
        codes = codes * size + found
    return codes


def divided(
    partials: PartialColumns, label_of: Callable[[Any], LabelT]
) -> Iterator[tuple[LabelT, PartialColumns]]:
    """Divide partials by the label of their key.

    Args:
        partials: of one grouping.
        label_of: returns the label of a key; called once for each key.
    """
    if len(partials):
        which, keys = distinct_keys(partials)
        yield from divided_by(partials, which, list(map(label_of, keys)))


def distinct_keys(partials: PartialColumns) -> tuple[Int64s, Sequence[Any]]:
    """The keys of partials, each once, and for each partial the index of its key.

    Args:
        partials: of one grouping, at least one.
    """
    codes = key_codes(partials.keys)
    assert codes is not None  # otherwise they could not have been grouped
    firsts, which = np.unique(codes, return_index=True, return_inverse=True)[1:]
    at = array_of(firsts)
    taken = [each.take(at) for each in partials.keys]
    return which, key_values(taken, is_single=partials.is_single)


def key_counts(partials: PartialColumns) -> tuple[list[Any], list[int]]:
    """The keys of partials, each once, and the number of partials of each.

    Args:
        partials: of one grouping, at least one.
    """
    which, keys = distinct_keys(partials)
    return list(keys), np.bincount(which).tolist()


def divided_by(
    partials: PartialColumns, which: Int64s, labels: Sequence[LabelT]
) -> Iterator[tuple[LabelT, PartialColumns]]:
    """Divide partials by their labels: ``labels[which[index]]`` is the label of the partial at an index.

    Args:
        partials: of one grouping.
        which: for each partial the index of its label.
        labels: may have the same label several times.
    """
    numbers: dict[LabelT, int] = {}
    indexes = [numbers.setdefault(label, len(numbers)) for label in labels]
    if len(numbers) == 1:
        yield next(iter(numbers)), partials
        return
    number_of = np.array(indexes)[which]
    for label, number in numbers.items():
        yield label, partials.take(np.flatnonzero(number_of == number))


def _codes(key: pa.Array) -> Int64s | None:
    if key.null_count:
        return None
    if pa.types.is_int64(key.type):
        numbers = numbers_of(key)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < 1 << 32:
            shifted: Int64s = numbers - low
            return shifted
    elif pa.types.is_boolean(key.type):
        return np.asarray(key.to_numpy(zero_copy_only=False), np.int64)
    elif not pa.types.is_string(key.type):
        return None
    return np.asarray(key.dictionary_encode().indices.to_numpy(), np.int64)
