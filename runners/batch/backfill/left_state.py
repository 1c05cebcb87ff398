"""LeftState: cells, pages and timers that a backfill leaves to the stream, as the store keeps them."""

from collections.abc import Sequence
from typing import Any

from runners.core.ground.cells import CellId, PageId
from runners.core.ground.key_codec import KeyCodec
from runners.core.stages.entries import Changes
from runners.millwheel.cell_codec import encode_window, stored_cell_key
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
        self._pages: list[CellWrite] = []
        #: The size of what waits for a commit, in bytes; of pages by themselves.
        self.size_bytes = self.pages_bytes = 0

    def add(self, changes: Changes) -> None:
        """Keep cells and timers as they are when the backfill ends."""
        for cell_id, cell in changes.cells:
            if isinstance(cell_id, PageId):
                self.add_page(cell_id, encode_cell(cell))
                continue
            write = self._cell_write(cell_id, encode_cell(cell))
            self._cells.append(write)
            self.size_bytes += _size_bytes(write)
        for (cell_id, window, domain), fire_us in changes.timers:
            key_hash, cell_key = self._key(cell_id)
            tag = encode_window(window)
            self._timers.append(
                TimerWrite(self._computation, key_hash, cell_key, tag, domain, fire_us)
            )
            self.size_bytes += len(cell_key) + len(tag) + _WRITE_BYTES

    def add_page(self, page_id: PageId, value: bytes) -> None:
        """Keep a page of a cell.

        Args:
            page_id: of the page.
            value: the page as a cell that is stored.
        """
        write = self._cell_write(page_id, value)
        self._pages.append(write)
        self.pages_bytes += _size_bytes(write)

    def take_pages(self) -> Sequence[CellWrite]:
        """The pages alone, in the order in which the store keeps them; none is left here."""
        pages, self._pages, self.pages_bytes = self._pages, [], 0
        return sorted(pages)

    def take(self) -> dict[str, Any]:
        """Parts of a production, in the order in which the store keeps them; nothing is left here."""
        cells, timers = [*self._cells, *self.take_pages()], self._timers
        self._cells, self._timers, self.size_bytes = [], [], 0
        return {"cells": sorted(cells), "timers": sorted(timers)}

    def _cell_write(self, cell_id: CellId, value: bytes) -> CellWrite:
        return CellWrite(self._computation, *self._key(cell_id), value)

    def _key(self, cell_id: CellId) -> tuple[int, bytes]:
        key = self._codec.encode(cell_id[0])
        return key.hash, stored_cell_key(cell_id, key.encoded)


def _size_bytes(write: CellWrite) -> int:
    return len(write.cell_key) + len(write.value or b"") + _WRITE_BYTES
