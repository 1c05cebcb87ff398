"""CellCache: the cells of a grouping that are in memory, bounded in bytes; the others are in the store.

Every step makes its changes durable in the journal (`runners.millwheel.worker.state.journal`), which is compacted now
and then.  After that a cell in memory is the same as in the store, and evicting it writes nothing.  Before a step its
cells are read, all missing ones at once; after a compaction so many are evicted that the rest fits.  Those that will be
needed last, by the timers of their windows, are evicted first, and not those that were used longest ago.

**Invariants**

* The cells that a step needs are in memory, whatever the bound is: none is evicted between the read before a step and
  its end.
* A cell that is not compacted stays in memory, and is not read: the store has an older value, or one of a deleted cell.
* After a compaction the other cells in memory take no more than the bound.
* As long as nothing was evicted, a cell that is not in memory is not in the store either, and the store is not asked.
* A page of the state of a cell is read when it is used, and only if it exists: whoever asks for it knows that.
* Where pages are read in passing, and none is changed but replaced by another one, a page that is in the store as it is
  may be evicted in the middle of a step: however many a step reads, in memory are as many as fit.

The bound counts values as the store has them, and the overhead of an entry.  It does not count timers, which all stay
in memory.

MillWheel, sections 6.3 and 8.3, figure 16; ADR 0023.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from math import inf
from typing import Any, Generic, TypeVar

from runners.core.ground.cells import CellId, Page, PageId
from runners.core.stateful.cell_pages import Passing
from runners.core.stateful.keyed_state import KeyedState, MergingState
from runners.errors import StoreError
from runners.millwheel.model.counts import CacheCounts
from runners.stored.cells import decode_cell
from windowing.timestamps import MAX_TIMESTAMP_US

KeyT = TypeVar("KeyT", bound=Hashable)

#: Bytes that a cell takes in memory beside its value: its place in the mappings, its id, the objects it is made of.
ENTRY_BYTES = 1_000
#: Of so many pages that go for others in a scan, one is what came first.
_FIRST_OF_SCANNED = 32
#: Outdated entries that a queue may have before it is rebuilt.
_OUTDATED_MAX = 64


class FurthestFirst(Generic[KeyT]):
    """A queue of keys to evict: first the one needed furthest in the future, of those the one used longest ago.

    Each operation takes O(log n), amortized.
    """

    def __init__(self) -> None:
        # The running number is the order of use, and keeps keys out of comparisons.
        self._used: dict[KeyT, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._used)

    def use(self, key: KeyT, needed_us: int) -> None:
        """Note that a key is used now, and will be needed at an instant.

        Args:
            key: any; one that is there gets a new place.
            needed_us: the event time at which it will be needed again.
        """
        self._number += 1
        self._used[key] = (-needed_us, self._number)
        heappush(self._heap, (-needed_us, self._number, key))
        self._tidy()

    def forget(self, key: KeyT) -> None:
        """Forget a key that is gone, if it was there."""
        self._used.pop(key, None)
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._used) + _OUTDATED_MAX:
            self._heap = [(*place, each) for each, place in self._used.items()]
            heapify(self._heap)

    def pop(self) -> KeyT:
        """Remove and return the key to evict first.

        Raises:
            IndexError: there is none.
        """
        while True:
            *place, key = heappop(self._heap)
            if self._used.get(key) == tuple(place):
                del self._used[key]
                return key


class CellCache(dict[CellId, Any]):
    """The cells in memory: a mapping for the semantic core, which may change it in a step.

    Call `need` before a step, `wrote` for the cells that the step has changed, `compact` when cells are written to the
    store as they are, and what `compact` returns when that is committed; other steps may come in between.

    Args:
        read: reads those of some cells that the store has, as the owner of their ranges sees them.
        bytes_max: the bound; None: none, and then nothing is counted either.
    """

    def __init__(
        self,
        read: Callable[[Sequence[CellId]], Iterable[tuple[CellId, bytes]]],
        bytes_max: int | None,
    ) -> None:
        super().__init__()
        self._read, self._bytes_max = read, bytes_max
        self._writes = 0
        #: The number of the last change of a cell, until it is compacted.
        self._uncommitted: dict[CellId, int] = {}
        #: The cells in memory, or just gone, that the store has; rather too many than too few.
        self._stored: set[CellId] = set()
        #: Bytes by cell; those that the store has as they are, in the order in which they came there or from there.
        self._sizes: dict[CellId, int] = {}
        #: The order of eviction of compacted cells; None until a cell has to be evicted for the first time.
        self._order: FurthestFirst[CellId] | None = None
        #: Pages that are in the store as they are, in the order in which they came there or from there; one may be
        #: gone, or another one by now.
        self._stored_pages: dict[PageId, Any] = {}
        #: How many pages went for others that were scanned.
        self._scanned = 0
        #: How many cells of this worker's ranges are only in the store; rather too many than too few.
        self._absent: float = 0
        self._bytes = self._hits = self._misses = self._loads = self._evictions = 0

    @property
    def counts(self) -> CacheCounts:
        """How much it has in memory, and what it has done."""
        return CacheCounts(
            bytes_buffered=self._bytes,
            hits=self._hits,
            misses=self._misses,
            loads=self._loads,
            evictions=self._evictions,
        )

    @property
    def is_full(self) -> bool:
        """Whether the cells take more than the bound."""
        return self._bytes_max is not None and self._bytes > self._bytes_max

    @property
    def _is_half_empty(self) -> bool:
        return self._bytes_max is not None and 2 * self._bytes < self._bytes_max

    def need(self, cell_ids: Iterable[CellId]) -> None:
        """Read those cells of a step that are missing in memory.  Raises what reading them raises."""
        if not self._absent:
            return
        needed = dict.fromkeys(cell_ids)
        missing = [
            cell_id
            for cell_id in needed
            if cell_id not in self and cell_id not in self._uncommitted
        ]
        self._hits += len(needed) - len(missing)
        self._misses += len(missing)
        if missing:
            self._loads += 1
            self.bring_back(dict(self._read(missing)))

    def need_pages(self, page_ids: Sequence[PageId], passing: Passing | None = None) -> None:
        """Read pages that exist, and are not in memory.

        Args:
            page_ids: the pages.
            passing: how they are read if no page is changed, so that others may go for them.

        Raises:
            StoreError: they cannot be read, or there is none of them.
        """
        if passing is not None:
            self._let_pass(passing)
        self._misses += len(page_ids)
        self._loads += 1
        self.take_in(dict(self._read(page_ids)))
        for page_id in page_ids:
            if page_id not in self:
                raise StoreError(
                    f"page {page_id.number} of state {page_id.state!r} is not in the store",
                    detail=f"key {page_id.key!r}, window {page_id.window}",
                    hint="this is a bug in dataflow-model: keep the database and report it",
                )

    def _let_pass(self, passing: Passing) -> None:
        """Evict pages that the store has, until there is room or none is left: first those that came first.

        In a scan those that came last, but for a few: what is scanned once is scanned again, for the next element, and
        of more pages than there is room for all that came first would be gone when the next scan begins.  A few of them
        go nevertheless, so that what nobody reads any more does not stay for ever.
        """
        while self.is_full and self._stored_pages:
            if passing is Passing.SCAN:
                self._scanned += 1
            if passing is Passing.SCAN and self._scanned % _FIRST_OF_SCANNED:
                page_id, page = self._stored_pages.popitem()
            else:
                page_id, page = next(iter(self._stored_pages.items()))
                del self._stored_pages[page_id]
            # Another one may be there by now, which the store does not have yet.
            if self.get(page_id) is page and page_id not in self._uncommitted:
                if self._order is not None:
                    self._order.forget(page_id)
                self._evict(page_id)

    def bring_back(self, cells: Mapping[CellId, bytes]) -> None:
        """Put cells into memory that were read from the store."""
        before = len(self)
        self.take_in(cells)
        self._absent -= len(self) - before

    def take_in(self, cells: Mapping[CellId, bytes]) -> None:
        """Put cells into memory that have come with a range."""
        for cell_id, value in cells.items():
            if cell_id not in self and cell_id not in self._uncommitted:
                self[cell_id] = decode_cell(value)
                self._stored.add(cell_id)
                self._note_stored(cell_id)
                self._weigh(cell_id, len(value))
                if self._order is not None:
                    self._order.use(cell_id, needed_us(cell_id, self[cell_id]))

    def wrote(
        self, cells: Sequence[tuple[CellId, Any]], size: int, *, is_stored: bool = False
    ) -> None:
        """Note that a step has changed some cells.

        Args:
            cells: with their state; None: deleted.
            size: about how many bytes one of them has now.
            is_stored: whether the store may have them, although they were never read.
        """
        # Made once and then merged into the large ones: to look a cell up takes longer than all else here.
        numbers = {
            cell_id: number for number, (cell_id, _) in enumerate(cells, start=self._writes + 1)
        }
        self._writes += len(cells)
        self._uncommitted.update(numbers)
        if is_stored:
            self._stored.update(numbers)
        if self._bytes_max is not None:
            self._weigh_all(dict.fromkeys(numbers, ENTRY_BYTES + size), cells)
        if self._order is not None:
            for cell_id in numbers:
                self._order.forget(cell_id)
        if self._stored_pages:
            for cell_id, _ in cells:
                if type(cell_id) is PageId:
                    self._stored_pages.pop(cell_id, None)

    def _weigh_all(self, written: dict[CellId, int], cells: Sequence[tuple[CellId, Any]]) -> None:
        """Note how many bytes some cells take.

        Args:
            written: the bytes of each, as if none was gone.
            cells: with their state; None: deleted.
        """
        sizes = self._sizes
        self._bytes += sum(written.values()) - sum(map(sizes.get, written, repeat(0)))
        sizes.update(written)
        for cell_id in [cell_id for cell_id, cell in cells if cell is None]:
            self._bytes -= sizes.pop(cell_id, 0)

    def is_stored(self, cell_id: CellId) -> bool:
        """Whether the store may have a cell that is in memory, or has just gone."""
        # A page may be deleted without having been read.
        return cell_id in self._stored or type(cell_id) is PageId

    def compact(self, cell_ids: Iterable[CellId]) -> Callable[[], None]:
        """Note that cells are being written as they are now; call what is returned when that is committed."""
        written = {
            cell_id: self._uncommitted[cell_id]
            for cell_id in cell_ids
            if cell_id in self._uncommitted
        }
        for cell_id in written:
            # True from here on; if the commit is lost, this worker stops and its successor does not have this set.
            if cell_id in self:
                self._stored.add(cell_id)
            else:
                self._stored.discard(cell_id)
        return lambda: self._compacted(written)

    def _compacted(self, written: Mapping[CellId, int]) -> None:
        for cell_id, write in written.items():
            if self._uncommitted.get(cell_id) == write:
                del self._uncommitted[cell_id]
                self._note_stored(cell_id)
                if cell_id in self._sizes:
                    # The place is that of the last use, about: since then it has not changed.
                    self._sizes[cell_id] = self._sizes.pop(cell_id)
                if self._order is not None and cell_id in self:
                    self._order.use(cell_id, needed_us(cell_id, self[cell_id]))
        self.trim()

    def _note_stored(self, cell_id: CellId) -> None:
        if type(cell_id) is PageId and self._bytes_max is not None and cell_id in self:
            self._stored_pages[cell_id] = self[cell_id]

    @property
    def uncommitted(self) -> Collection[CellId]:
        """Cells that the store has in an older state: with another value, not yet, or still though deleted."""
        return self._uncommitted.keys()

    def trim(self) -> None:
        """Evict so many cells that the rest fits; to be called between two steps."""
        if not self.is_full:
            if self._order is not None and not self._absent and self._is_half_empty:
                self._order = None
            return
        if self._order is None:
            self._order = FurthestFirst()
            for cell_id in self._sizes:
                if cell_id not in self._uncommitted:
                    self._order.use(cell_id, needed_us(cell_id, self[cell_id]))
        while self.is_full and self._order:
            cell_id = self._order.pop()
            self._evict(cell_id)
            if type(cell_id) is not PageId:
                self._absent += 1

    def _evict(self, cell_id: CellId) -> None:
        del self[cell_id]
        self._stored.discard(cell_id)
        self._weigh(cell_id, None)
        if type(cell_id) is PageId:
            self._stored_pages.pop(cell_id, None)
        self._evictions += 1

    def _weigh(self, cell_id: CellId, value_bytes: int | None) -> None:
        if self._bytes_max is None:
            return
        self._bytes -= self._sizes.pop(cell_id, 0)
        if value_bytes is not None:
            size = self._sizes[cell_id] = ENTRY_BYTES + value_bytes
            self._bytes += size

    def leave_out(self) -> None:
        """Note that there are cells in the store that were not read at all."""
        self._absent = inf

    def forget(self, is_gone: Callable[[CellId], bool]) -> None:
        """Forget the cells of ranges that another worker owns now."""
        self._stored_pages = {
            cell_id: page for cell_id, page in self._stored_pages.items() if not is_gone(cell_id)
        }
        for cell_id in [cell_id for cell_id in self if is_gone(cell_id)]:
            del self[cell_id]
            self._weigh(cell_id, None)
            if self._order is not None:
                self._order.forget(cell_id)
        for cell_id in [cell_id for cell_id in self._uncommitted if is_gone(cell_id)]:
            del self._uncommitted[cell_id]
        self._stored = {cell_id for cell_id in self._stored if not is_gone(cell_id)}

    def start_anew(self) -> None:
        """Note that no range is owned any more."""
        self._absent = 0


def needed_us(cell_id: CellId, cell: Any) -> int:
    """When a cell will be needed, in event time: at its next timer; where it has none, at the end of its window.

    Args:
        cell_id: key and window; None in place of the window stands for a cell of all windows of a key.
        cell: its content.
    """
    if isinstance(cell, dict):
        return min((_next_us(state, window.end_us) for window, state in cell.items()), default=0)
    end_us = MAX_TIMESTAMP_US if cell_id[1] is None else cell_id[1].end_us
    if isinstance(cell, Page):
        return end_us
    if isinstance(cell, KeyedState | MergingState):
        return end_us if cell.engine_timers.event_us is None else cell.engine_timers.event_us
    return _next_us(cell, end_us)


def _next_us(state: Any, end_us: int) -> int:
    """The first instant of event time at which a window has something to do."""
    event_us, _, percentile_us = state.timers
    known_us = [instant_us for instant_us in (event_us, percentile_us) if instant_us is not None]
    return min(known_us, default=end_us)
