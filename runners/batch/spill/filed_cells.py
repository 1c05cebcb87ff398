"""FiledCells: the cells of a task whose pages are in a file, but for as many as fit into memory.

State that is large, and belongs to one key, is put into pages (`dataflow.paged_state`) where it cannot be divided among
buckets.  The cache is that of a stream, which has a store in place of the file.  A page is written when memory is
full and it has changed, and takes a place that is free.

**Invariant:** cells that are no pages stay in memory.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import IO, Any

from runners.core.ground.cells import CellId, Page, PageId
from runners.millwheel.worker.state.cell_cache import CellCache
from runners.stored.cells import encode_cell

#: The smallest place of a page in the file; a place has a power of two times as many bytes.
_PLACE_BYTES = 4_096


class PageFile:
    """Pages by their ids, in a file that no other process sees and that goes with this process."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0
        #: Where each page is, how many bytes it has, and how large its place is.
        self._places: dict[PageId, tuple[int, int, int]] = {}
        self._free: dict[int, list[int]] = defaultdict(list)

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        return self._end

    def write(self, page_id: PageId, blob: bytes) -> None:
        """Write a page, in place of what it was.

        Args:
            page_id: of the page.
            blob: what is in it.

        Raises:
            OSError: the temporary directory is full.
        """
        if self._file is None:
            # Closed by the owner of this object: the file outlives every block here.
            self._file = TemporaryFile(prefix="dataflow-pages-", buffering=0)  # noqa: SIM115 - closed by its owner, or with the process
        room = _PLACE_BYTES
        while room < len(blob):
            room *= 2
        self.delete(page_id)
        if self._free[room]:
            at = self._free[room].pop()
        else:
            at, self._end = self._end, self._end + room
        self._places[page_id] = at, len(blob), room
        written = 0
        while written < len(blob):
            written += os.pwrite(self._file.fileno(), blob[written:], at + written)

    def __iter__(self) -> Iterator[PageId]:
        return iter(list(self._places))

    def delete(self, page_id: PageId) -> None:
        """Free the place of a page, if it has one."""
        at, _, room = self._places.pop(page_id, (0, 0, 0))
        if room:
            self._free[room].append(at)

    def read(self, cell_ids: Sequence[CellId]) -> Iterator[tuple[CellId, bytes]]:
        """Read those pages that the file has."""
        for cell_id in cell_ids:
            if isinstance(cell_id, PageId) and cell_id in self._places:
                assert self._file is not None
                at, nbytes, _ = self._places[cell_id]
                # At its place, as a process that tries user code shares the file.
                yield cell_id, os.pread(self._file.fileno(), nbytes, at)

    def close(self) -> None:
        """Close the file, which frees its space."""
        if self._file is not None:
            self._file.close()


class FiledCells(CellCache):
    """Cells in memory, and as many of their pages as fit; call `changed` after each step.

    Args:
        file: has the others.
        bytes_max: how many bytes of pages stay in memory.
    """

    def __init__(self, file: PageFile, bytes_max: int) -> None:
        super().__init__(file.read, bytes_max)
        self._file = file

    def changed(self, cell_ids: Iterable[CellId]) -> None:
        """Note cells that a step has changed, and write pages where these do not fit.

        Args:
            cell_ids: of cells and pages; those that are not there are gone.
        """
        for cell_id in cell_ids:
            cell = self.get(cell_id)
            if isinstance(cell_id, PageId):
                self.wrote([(cell_id, cell)], 0 if cell is None else len(cell.pack()))
        if self.is_full:
            self._write()
        # In the step pages were read that may go again.
        self.trim()

    def evicted(self) -> Iterator[tuple[PageId, bytes]]:
        """The pages that are in the file alone, as bytes of cells."""
        absent = [each for each in self._file if each not in self and each not in self.uncommitted]
        for page_id in absent:
            ((_, blob),) = self._file.read([page_id])
            yield page_id, blob

    def _evict(self, cell_id: CellId) -> None:
        # A step that is under way may have deleted it already.
        if cell_id in self:
            super()._evict(cell_id)

    def _write(self) -> None:
        written = list(self.uncommitted)
        then = self.compact(written)
        for page_id in written:
            assert isinstance(page_id, PageId)
            page: Any = self.get(page_id)
            if isinstance(page, Page):
                self._file.write(page_id, encode_cell(page))
            else:
                self._file.delete(page_id)
        then()
