"""Journal: state that is durable as a list of changes first, and in cells and timers later, if it still exists then.

Most windows open and close within seconds, and writing a row for each change of each of them costs more than all the
rest of a step.  So a step commits its changes as one blob for each range, and memory is ahead of the tables of cells
and timers.  The next owner of a range applies the entries to what the tables have.  Before the journal becomes long,
and when there is time, it is compacted: cells and timers are brought up to date, a bounded number of them at a time,
and the entries are deleted.

The partials that a range buffers (`runners.core.open_windows.buffered`) are durable in the journal alone, which has
three kinds of entries for them: partials that were taken in; `Whole`, which replaces all entries before it; and
`Released`, windows that are in cells from there on.  After a compaction only `Whole` remains, and all that is buffered,
in pieces.  There is no entry for windows that have fired: a range keeps nothing that ends at or before its input
watermark, which is a part of every commit.  Where only some keys of a window have fired, they are noted as cells that
are gone.

**Invariants**

* What the tables have, with the entries applied in their order, is the state of the last commit.  An entry has whole
  cells, not differences, so it does no harm if a table is ahead of an entry: a later entry has the newer value.
* A cell that the journal is ahead of is in memory, and is not read (`CellCache`).
* An entry is deleted when all that it is about is in the tables as it was then, or newer, or in a newer entry.  The
  oldest go first, some with each commit that is made anyway: to delete all of them at once takes Postgres as long as
  some dozen commits.
* A compaction begins when all that was noted is on its way to be committed, since it is up to there that entries are
  deleted at its end.  What it writes then may go with the commit of later changes: it is as of that commit.
* Before the keys of a range change, its journal is empty.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from runners.core.ground.cells import CellId, TimerId
from runners.core.ground.element_text import shown
from runners.core.open_windows.stream_windows import StreamWindows
from runners.core.stages.entries import Changes, Noted
from runners.core.stages.grouping import Step
from runners.errors import StoreError
from runners.millwheel.cell_codec import encode_window
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import CellWrite, JournalEntry, TimerWrite
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.state.cell_cache import CellCache
from runners.millwheel.worker.state.entry_pieces import EntryPieces
from runners.millwheel.worker.state.stored_cells import StoredCells
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.millwheel.worker.worker_step import WorkerStep, merged
from runners.stored.cells import encode_cell
from runners.stored.journal import decode_entry
from runners.stored.partials import Combiners

#: The journal of a computation on one worker is not longer than this, and what compacting it takes in addition.
JOURNAL_BYTES_MAX = 16 << 20

#: A commit deletes the entries of so many commits before it, where there are any to be deleted.
DELETED_BUNDLES = 4
#: The commit of a worker's round brings so many cells and timers up to date, since what else it has waits for that; or
#: a quarter more than have changed since the last one, since else the journal would grow faster than it is compacted.
COMPACTED_WITH_ROUND = 50

#: What has changed in a range: cells, None for those that are gone, and timers.
_Changes = tuple[OwnedRange, list[tuple[CellId, Any]], list[tuple[TimerId, int | None]]]
#: Finds the range of a key, among those that are owned.
Locate = Callable[[Any], OwnedRange]


class _Round(NamedTuple):
    """One round of compaction: the cells and timers to write, and up to which bundle entries of the journal then go."""

    cells: Iterator[CellId]
    timers: Iterator[TimerId]
    bundles: Mapping[RangeId, int]


class Journal:
    """The journal of the ranges of one computation that one worker owns.

    Args:
        computation: its name.
        cells: those in memory.
        stored: those in the store.
        windows: those of the ranges; what they keep beside cells is durable in the journal only.
        ranges: those that are owned; as they are at each call.
        locate: as `Locate`.
        combiners: fold the columns in entries.
        pieces: encodes entries.
        steps: how much is compacted in one step.
    """

    def __init__(
        self,
        computation: str,
        cells: CellCache,
        stored: StoredCells,
        windows: StreamWindows,
        ranges: Mapping[RangeId, OwnedRange],
        locate: Locate,
        combiners: Combiners,
        pieces: EntryPieces,
        steps: StepLimits = STEP_LIMITS,
    ) -> None:
        self._computation, self._cells, self._stored = computation, cells, stored
        self._windows, self._combiners = windows, combiners
        self._owned, self._locate = ranges, locate
        self._pieces, self._steps = pieces, steps
        #: Timers that have changed since their table was written.
        self._timers: dict[TimerId, int | None] = {}
        #: Timers that their table has, rather too many than too few.
        self._stored_timers: set[TimerId] = set()
        #: Ranges with entries, except those whose only entries are all that they buffer.
        self._ranges: dict[RangeId, OwnedRange] = {}
        #: Those of them that have had an entry since the round began.
        self._noted: set[RangeId] = set()
        #: The bytes of entries since the last round, and of those that have remained from before it.
        self._bytes = self._remaining_bytes = 0
        self._round: _Round | None = None
        #: What is to be called for cells that are in the store as they were written.
        self._in_store: list[Callable[[], None]] = []
        #: How many cells, or timers if these are more, have changed since some were last brought up to date.
        self._changed = 0
        #: Up to which bundle the entries of each range are deleted, and up to which they are no longer needed.
        self._deleted: dict[RangeId, int] = {}
        self._unneeded: dict[RangeId, int] = {}

    @property
    def is_compacted(self) -> bool:
        """Whether cells and timers are up to date, and the journal has nothing but what is buffered."""
        return not self._ranges and not self._unneeded

    @property
    def has_unneeded(self) -> bool:
        """Whether there are entries to be deleted."""
        return bool(self._unneeded)

    @property
    def is_full(self) -> bool:
        """Whether it is time to compact, whatever else there is to do."""
        # The remaining entry is written again by each round, so at least as many bytes must have come before that.
        return self.is_compacting or self._bytes > max(JOURNAL_BYTES_MAX, self._remaining_bytes)

    @property
    def is_compacting(self) -> bool:
        """Whether a compaction has begun and is not at its end."""
        return self._round is not None

    @property
    def is_pressing(self) -> bool:
        """Whether memory is full of cells that only the journal has."""
        return self._cells.is_full and bool(self._ranges)

    def note(self, step: Step) -> Sequence[WorkerStep]:
        """The entries for what a step of the windows has changed.

        Raises:
            WorkerStoppedError: no range of this worker has the key of a cell that has changed.
            TransformError: something in it is larger than the store takes.
        """
        steps = [self._note_beside(self._owned[each.owner], each) for each in step.noted]
        # A timer that fired is gone, unless the step has set it again.
        timers = dict.fromkeys(step.fired) | step.effects.timers
        if step.effects.touched or timers:
            steps.append(self._note_cells(step.effects.touched, timers))
        return steps

    def _note_cells(
        self, touched: Iterable[CellId], timers: Mapping[TimerId, int | None]
    ) -> WorkerStep:
        """The entries for cells and timers.

        Args:
            touched: cells that have changed, or are gone.
            timers: those that have changed, and when they are due, in microseconds; None: they are gone.
        """
        changes: dict[OwnedRange, _Changes] = {}
        # The range of a key is looked up once: most steps have fewer keys than cells, and each cell twice.
        of_key: dict[Any, _Changes] = {}

        def changes_of(key: Any) -> _Changes:
            owned = self._locate(key)
            found = changes.get(owned)
            if found is None:
                found = changes[owned] = (owned, [], [])
            of_key[key] = found
            return found

        get = self._cells.get
        for cell_id in touched:
            key = cell_id[0]
            (of_key.get(key) or changes_of(key))[1].append((cell_id, get(cell_id)))
        for item in timers.items():
            key = item[0][0][0]
            (of_key.get(key) or changes_of(key))[2].append(item)
        self._timers.update(timers)
        self._changed += sum(max(len(cells), len(timed)) for _, cells, timed in changes.values())
        return WorkerStep(
            ranges={owned.range_id: owned for owned in changes},
            journal=[
                entry
                for owned, cells, changed in changes.values()
                for entry in self._entries(owned, cells, changed)
            ],
        )

    def _entries(
        self,
        owned: OwnedRange,
        cells: list[tuple[CellId, Any]],
        timers: list[tuple[TimerId, int | None]],
    ) -> Iterator[JournalEntry]:
        for some, payload, size in self._pieces.changes(cells, timers):
            yield self._entry(owned, len(some), payload)
            self._cells.wrote(some, size)

    def _note_beside(self, owned: OwnedRange, noted: Noted) -> WorkerStep:
        """The entries for what a range keeps beside cells; for windows that fired none, but earlier ones may go.

        Args:
            owned: the range.
            noted: what has changed.
        """
        self._note(owned)
        entries = [self._entry(owned, size, payload) for size, payload in self._pieces.noted(noted)]
        return WorkerStep(ranges={owned.range_id: owned}, journal=entries)

    def _entry(self, owned: OwnedRange, size: int, payload: bytes) -> JournalEntry:
        self._note(owned)
        self._bytes += len(payload)
        return JournalEntry(owned.range_id, size, payload)

    def _note(self, owned: OwnedRange) -> None:
        self._ranges[owned.range_id] = owned
        self._noted.add(owned.range_id)

    def replay(self, owned: OwnedRange, entries: Iterable[bytes]) -> Mapping[TimerId, int | None]:
        """Apply the entries of a range that was taken over, before its cells are read.

        Args:
            owned: the range.
            entries: as they are stored, oldest first.

        Returns:
            The timers that the entries set, with their instants in microseconds; None: unset.

        Raises:
            StoreError: they are about keys that the range does not have.
        """
        timers: dict[TimerId, int | None] = {}
        # Those of former owners have the numbers of earlier commits, whichever these are.
        self._deleted[owned.range_id] = owned.bundle
        for payload in entries:
            content = decode_entry(payload, self._combiners)
            self._ranges[owned.range_id] = owned
            self._bytes += len(payload)
            if not isinstance(content, Changes):
                self._windows.restore(content, owned.range_id, nbytes=len(payload))
                continue
            cells, changed = content
            timers.update(changed)
            size = len(payload) // max(1, len(cells) + len(changed))
            self._windows.restore(Changes(cells, []), owned.range_id)
            for cell_id, _ in cells:
                self._check(owned, cell_id)
            # Their table may have them: it is not known what the former owner has compacted.
            self._cells.wrote(cells, size, is_stored=True)
        self._windows.forget_fired(owned.range_id, owned.watermark_us)
        self._timers.update(timers)
        return timers

    def _check(self, owned: OwnedRange, cell_id: CellId) -> None:
        if owned.keys is None or self._stored.key_of(cell_id)[0] not in owned.keys:
            raise StoreError(
                f"the journal of {owned.range_id} is about a key of another range",
                detail=f"key {shown(cell_id[0])}",
                hint="this is a bug in dataflow-model: keep the database and report it",
            )

    def has_stored(self, timers: Iterable[TimerId]) -> None:
        """Note timers that were found in their table."""
        self._stored_timers.update(timers)

    def begin(self) -> None:
        """Begin to compact, unless that is under way; all that was noted is on its way to be committed."""
        if self._round is None and self._ranges:
            bundles = {range_id: owned.bundle for range_id, owned in self._ranges.items()}
            self._round = _Round(
                iter(list(self._cells.uncommitted)), iter(list(self._timers)), bundles
            )
            # Whatever is noted from here on belongs to the next round.
            self._noted.clear()
            self._bytes = self._changed = 0

    def compact(self, *, is_with_round: bool = False) -> WorkerStep | None:
        """Bring some cells and timers up to date, or delete what is then not needed; returns None if that is done.

        Where no compaction has begun, everything noted before must be committed.  Call `evict` when the step is
        durable.

        Args:
            is_with_round: only a few of them, in the commit of what was noted last, which waits for that.
        """
        self.begin()
        if self._round is None:
            return self.delete(None)
        most = self._steps.compacted
        if is_with_round:
            most = min(most, max(COMPACTED_WITH_ROUND, self._changed * 5 // 4))
        self._changed = 0
        steps = list[WorkerStep]()
        is_empty = True
        # There may be any number of cells that came and went since the last round, for which nothing is written.
        while is_empty and self._round is not None:
            cells, cell_writes, is_last = self._cell_writes(self._round.cells, most)
            timers = list(islice(self._round.timers, most))
            timer_writes = self._timer_writes(timers)
            is_in_store = partial(self._in_store.append, self._cells.compact(cells))
            steps += [cell_writes, timer_writes, WorkerStep(when_committed=(is_in_store,))]
            is_empty = not cell_writes.cells and not timer_writes.timers
            if is_last and len(timers) < most:
                steps.append(self._end_round())
        return merged(steps)

    def evict(self) -> None:
        """Let cells go from memory that do not fit and are in the store; between two steps, which may need them."""
        in_store, self._in_store = self._in_store, []
        for note in in_store:
            note()

    def _end_round(self) -> WorkerStep:
        assert self._round is not None
        self._remaining_bytes = 0
        ranges = {range_id: self._ranges[range_id] for range_id in self._round.bundles}
        entries = list[JournalEntry]()
        for range_id in ranges:
            nbytes = 0
            for size, payload in self._pieces.whole(self._windows.whole(range_id)):
                entries.append(JournalEntry(range_id, size, payload))
                nbytes += len(payload)
            self._windows.note_size(range_id, nbytes)
            self._remaining_bytes += nbytes
            if range_id not in self._noted:
                del self._ranges[range_id]
        self._unneeded |= self._round.bundles
        self._round = None
        deleted = self.delete() or WorkerStep()
        return merged([WorkerStep(ranges=ranges, journal=entries), deleted])

    def delete(self, bundles: int | None = DELETED_BUNDLES) -> WorkerStep | None:
        """Delete entries that are not needed any more; returns None if there are none.

        Args:
            bundles: those of so many commits, for each range; None: all of them.
        """
        if not self._unneeded:
            return None
        compacted = {
            range_id: last if bundles is None else min(last, self._deleted[range_id] + bundles)
            for range_id, last in self._unneeded.items()
        }
        self._deleted |= compacted
        self._unneeded = {
            range_id: last
            for range_id, last in self._unneeded.items()
            if last > compacted[range_id]
        }
        ranges = {range_id: self._owned[range_id] for range_id in compacted}
        return WorkerStep(ranges=ranges, compacted=compacted)

    def _cell_writes(
        self, cells: Iterator[CellId], most: int
    ) -> tuple[list[CellId], WorkerStep, bool]:
        """The next cells of a round, as many as a step may have, their writes, and whether these were the last."""
        looked_at, writes, size = list[CellId](), list[CellWrite](), 0
        ranges = dict[RangeId, OwnedRange]()
        for cell_id in islice(cells, most):
            looked_at.append(cell_id)
            cell = self._cells.get(cell_id)
            if cell is None and not self._cells.is_stored(cell_id):
                continue  # created and deleted since the last round
            key_hash, cell_key = self._stored.key_of(cell_id)
            owned = self._locate(cell_id[0])
            ranges[owned.range_id] = owned
            value = None if cell is None else encode_cell(cell)
            writes.append(CellWrite(self._computation, key_hash, cell_key, value))
            size += len(value or b"")
            if size > self._steps.nbytes:
                break
        is_last = len(looked_at) < most and size <= self._steps.nbytes
        # In the order in which the store keeps them.
        writes.sort(key=lambda write: write[1:3])
        return looked_at, WorkerStep(ranges=ranges, cells=writes), is_last

    def _timer_writes(self, timers: Iterable[TimerId]) -> WorkerStep:
        writes, ranges = list[TimerWrite](), dict[RangeId, OwnedRange]()
        for timer in timers:
            fire_us = self._timers.pop(timer, None)
            if fire_us is not None:
                self._stored_timers.add(timer)
            elif timer in self._stored_timers:
                self._stored_timers.remove(timer)
            else:
                continue
            cell_id, window, domain = timer
            key_hash, cell_key = self._stored.key_of(cell_id)
            owned = self._locate(cell_id[0])
            ranges[owned.range_id] = owned
            tag = encode_window(window)
            writes.append(TimerWrite(self._computation, key_hash, cell_key, tag, domain, fire_us))
        return WorkerStep(ranges=ranges, timers=writes)

    def forget(self, range_id: RangeId, is_gone: Callable[[CellId], bool]) -> None:
        """Forget a range, with its cells, that another worker owns now; the round of compaction begins again.

        Args:
            range_id: the range.
            is_gone: whether a cell belongs to it.
        """
        self._ranges.pop(range_id, None)
        self._noted.discard(range_id)
        self._deleted.pop(range_id, None)
        self._unneeded.pop(range_id, None)
        self._round = None
        for timer in [timer for timer in self._timers if is_gone(timer[0])]:
            del self._timers[timer]
        self._stored_timers = {each for each in self._stored_timers if not is_gone(each[0])}
