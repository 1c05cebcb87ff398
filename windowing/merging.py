"""Merging of windows that overlap: all at once, in their order, and as they arrive; `column_merging` has columns.

Windows are half-open, so those that only touch do not overlap.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from windowing.column_merging import begins_chain
from windowing.column_order import by_key_and_start
from windowing.window import Window, windows_of
from windowing.window_columns import Int64s
from windowing.window_fn import Merge, MergingWindowFn, WindowFn

ItemT = TypeVar("ItemT")

#: From so many windows on, sorting arrays of their bounds costs less than a look at each.
_ARRAYS_MIN = 512
_start_of, _end_of = itemgetter(0), itemgetter(1)


def chains(
    keys: Sequence[Any],
    windows: Sequence[Window],
    items: Sequence[Any],
    bounds_us: tuple[Int64s, Int64s] | None = None,
) -> Iterator[tuple[Any, Window, list[Any]]]:
    """The items of each key in chains of windows that overlap; windows that only touch are in different chains.

    Args:
        keys: of the items; equal keys are one key.
        windows: of the items.
        items: as many as keys and windows.
        bounds_us: where the windows start and end, in microseconds, if there are arrays of these; None: there are not.

    Returns:
        For each chain its key, the window that spans it, and its items in the order of the starts of their windows.
    """
    if len(windows) >= _ARRAYS_MIN:
        return _chains_by_arrays(keys, bounds_us or bounds_of(windows), items)
    starts_us, ends_us = [window[0] for window in windows], [window[1] for window in windows]
    #: For each chain: its key, bounds and items; and for each key, the index of its latest chain.
    owners: list[Any] = []
    from_us: list[int] = []
    to_us: list[int] = []
    found: list[list[Any]] = []
    latest: dict[Any, int] = {}
    for index in sorted(range(len(starts_us)), key=starts_us.__getitem__):
        key, end_us = keys[index], ends_us[index]
        chain = latest.get(key)
        if chain is None or starts_us[index] >= to_us[chain]:
            latest[key] = len(found)
            owners.append(key)
            from_us.append(starts_us[index])
            to_us.append(end_us)
            found.append([items[index]])
        else:
            found[chain].append(items[index])
            to_us[chain] = max(to_us[chain], end_us)
    return zip(owners, windows_of(from_us, to_us), found, strict=True)


def bounds_of(windows: Sequence[Window]) -> tuple[Int64s, Int64s]:
    """Where windows start and where they end, in microseconds, as two arrays."""
    starts_us, ends_us = (
        np.fromiter(map(bound, windows), np.int64, len(windows)) for bound in (_start_of, _end_of)
    )
    return starts_us, ends_us


def _chains_by_arrays(
    keys: Sequence[Any], bounds_us: tuple[Int64s, Int64s], items: Sequence[Any]
) -> Iterator[tuple[Any, Window, list[Any]]]:
    """What `chains` returns, in the order of the keys, and of each key in the order of time."""
    order, firsts, from_us, to_us = _chain_columns(keys, *bounds_us)
    ordered = list(map(items.__getitem__, order.tolist()))
    owners = map(keys.__getitem__, order[firsts].tolist())
    begins = firsts.tolist()
    lists = [
        ordered[begin:end] for begin, end in zip(begins, [*begins[1:], len(items)], strict=True)
    ]
    return zip(owners, windows_of(from_us.tolist(), to_us.tolist()), lists, strict=True)


def _chain_columns(
    keys: Sequence[Any], starts_us: Int64s, ends_us: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """The order of windows by key and start, and of each chain its first place in that order, its start and its end."""
    numbers = defaultdict[Any, int](count().__next__)
    codes = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(starts_us))
    order = by_key_and_start(codes, starts_us)
    codes, starts_us, ends_us = codes[order], starts_us[order], ends_us[order]
    sizes_us = ends_us - starts_us
    is_one_size = bool((sizes_us == sizes_us[0]).all())
    firsts = np.flatnonzero(begins_chain(codes, starts_us, ends_us, is_one_size=is_one_size))
    return order, firsts, starts_us[firsts], np.maximum.reduceat(ends_us, firsts)


def joined_chains(
    keys: Sequence[Any],
    windows: Sequence[Window],
    items: Sequence[ItemT],
    join: Callable[[Any, Window, Sequence[ItemT]], ItemT],
) -> list[ItemT]:
    """Items, of which those in one of the `chains` are one; for where most are alone in theirs, and stay as they are.

    Args:
        keys: of the items; equal keys are one key.
        windows: of the items.
        items: as many as keys and windows.
        join: called with the key of a chain, the window that spans it, and its items, at least two, in the order of the
            starts of their windows; returns one item for them.
    """
    if len(windows) < _ARRAYS_MIN:
        return [
            some[0] if len(some) == 1 else join(key, window, some)
            for key, window, some in chains(keys, windows, items)
        ]
    order, firsts, from_us, to_us = _chain_columns(keys, *bounds_of(windows))
    sizes = np.diff(firsts, append=len(items))
    is_alone = sizes == 1
    joined = list(map(items.__getitem__, order[firsts[is_alone]].tolist()))
    several = ~is_alone
    spans = windows_of(from_us[several].tolist(), to_us[several].tolist())
    members = iter(order[np.repeat(several, sizes)].tolist())
    for size, window in zip(sizes[several].tolist(), spans, strict=True):
        chain = list(islice(members, size))
        joined.append(join(keys[chain[0]], window, [items[index] for index in chain]))
    return joined


def reaching_into_others(parts: Sequence[Sequence[Window]]) -> Sequence[list[bool]]:
    """Whether each window overlaps the time of another part: one that does not is in no chain with windows of these.

    Args:
        parts: windows in parts, none of which is empty.
    """
    bounds_us = [bounds_of(windows) for windows in parts]
    spans_us = [(starts_us.min(), ends_us.max()) for starts_us, ends_us in bounds_us]
    found = []
    for number, (starts_us, ends_us) in enumerate(bounds_us):
        is_reaching = np.zeros(len(starts_us), np.bool_)
        for from_us, to_us in [*spans_us[:number], *spans_us[number + 1 :]]:
            is_reaching |= (starts_us < to_us) & (ends_us > from_us)
        found.append(is_reaching.tolist())
    return found


def chains_in_order(
    windows_and_items: Iterable[tuple[Window, ItemT]], join: Callable[[ItemT, ItemT], ItemT]
) -> Iterator[tuple[Window, ItemT]]:
    """The `chains` of one key whose windows come in the order of their starts, with one item for each chain.

    No more than one chain is kept in memory, and that as one item: for a key that is too large to be there at once.

    Args:
        windows_and_items: in the order of the starts of the windows.
        join: makes one of two items that follow each other, and may change the first.

    Returns:
        For each chain the window that spans it, and its items, joined in their order.
    """
    chain: tuple[int, int, ItemT] | None = None
    for window, item in windows_and_items:
        start_us, end_us = window[0], window[1]
        if chain is None:
            chain = start_us, end_us, item
        elif start_us < chain[1]:
            chain = chain[0], max(chain[1], end_us), join(chain[2], item)
        else:
            yield Window(chain[0], chain[1]), chain[2]
            chain = start_us, end_us, item
    if chain is not None:
        yield Window(chain[0], chain[1]), chain[2]


def merge_overlapping(windows: Iterable[Window]) -> Sequence[Merge]:
    """Merge every chain of overlapping windows into the window that spans it; windows that only touch stay apart.

    It obeys the laws of merging for all windows, so a `MergingWindowFn` whose `merge_windows` returns its result only
    has to assign windows correctly.
    """
    ordered = sorted(windows)
    return [
        Merge(merged, tuple(sources))
        for _, merged, sources in chains([None] * len(ordered), ordered, ordered)
        if len(sources) > 1
    ]


def merge_arrival(windows: Iterable[Window], arrived: Window) -> Sequence[Merge]:
    """`merge_overlapping` of one window with others that do not overlap each other, without sorting them.

    Args:
        windows: of one key.
        arrived: perhaps one of them.
    """
    start_us, end_us = arrived
    touching = [window for window in windows if window[0] < end_us and start_us < window[1]]
    if not touching:
        return ()
    for low_us, high_us in touching:
        start_us = min(start_us, low_us)
        end_us = max(end_us, high_us)
    if arrived not in touching:
        touching.append(arrived)
    return (Merge(Window(start_us, end_us), tuple(touching)),)


class OverlapMergingWindowFn(MergingWindowFn):
    """A MergingWindowFn that merges overlapping windows; a subclass only assigns windows, and is grouped faster."""

    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        """Merge every chain of overlapping windows into the window that spans it."""
        return merge_overlapping(windows)


def merges_what_overlaps(window_fn: WindowFn) -> bool:
    """Whether a function merges exactly as `merge_overlapping`, so that any way with the same result may be used."""
    overlap = OverlapMergingWindowFn
    return isinstance(window_fn, overlap) and type(window_fn).merge_windows is overlap.merge_windows
