"""RangeWriter: the store's side of one task, where "exactly once" of a batch run is decided.

A task that writes tables, or may have dead letters, owns one range: a source's split, or a key
range of a grouping.  At the start of every attempt it takes the range over, which moves the token,
so that no older attempt (failed, speculative, zombie) can commit any more; what an attempt has to
say is fenced by its token.

* A key range commits once, everything in one transaction.  The order in which its panes come
  depends on the order in which the shuffle delivers, so a part of them could not be told from the
  rest by a later attempt.
* A split commits whenever `ROWS_MAX` rows wait, each time with the number of records and the
  position it has come to. Records are read in the same order in every attempt, so the next attempt
  goes on, or passes over so many, and neither doubles nor misses a row.

The last commit marks the range as finished.  A finished range is never written again, in this run
or in a later one of the same job.

Dead letters are committed like rows.  An attempt may repeat what an earlier one has committed, for
the stages downstream; user code that then fails on more records, or on fewer, would leave some in
no result and in no letter, or in both.  So letters are counted, and such an attempt is given up.
"""

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import attrs

from dataflow.io.table import Row, TableSpec, TableWrite
from dataflow.serialization import dumps, loads
from runners.core import poison
from runners.core.table_columns import TableColumns
from runners.errors import StoreError, StoreUnreachableError, UnrepeatableError
from runners.millwheel.ids import Fence, RangeId
from runners.millwheel.production import DeadLetter, Production
from runners.millwheel.store.port import Committed, Indeterminate, RangeRow, Store

#: Rows in one statement, and of a split in one transaction.
ROWS_MAX = 50_000
#: How long a fenced attempt waits for the one that fenced it.
FENCED_WAIT_S = 60.0
_FENCED_POLL_S = 0.5


class FencedError(StoreError):
    """A newer attempt owns the range; this one wrote nothing and never will."""


@attrs.frozen
class ReadSoFar:
    """How far the committed bundles of a range have come, with so many dead letters."""

    records: int = 0
    position: Any = None
    dead: int = 0


