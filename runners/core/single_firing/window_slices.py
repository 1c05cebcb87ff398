"""WindowSlices: combines windows that overlap from partials of slices, in which each element was folded once.

A slice (`WindowFn.slice_fn`) lies in several windows, so what is in it is used for each of them and must not change:
accumulators that might are copied.  Windows come in the order of their ends, each when nothing is to come for it any
more, so only slices are kept, and the panes of one window.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dataflow.columns import IntColumn, WindowColumn
from runners.core.columns.partials import PartialColumns
from runners.core.columns.windows import assigned
from runners.core.partials.folding import is_immutable
from runners.core.partials.partial import Partial
from windowing.checks import checked_assignment
from windowing.window import Window
from windowing.window_columns import Int64s
from windowing.window_fn import WindowFn

#: Partials of windows that are made of columns of slices in one go, unless one window has more.
COLUMN_PARTIALS = 500_000

_window_of = itemgetter(1)


class _Slice(NamedTuple):
    """What is in one slice.

    Attributes:
        partials: one for each key.
        is_fixed: whether none of their accumulators can change.
    """

    partials: list[Partial]
    is_fixed: bool

    @classmethod
    def of(cls, partials: list[Partial]) -> _Slice:
        """A slice of these partials."""
        return cls(partials, all(is_immutable(each[2]) for each in partials))


class WindowSlices:
    """The windows of one grouping.

    Args:
        window_fn: assigns them; the partials are those of its slices.
        merged: merges accumulators into one, and may change the first.
    """

    def __init__(self, window_fn: WindowFn, merged: Callable[[Sequence[Any]], Any]) -> None:
        self._window_fn, self._merged = window_fn, merged

    def windows(self, slices: Iterable[Partial]) -> Iterator[Partial]:
        """One partial for each key and window, in the order of the ends of windows.

        Args:
            slices: one for each key and slice, in the order of the starts of slices.

        Raises:
            TransformError: the `CombineFn` failed.
        """
        return chain.from_iterable(self._by_window(slices))

    def _by_window(self, slices: Iterable[Partial]) -> Iterator[list[Partial]]:
        is_open: dict[Window, list[_Slice]] = {}
        for piece, partials in groupby(slices, _window_of):
            yield from self._ended(is_open, piece.start_us)
            found = _Slice.of(list(partials))
            ((*windows,),) = checked_assignment(self._window_fn, [piece.start_us], [None])
            for window in windows:
                is_open.setdefault(window, []).append(found)
        yield from self._ended(is_open, None)

    def _ended(
        self, is_open: dict[Window, list[_Slice]], by_us: int | None
    ) -> Iterator[list[Partial]]:
        """The windows that have ended by an instant, which are open no more; None: all."""
        ended = [each for each in is_open if by_us is None or each.end_us <= by_us]
        for window in sorted(ended, key=_end_first):
            yield self._window(window, is_open.pop(window))

    def _window(self, window: Window, slices: Sequence[_Slice]) -> list[Partial]:
        together: dict[Any, Any] = {}
        for each in slices:
            for partial in each.partials:
                key = partial[0]
                known = together.get(key)
                if known is None:
                    together[key] = partial
                elif type(known) is list:
                    known.append(partial)
                else:
                    together[key] = [known, partial]
        merged, is_fixed = self._merged, all(each.is_fixed for each in slices)
        found: list[Partial] = []
        for known in together.values():
            if type(known) is list:
                accumulators = [each[2] for each in known]
                if not is_fixed:
                    accumulators = list(map(_copied, accumulators))
                count = sum([each[3] for each in known])
                found.append((known[0][0], window, merged(accumulators), count))
            else:
                key, _, accumulator, count = known
                found.append(
                    (key, window, accumulator if is_fixed else _copied(accumulator), count)
                )
        return found

    def columns(self, slices: PartialColumns) -> Iterator[PartialColumns] | None:
        """The partials of windows, several for a key and window; those of a window are together.

        Parts have the windows in the order of their ends.  None where windows have to be assigned one by one.

        Args:
            slices: one for each key and slice.
        """
        sorted_slices = slices.take(np.argsort(slices.windows.starts_us, kind="stable"))
        starts_us = sorted_slices.windows.starts_us
        firsts = np.flatnonzero(np.diff(starts_us, prepend=starts_us[0] - 1))
        found = assigned(self._window_fn, IntColumn(starts_us[firsts]))
        if found is None:
            return None
        elements, windows = found
        of_slice = np.arange(len(firsts)) if elements is None else np.asarray(elements)
        return _parts(sorted_slices, firsts, of_slice, windows)


def _parts(
    slices: PartialColumns, firsts: Int64s, of_slice: Int64s, windows: WindowColumn
) -> Iterator[PartialColumns]:
    """The partials of slices, for each window of theirs, some windows at a time.

    Args:
        slices: in the order of their starts.
        firsts: where each slice begins among them.
        of_slice: for each pair of a slice and a window of it, the number of the slice.
        windows: the window of each pair.
    """
    order = np.lexsort((of_slice, windows.starts_us, windows.ends_us))
    of_slice = of_slice[order]
    starts_us, ends_us = windows.starts_us[order], windows.ends_us[order]
    sizes = np.diff(firsts, append=len(slices))[of_slice]
    sums = np.cumsum(sizes)
    is_new = (np.diff(starts_us, prepend=starts_us[0]) != 0) | (
        np.diff(ends_us, prepend=ends_us[0]) != 0
    )
    bounds = [*np.flatnonzero(is_new).tolist(), len(order)]
    begin = 0
    for end, after in zip(bounds, [*bounds[1:], None], strict=True):
        before = int(sums[begin - 1]) if begin else 0
        if after is not None and int(sums[after - 1]) - before <= COLUMN_PARTIALS:
            continue
        part = slice(begin, end)
        each = sizes[part]
        skipped = np.cumsum(each) - each
        at = np.arange(int(each.sum())) + np.repeat(firsts[of_slice[part]] - skipped, each)
        yield slices.take(at).in_windows(
            WindowColumn(
                np.repeat(starts_us[part], each), np.repeat(ends_us[part], each), windows.size_us
            )
        )
        begin = end


def _copied(accumulator: Any) -> Any:
    """An accumulator that can be changed without the other."""
    if is_immutable(accumulator):
        return accumulator
    if type(accumulator) is list and all(map(is_immutable, accumulator)):
        return accumulator.copy()
    if type(accumulator) is tuple:
        return tuple(map(_copied, accumulator))
    return copy.deepcopy(accumulator)


def _end_first(window: Window) -> tuple[int, int]:
    return window.end_us, window.start_us
