"""ConfirmedReads: reads of the store for computations, each of which waits for the commit that is under way.

What has gone from memory is in the store as of the last commit; read before that has an outcome, it could be of the
commit before, and the worker would go on from it if the last one turns out to have happened.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import CellKey, Fenced
from runners.millwheel.worker.dedup.seen_ids import IdTable
from runners.millwheel.worker.state.stored_cells import CellTable


class StateTable(CellTable, IdTable, Protocol):
    """The part of `runners.millwheel.store.port.Store` that computations read."""


class ConfirmedReads:
    """Reads cells and ids; see the module.

    Args:
        store: has them.
        confirm: waits until all commits are durable; raises if one is not.
    """

    def __init__(self, store: StateTable, confirm: Callable[[], None]) -> None:
        self._store, self._confirm = store, confirm

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read cells of ranges; `runners.millwheel.store.port.Store.read_cells`.

        Args:
            job: its name.
            computation: that has the cells.
            tokens: the caller's, by range.
            keys: of the cells.
        """
        self._confirm()
        return self._store.read_cells(job, computation, tokens, keys)

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read the next cells of a range; `runners.millwheel.store.port.Store.read_cell_page`.

        Args:
            job: its name.
            range_id: of the key range.
            token: the caller's.
            first_hash: the first key hash of the page.
            cells: about how many.
        """
        self._confirm()
        return self._store.read_cell_page(job, range_id, token, first_hash, cells)

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        """Find which ids a range has; `runners.millwheel.store.port.Store.known_record_ids`.

        Args:
            job: its name.
            range_id: of the split.
            digests: of the ids.
        """
        self._confirm()
        return self._store.known_record_ids(job, range_id, digests)

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """Read a page of a range's ids; `runners.millwheel.store.port.Store.read_record_ids`.

        Args:
            job: its name.
            range_id: of the split.
            after: the last digest of the page before; empty: from the first.
            count: at most so many.
        """
        self._confirm()
        return self._store.read_record_ids(job, range_id, after, count)