class RangeWriter:
    """Owns one range for one attempt; owned by the thread that made it.

    Args:
        store: closed with the writer.
        owner: unique among the attempts.
    """

    def __init__(self, store: Store, job: str, range_id: RangeId, owner: str) -> None:
        self._store, self._job, self._range_id, self._owner = store, job, range_id, owner
        self._pending: list[_TableBuffer] = []
        self._dead: list[DeadLetter] = []
        # Letters committed, by whichever attempt, and letters that this attempt has come upon.
        self._dead_committed = self._dead_met = 0
        self._row: RangeRow | None = None
        self._bundle = 0

    def __enter__(self) -> Self:
        """Take the range over."""
        try:
            taken = self._store.acquire(self._job, [self._range_id], self._owner)
        except BaseException:
            self._store.close()
            raise
        self._row = taken[self._range_id].row
        self._bundle = self._row.bundle
        self.is_finished = self._is_done(self._row)
        self._dead_committed = self.read_so_far.dead
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._store.close()

    @property
    def read_so_far(self) -> ReadSoFar:
        """What earlier attempts have committed."""
        assert self._row is not None
        return self._so_far_of(self._row)

    @property
    def is_full(self) -> bool:
        """Whether so many rows and letters wait that a split should commit."""
        return sum(buffer.size for buffer in self._pending) + len(self._dead) >= ROWS_MAX

    def resume(self) -> None:
        """Begin where the commits so far end, instead of repeating what they are made of."""
        self._dead_met = self._dead_committed

    def pass_over(self, dead: Sequence[poison.DeadLetter]) -> None:
        """Note what comes again and is committed already."""
        self._dead_met += len(dead)

    def write(self, writes: Iterable[TableWrite], dead: Sequence[poison.DeadLetter] = ()) -> None:
        """Keep rows and letters for the next commit; a finished range has had all of them."""
        self._dead_met += len(dead)
        if self.is_finished:
            return
        self._dead.extend(map(DeadLetter.of, dead))
        for write in writes:
            buffer = self._buffer(write.table)
            buffer.add(write)

    def commit(self, read_so_far: ReadSoFar | None = None, *, is_last: bool) -> None:
        """Make the rows and letters kept so far durable.

        Returns normally, having written nothing, if another attempt has meanwhile finished the
        range.

        Raises:
            FencedError: another attempt owns the range and has not finished it.
            StoreUnreachableError: nobody knows whether it was committed; the next attempt will see.
            UnrepeatableError: what was committed before had other dead letters.
        """
        self._check_dead(self._dead_met - len(self._dead))
        if self.is_finished:
            return
        assert self._row is not None
        fence = Fence(range_id=self._range_id, token=self._row.token, bundle=self._bundle + 1)
        so_far = None
        if read_so_far is not None or self._dead_met:
            so_far = attrs.evolve(read_so_far or ReadSoFar(), dead=self._dead_met)
        production = Production(
            job=self._job,
            fences=[fence],
            dead=self._dead,
            tables=[buffer.table_write() for buffer in self._pending],
            **self._progress(so_far, is_last=is_last),
        )
        outcome = self._store.commit(production)
        if isinstance(outcome, Indeterminate):
            outcome = self._store.resolve(production)
        if isinstance(outcome, Indeterminate):
            raise StoreUnreachableError(
                f"it is not known whether {self._range_id} of job {self._job} was committed",
                detail=outcome.reason,
                hint="is the store up? run the same job again: it looks first",
            )
        self._pending, self._dead = [], []
        if isinstance(outcome, Committed):
            self._bundle, self.is_finished = fence.bundle, is_last
            self._dead_committed = self._dead_met
        else:
            self._wait_for_new_owner()
            if is_last:
                self._check_dead(self._dead_met)

    # What a range's row says, and how that is written: otherwise where a stream is to go on from it.

    def _is_done(self, row: RangeRow) -> bool:
        return row.is_finished

    def _so_far_of(self, row: RangeRow) -> ReadSoFar:
        return ReadSoFar() if row.position is None else ReadSoFar(*loads(row.position))

    def _progress(self, so_far: ReadSoFar | None, *, is_last: bool) -> dict[str, Any]:
        """The parts of a production that say how far the range is."""
        positions = {}
        if so_far is not None:
            positions[self._range_id] = dumps(attrs.astuple(so_far, recurse=False))
        return {
            "positions": positions,
            "finished": frozenset([self._range_id] if is_last else []),
        }

    def _check_dead(self, repeated: int) -> None:
        if repeated != self._dead_committed:
            raise UnrepeatableError(
                f"user code of {self._range_id} failed on {repeated} records and timers, and before on "
                f"{self._dead_committed} of the same",
                detail="a task is run again when what it had for others is lost, and must then leave "
                "out the same records: their dead letters are committed",
                hint="let code fail because of what is in a record only, not of the moment; running "
                "the same job again tries once more",
            )

    def _buffer(self, table: TableSpec) -> "_TableBuffer":
        # Only the last one of a table takes more, so that the order of what is said of a key
        # remains.
        last = next((each for each in reversed(self._pending) if each.table == table), None)
        if last is None or last.size >= ROWS_MAX:
            last = _TableBuffer(table)
            self._pending.append(last)
        return last

    def _wait_for_new_owner(self) -> None:
        # Failing at once would make Spark start a third attempt, which would fence the second.
        waited_s = 0.0
        while True:
            job = self._store.read_job(self._job)
            row = job and job.ranges.get(self._range_id)
            if row and self._is_done(row):
                self.is_finished, self._row = True, row
                self._dead_committed = self.read_so_far.dead
                return
            if not row or row.owner in (None, self._owner) or waited_s >= FENCED_WAIT_S:
                raise FencedError(
                    f"this attempt no longer owns {self._range_id} of job {self._job}",
                    detail=f"owner: {row.owner if row else 'none, the job was reset'}",
                    hint="nothing is lost; if this goes on, is the same job running twice?",
                )
            time.sleep(_FENCED_POLL_S)
            waited_s += _FENCED_POLL_S


class _TableBuffer:
    """The net effect of several bundles on one table."""

    def __init__(self, table: TableSpec) -> None:
        self.table = table
        self._inserts: list[Row] = []
        self._rows: dict[Row, Row | None] = {}
        #: Before all of these.
        self._columns: list[TableColumns] = []

    @property
    def size(self) -> int:
        return len(self._inserts) + len(self._rows) + sum(map(len, self._columns))

    def add(self, write: TableWrite) -> None:
        rows = write.upserts or write.inserts
        if isinstance(rows, TableColumns) and not (self._rows or self._inserts or write.deletes):
            self._columns.append(rows)
            return
        for columns in self._columns:
            self._add_rows(self._write_of(columns))
        self._columns = []
        self._add_rows(write)

    def _add_rows(self, write: TableWrite) -> None:
        self._inserts.extend(write.inserts)
        self._rows.update(dict.fromkeys(write.deletes))
        indexes = self.table.key_indexes
        for row in write.upserts:
            self._rows[tuple(row[index] for index in indexes)] = row

    def _write_of(self, columns: TableColumns) -> TableWrite:
        if self.table.key:
            return TableWrite(table=self.table, upserts=columns)
        return TableWrite(table=self.table, inserts=columns)

    def table_write(self) -> TableWrite:
        if self._columns:
            return self._write_of(TableColumns.together(self._columns))
        return TableWrite(
            table=self.table,
            upserts=[row for row in self._rows.values() if row is not None],
            deletes=[key for key, row in self._rows.items() if row is None],
            inserts=self._inserts,
        )
