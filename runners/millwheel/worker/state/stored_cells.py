"""StoredCells: the cells of one computation in the store, as the owner of its ranges reads them between two commits.

Reading locks nothing.  That is safe because a range has one writer, which is the reader; and a worker that has lost a
range without knowing reads nothing any more: the store reads the tokens and the cells in the same instant, so what
it returns is never newer than what the reader has committed itself.  The fence of the commit alone would not be enough:
user code that gets a record together with the state after that record may fail, and the job with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from runners.core.ground.cells import CellId
from runners.core.ground.key_codec import KeyCodec
from runners.errors import StoreError
from runners.millwheel.cell_codec import decode_cell_id, stored_cell_key
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.store.port import CellKey, Fenced
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.sizes import StepSize
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits

#: Cells in one answer, about.
CELLS_PER_PAGE = 5_000


class CellTable(Protocol):
    """The part of `runners.millwheel.store.port.Store` that `StoredCells` needs."""

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read those of these cells that exist."""

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """The next cells of a range."""


class StoredCells:
    """The cells of one computation.

    Args:
        table: has them.
        job: its name.
        computation: its name.
        codec: of its keys.
        is_merging: whether a cell is that of a key, and not of a window of it.
        owned: the ranges of the computation that are owned here; as it is at each call.
        steps: how much is read at once.
    """

    def __init__(
        self,
        table: CellTable,
        job: str,
        computation: str,
        codec: KeyCodec,
        *,
        is_merging: bool,
        owned: Mapping[RangeId, OwnedRange],
        steps: StepLimits = STEP_LIMITS,
    ) -> None:
        self._table, self._job, self._computation = table, job, computation
        self._codec, self._is_merging, self._owned = codec, is_merging, owned
        self._page_size = StepSize(steps)

    def read(self, cell_ids: Sequence[CellId]) -> Iterator[tuple[CellId, bytes]]:
        """Read those of these cells that exist, in the order given.

        Raises:
            StoreError: another worker owns a range of the computation by now.
        """
        by_key = {self.key_of(cell_id): cell_id for cell_id in cell_ids}
        tokens = {range_id: owned.token for range_id, owned in self._owned.items()}
        found = self._table.read_cells(self._job, self._computation, tokens, list(by_key))
        if isinstance(found, Fenced):
            raise _fenced(found.range_id)
        for key, cell_id in by_key.items():
            if key in found:
                yield cell_id, found[key]

    def pages(
        self, owned: OwnedRange, first_hash: int = 0, cells: int = CELLS_PER_PAGE
    ) -> Iterator[tuple[Mapping[CellId, bytes], int]]:
        """Yield the cells of a range from a key hash on, in the order of the hashes, about so many at a time.

        Fewer where they are large, and none that are pages of the state of others.  With each page comes the hash at
        which the next one begins, 0 after the last.  Cells of one hash are never divided.

        Args:
            owned: the range; its token proves that it still is this worker's.
            first_hash: of the keys; those below are left out.
            cells: at most so many in a page, but for those with the hash of the last one.

        Raises:
            StoreError: another worker owns the range by now.
        """
        while True:
            count = self._page_size.allowed(cells)
            page = self._table.read_cell_page(
                self._job, owned.range_id, owned.token, first_hash, count
            )
            if isinstance(page, Fenced):
                raise _fenced(page.range_id)
            last_hash = max(page, default=(KEY_SPACE_END, b""))[0]
            self._page_size.caused(len(page), sum(map(len, page.values())))
            is_last = len(page) < count or last_hash + 1 >= KEY_SPACE_END
            first_hash = 0 if is_last else last_hash + 1
            yield {self._id_of(key): value for (_, key), value in page.items()}, first_hash
            if is_last:
                return

    def key_of(self, cell_id: CellId) -> CellKey:
        """The key hash and cell key by which the store has a cell."""
        encoded = self._codec.encode(cell_id[0])
        return encoded.hash, stored_cell_key(cell_id, encoded.encoded)

    def _id_of(self, cell_key: bytes) -> CellId:
        return decode_cell_id(cell_key, is_merging=self._is_merging)


def _fenced(range_id: RangeId) -> StoreError:
    return StoreError(
        f"{range_id} is owned by another worker by now",
        hint="this worker stops, and its successor goes on from what is committed",
    )
