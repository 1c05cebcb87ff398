"""EntryPieces: what is kept of a key range as entries of its journal, each no larger than the store takes.

**Laws**

* The entries, read and applied in their order, have what was given, each part of it once.
* An entry is no larger than a value may be; what cannot be divided and is larger is refused by its key.
"""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from runners.core.ground.cells import CellId, TimerId
from runners.core.partials.partial import Partial
from runners.core.stages.entries import Noted, Released, Whole
from runners.millwheel.worker.sizes import Pieces, of_key
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.stored.journal import encode_changes, encode_released, encode_whole
from runners.stored.partials import encode_partials
from windowing.window import Window

CellChanges = list[tuple[CellId, Any]]
TimerChanges = list[tuple[TimerId, int | None]]


class EntryPieces:
    """Encodes entries for the journals of one grouping.

    Args:
        where: the grouping, for the error: "transform 'sum' (main.py:7)".
        value_bytes_max: of an entry.
        steps: how large an entry should be, unless it is of a single thing.
    """

    def __init__(self, where: str, value_bytes_max: int, steps: StepLimits = STEP_LIMITS) -> None:
        def of_change(change: tuple[CellId, Any]) -> str:
            return of_key(where, "keep the state", change[0][0])

        def of_row(row: Partial) -> str:
            return of_key(where, "keep the state", row[0])

        def of_window(window: Window) -> str:
            return f"{where} cannot keep its window {window}"

        self._changes = Pieces(value_bytes_max, of_change, steps)
        self._rows = Pieces(value_bytes_max, of_row, steps)
        self._windows = Pieces(value_bytes_max, of_window, steps)

    def changes(
        self, cells: CellChanges, timers: TimerChanges
    ) -> list[tuple[CellChanges, bytes, int]]:
        """Make entries for changes, each with its cells, and about how many bytes one of these has.

        Args:
            cells: their new state; None if deleted.
            timers: their new instants, in microseconds; None if cleared.

        Raises:
            TransformError: one of them is too large.
        """
        found = []
        for piece, payload in self._changes.of(_Changes(cells, timers), _encoded):
            assert isinstance(piece, _Changes)
            size = len(payload) // (len(piece.cells) + len(piece.timers))
            found.append((piece.cells, payload, size))
        return found

    def noted(self, noted: Noted) -> list[tuple[int, bytes]]:
        """Make entries for what has changed beside cells, each with how many rows it has.

        Args:
            noted: what has changed; none for windows that have fired.

        Raises:
            TransformError: a row is too large.
        """
        entry = noted.entry
        if entry is None:
            return []
        if isinstance(entry, Released):
            pieces = self._windows.of(entry.windows, _encoded_release)
            return [(0, payload) for _, payload in pieces]
        if noted.received is not None:
            # It was sent in this form, so its size has been limited.
            return [(len(entry), noted.received)]
        return [(len(piece), payload) for piece, payload in self._rows.of(entry, encode_partials)]

    def whole(self, parts: Sequence[Sequence[Partial]]) -> Iterator[tuple[int, bytes]]:
        """Yield entries for all that a range buffers, and the rows in each; the first replaces whatever came before.

        Args:
            parts: the partials.

        Raises:
            TransformError: a row is too large.
        """
        if parts:
            yield 0, encode_whole(Whole())
        for part in parts:
            for piece, payload in self._rows.of(part, encode_partials):
                yield len(piece), payload


class _Changes(Sequence[tuple[CellId, Any]]):
    """Changes of cells, and behind them of timers, each with the cell that it is about."""

    def __init__(self, cells: CellChanges, timers: TimerChanges) -> None:
        self.cells, self.timers = cells, timers

    def __len__(self) -> int:
        return len(self.cells) + len(self.timers)

    @overload
    def __getitem__(self, index: int) -> tuple[CellId, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> "_Changes": ...

    def __getitem__(self, index: int | slice) -> "tuple[CellId, Any] | _Changes":
        count = len(self.cells)
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            first, last = max(0, start - count), max(0, stop - count)
            return _Changes(self.cells[start:stop], self.timers[first:last])
        if index < count:
            return self.cells[index]
        (cell_id, _, _), fire_us = self.timers[index - count]
        return cell_id, fire_us


def _encoded(changes: Sequence[tuple[CellId, Any]]) -> bytes:
    assert isinstance(changes, _Changes)
    return encode_changes(changes.cells, changes.timers)


def _encoded_release(windows: Sequence[Window]) -> bytes:
    return encode_released(Released(windows))
