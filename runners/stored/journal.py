"""Entries of the journal as bytes: the changes that a step has made to the state of a key range.

There are four kinds: changes of cells and timers; partials that were added and are buffered (`partials.py`); `Whole`,
before all partials that a range buffers, which replaces all earlier entries of them; and `Released`, windows of which
nothing is buffered any more.
"""

from collections.abc import Callable, Sequence
from typing import Any

from runners.core.ground.cells import CellId, PageId, TimerId
from runners.core.partials.partial import Partial
from runners.core.stages.entries import Changes, Released, Whole
from runners.stored.cells import cell_fields, cell_of
from runners.stored.columns import (
    Own,
    keys_column,
    keys_of,
    own_blob,
    own_of,
    windows_column,
    windows_from,
)
from runners.stored.framing import frame, opened, wrong_kind
from runners.stored.partials import PARTIALS, Combiners, columns_fields, columns_of, partials_of
from windowing.time_domain import TimeDomain
from windowing.window import Window

CHANGES, WHOLE, RELEASED = "changes", "whole", "released"
_DOMAINS = {domain.value: domain for domain in TimeDomain}


def encode_changes(
    cells: Sequence[tuple[CellId, Any]], timers: Sequence[tuple[TimerId, int | None]]
) -> bytes:
    """Changes of cells and timers as an entry.

    Args:
        cells: their new state; None if deleted.
        timers: their new instant, in microseconds; None if cleared.

    Raises:
        PipelineError: a value in them is not plain data.
    """
    try:
        return _encoded(cells, timers, is_plain=True)
    except (OverflowError, UnicodeEncodeError):
        # Keys that MessagePack cannot represent.
        return _encoded(cells, timers, is_plain=False)


def _encoded(
    cells: Sequence[tuple[CellId, Any]],
    timers: Sequence[tuple[TimerId, int | None]],
    *,
    is_plain: bool,
) -> bytes:
    own: list[Any] = []
    places = _Places()
    numbers, window_number = places.keys, places.window_number
    cells_found = []
    # Most cells of a step are of one window, or of a few in turn.
    window, number = None, None
    for cell_id, cell in cells:
        if cell_id[1] is not window:
            window = cell_id[1]
            number = None if window is None else window_number(window)
        found: tuple[Any, ...] = (
            numbers.setdefault(cell_id[0], len(numbers)),
            number,
            None if cell is None else cell_fields(cell, own),
        )
        cells_found.append(found if len(cell_id) == 2 else found + cell_id[2:])
    timers_found = []
    for (timed, about, domain), fire_us in timers:
        key_number = numbers.setdefault(timed[0], len(numbers))
        at = None if timed[1] is None else window_number(timed[1])
        timers_found.append((key_number, at, window_number(about), domain, fire_us))
    keys = keys_column(list(numbers), own, is_plain=is_plain)
    windows = windows_column(places.all_windows, own)
    return frame(CHANGES, keys, windows, cells_found, timers_found, own_blob(own))


class _Places:
    """The keys and windows of cells and timers, numbered, as most of them occur several times."""

    __slots__ = ("_windows", "all_windows", "keys")

    def __init__(self) -> None:
        self.keys: dict[Any, int] = {}
        self.all_windows: list[Window] = []
        self._windows: dict[Any, int] = {}

    def window_number(self, window: Window) -> int:
        # A window of a user's class equals a plain one with the same bounds.
        known = window if type(window) is Window else (type(window), window)
        number = self._windows.get(known)
        if number is None:
            number = self._windows[known] = len(self.all_windows)
            self.all_windows.append(window)
        return number


def _changes_of(fields: list[Any], read_own: Callable[[bytes], Own]) -> Changes:
    key_column, window_column, cells, timers, blob_of_own = fields
    own = read_own(blob_of_own)
    states = [None if each[2] is None else cell_of(each[2], own) for each in cells]
    keys, windows = keys_of(key_column, own), windows_from(window_column, own)
    found: list[tuple[CellId, Any]] = []
    for (key, window, _, *page), state in zip(cells, states, strict=True):
        cell_id = keys[key], None if window is None else windows[window]
        found.append((_page_id(cell_id, *page) if page else cell_id, state))
    set_timers: list[tuple[TimerId, int | None]] = []
    for key, window, about, domain, fire_us in timers:
        of_cell = keys[key], None if window is None else windows[window]
        set_timers.append(((of_cell, windows[about], _DOMAINS[domain]), fire_us))
    return Changes(found, set_timers)


def _page_id(cell_id: tuple[Any, Window | None], state: Any, number: int) -> PageId:
    return PageId(*cell_id, state if type(state) is str else tuple(state), number)


def encode_whole(entry: Whole) -> bytes:
    """The entry that makes all earlier partials of a range void."""
    return frame(WHOLE, list(map(columns_fields, entry.parts)))


def encode_released(entry: Released) -> bytes:
    """Windows that are in cells from here on, as an entry."""
    own: list[Any] = []
    windows = windows_column(entry.windows, own)
    return frame(RELEASED, windows, own_blob(own))


def decode_entry(
    blob: bytes, combiners: Combiners, read_own: Callable[[bytes], Own] = own_of
) -> Changes | Whole | Released | Sequence[Partial]:
    """An entry of the journal, of any kind.

    Args:
        blob: the entry.
        combiners: of the grouping.
        read_own: reads users' values.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    kind, fields = opened(blob)
    if kind == CHANGES:
        return _changes_of(fields, read_own)
    if kind == WHOLE:
        return Whole([columns_of(each, combiners) for each in fields[0]])
    if kind == RELEASED:
        windows, blob_of_own = fields
        return Released(windows_from(windows, read_own(blob_of_own)))
    if kind == PARTIALS:
        return partials_of(fields, combiners, read_own)
    raise wrong_kind(kind, "an entry of the journal")
