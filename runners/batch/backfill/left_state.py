"""LeftState: cells and timers that a backfill leaves to the stream, as the store keeps them."""

from typing import Any

from runners.core.ground.cells import CellId
from runners.core.ground.key_codec import KeyCodec
from runners.core.stages.entries import Changes
from runners.millwheel.cell_codec import encode_cell_key, encode_window
from runners.millwheel.model.production import CellWrite, TimerWrite
from runners.stored.cells import encode_cell

#: The memory that a cell or a timer takes beside its content, in bytes.
_WRITE_BYTES = 200


class LeftState:
    """Cells and timers of one key range, until they are committed.

    Args:
        computation: that the range belongs to.
        codec: of its keys.
    """

    def __init__(self, computation: str, codec: KeyCodec) -> None:
        self._computation, self._codec = computation, codec
        self._cells: list[CellWrite] = []
        self._timers: list[TimerWrite] = []
        #: The size of what waits for a commit, in bytes.
        self.size_bytes = 0

    def add(self, changes: Changes) -> None:
        """Keep cells and timers as they are when the backfill ends."""
        for cell_id, cell in changes.cells:
            key_hash, cell_key = self._key(cell_id)
            value = encode_cell(cell)
            self._cells.append(CellWrite(self._computation, key_hash, cell_key, value))
            self.size_bytes += len(cell_key) + len(value) + _WRITE_BYTES
        for (cell_id, window, domain), fire_us in changes.timers:
            key_hash, cell_key = self._key(cell_id)
            tag = encode_window(window)
            self._timers.append(
                TimerWrite(self._computation, key_hash, cell_key, tag, domain, fire_us)
            )
            self.size_bytes += len(cell_key) + len(tag) + _WRITE_BYTES

    def take(self) -> dict[str, Any]:
        """Parts of a production, in the order in which the store keeps them; nothing is left here."""
        cells, timers = self._cells, self._timers
        self._cells, self._timers, self.size_bytes = [], [], 0
        return {"cells": sorted(cells), "timers": sorted(timers)}

    def _key(self, cell_id: CellId) -> tuple[int, bytes]:
        key = self._codec.encode(cell_id[0])
        return key.hash, encode_cell_key(cell_id[1], key.encoded)
