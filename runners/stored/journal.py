"""Entries of the journal as bytes: the changes that a step has made to the state of a key range.

There are four kinds: changes of cells and timers; partials that were added and are buffered as columns (`partials.py`);
`Whole`, all columns that a range buffers, which replaces all earlier entries of them; and `Released`, windows that
have no buffered columns any more.
"""

from collections.abc import Sequence
from typing import Any

from dataflow.serialization import dumps, loads
from runners.core.ground.cells import CellId, TimerId
from runners.core.open_windows.entries import Changes, Released, Whole
from runners.core.partials.partial import Partial
from runners.stored.cells import cell_fields, cell_of
from runners.stored.columns import Own, keys_column, keys_of, windows_column, windows_from
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
    places = _Places()
    number_of, own = places.number_of, list[Any]()
    cells_found = [
        (*number_of(cell_id), None if cell is None else cell_fields(cell, own))
        for cell_id, cell in cells
    ]
    timers_found = [
        (*number_of(cell_id), places.window_number(window), domain, fire_us)
        for (cell_id, window, domain), fire_us in timers
    ]
    keys = keys_column(list(places.keys), own, is_plain=is_plain)
    windows = windows_column(places.all_windows, own)
    return frame(CHANGES, keys, windows, cells_found, timers_found, dumps(own) if own else b"")


class _Places:
    """The keys and windows of cells and timers, numbered, as most of them occur several times."""

    def __init__(self) -> None:
        self.keys: dict[Any, int] = {}
        self.all_windows: list[Window] = []
        self._windows: dict[Any, int] = {}

    def number_of(self, cell_id: CellId) -> tuple[int, int | None]:
        key, window = cell_id
        keys = self.keys
        number = keys.setdefault(key, len(keys))
        return number, None if window is None else self.window_number(window)

    def window_number(self, window: Window) -> int:
        # A window of a user's class equals a plain one with the same bounds.
        known = window if type(window) is Window else (type(window), window)
        number = self._windows.get(known)
        if number is None:
            number = self._windows[known] = len(self.all_windows)
            self.all_windows.append(window)
        return number


def _changes_of(fields: list[Any]) -> Changes:
    key_column, window_column, cells, timers, own_blob = fields
    own = Own(loads(own_blob) if own_blob else ())
    states = [None if fields is None else cell_of(fields, own) for _, _, fields in cells]
    keys, windows = keys_of(key_column, own), windows_from(window_column, own)
    return Changes(
        [
            ((keys[key], None if window is None else windows[window]), state)
            for (key, window, _), state in zip(cells, states, strict=True)
        ],
        [
            (
                (
                    (keys[key], None if window is None else windows[window]),
                    windows[about],
                    _DOMAINS[domain],
                ),
                fire_us,
            )
            for key, window, about, domain, fire_us in timers
        ],
    )


def encode_whole(entry: Whole) -> bytes:
    """All columns that a range buffers, as an entry."""
    return frame(WHOLE, list(map(columns_fields, entry.parts)))


def encode_released(entry: Released) -> bytes:
    """Windows that are in cells from here on, as an entry."""
    own: list[Any] = []
    windows = windows_column(entry.windows, own)
    return frame(RELEASED, windows, dumps(own) if own else b"")


def decode_entry(
    blob: bytes, combiners: Combiners
) -> Changes | Whole | Released | Sequence[Partial]:
    """An entry of the journal, of any kind.

    Args:
        blob: the entry.
        combiners: of the grouping.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    kind, fields = opened(blob)
    if kind == CHANGES:
        return _changes_of(fields)
    if kind == WHOLE:
        return Whole([columns_of(each, combiners) for each in fields[0]])
    if kind == RELEASED:
        windows, own_blob = fields
        return Released(windows_from(windows, Own(loads(own_blob) if own_blob else ())))
    if kind == PARTIALS:
        return partials_of(fields, combiners)
    raise wrong_kind(kind, "an entry of the journal")
