"""RangeWriter: the store's side of one task, where "exactly once" of a batch run is decided.

A task that writes tables owns one range: a source's split, or a key range of a grouping.  At the
start of every attempt it takes the range over, which moves the token, so that no older attempt
(failed, speculative, zombie) can commit any more; what an attempt has to say is fenced by its
token.

* A key range commits once, everything in one transaction.  The order in which its panes come
  depends on the order in which the shuffle delivers, so a part of them could not be told from the
  rest by a later attempt.
* A split commits whenever `ROWS_MAX` rows wait, each time with the number of records and the
  position it has come to. Records are read in the same order in every attempt, so the next attempt
  goes on, or passes over so many, and neither doubles nor misses a row.

The last commit marks the range as finished.  A finished range is never written again, in this run
or in a later one of the same job.
"""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import attrs

from dataflow.io.table import Row, TableSpec, TableWrite
from dataflow.serialization import dumps, loads
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.ids import Fence, RangeId
from runners.millwheel.production import Production
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
    """How far the committed bundles of a split have come."""

    records: int = 0
    position: Any = None


class RangeWriter:
    """Owns one range for one attempt; owned by the thread that made it.

    Args:
        store: closed with the writer.
        owner: unique among the attempts.
    """

    def __init__(self, store: Store, job: str, range_id: RangeId, owner: str) -> None:
        self._store, self._job, self._range_id, self._owner = store, job, range_id, owner
        self._pending: list[_TableBuffer] = []
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
        self.is_finished = self._row.is_finished
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
        """What earlier attempts of the split have committed."""
        assert self._row is not None
        position = self._row.position
        return ReadSoFar() if position is None else ReadSoFar(*loads(position))

    @property
    def is_full(self) -> bool:
        """Whether so many rows wait that a split should commit."""
        return sum(buffer.size for buffer in self._pending) >= ROWS_MAX

    def write(self, writes: Iterable[TableWrite]) -> None:
        """Keep rows for the next commit; a finished range has had all of them."""
        if self.is_finished:
            return
        for write in writes:
            buffer = self._buffer(write.table)
            buffer.add(write)

    def commit(self, read_so_far: ReadSoFar | None = None, *, is_last: bool) -> None:
        """Make the rows kept so far durable.

        Returns normally, having written nothing, if another attempt has meanwhile finished the
        range.

        Raises:
            FencedError: another attempt owns the range and has not finished it.
            StoreUnreachableError: nobody knows whether it was committed; the next attempt will see.
        """
        if self.is_finished:
            return
        assert self._row is not None
        fence = Fence(range_id=self._range_id, token=self._row.token, bundle=self._bundle + 1)
        position = None if read_so_far is None else dumps(attrs.astuple(read_so_far, recurse=False))
        production = Production(
            job=self._job,
            fences=[fence],
            positions={} if position is None else {self._range_id: position},
            finished=frozenset([self._range_id] if is_last else []),
            tables=[buffer.table_write() for buffer in self._pending],
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
        self._pending.clear()
        if isinstance(outcome, Committed):
            self._bundle, self.is_finished = fence.bundle, is_last
        else:
            self._wait_for_new_owner()

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
            if row and row.is_finished:
                self.is_finished = True
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

    @property
    def size(self) -> int:
        return len(self._inserts) + len(self._rows)

    def add(self, write: TableWrite) -> None:
        self._inserts.extend(write.inserts)
        self._rows.update(dict.fromkeys(write.deletes))
        indexes = self.table.key_indexes
        for row in write.upserts:
            self._rows[tuple(row[index] for index in indexes)] = row

    def table_write(self) -> TableWrite:
        return TableWrite(
            table=self.table,
            upserts=[row for row in self._rows.values() if row is not None],
            deletes=[key for key, row in self._rows.items() if row is None],
            inserts=self._inserts,
        )
