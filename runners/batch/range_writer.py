"""RangeWriter: the store's side of one task, where "exactly once" of a batch run is decided.

A task that writes tables, or may have dead letters, owns one range: a source's split, or a key
range of a grouping.  At the start of every attempt it takes the range over, which moves the token,
so that no older attempt (failed, speculative, zombie) can commit any more; what an attempt writes
is fenced by its token.

* A key range of a batch commits once, everything in one transaction (batch_end.py).
* A split commits whenever `ROWS_MAX` rows wait, each time with the number of records and the
  position it has come to. Records are read in the same order in every attempt, so the next attempt
  goes on, or passes over so many, and neither doubles nor misses a row.

The last commit marks the range as finished.  A finished range is never written again, in this run
or in a later one of the same job.

What a range has sent to later groupings is committed with its rows, as digests (`digests.py`), before any receiver can
have all of it. Every later attempt must send the same: one receiver may have counted the first output, and another is
about to count the second. A range without rows commits these digests alone, when it is done.

Dead letters are committed like rows.  An attempt may repeat what an earlier one has committed, for
the stages downstream; user code that then fails on other records would leave some in no result and
in no letter, or in both.  So letters have a digest too (`letter_digests.py`), and such an attempt is
given up.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

import attrs

from dataflow.metric_updates import MetricValues
from dataflow.table import Row, TableSpec, TableWrite
from runners.batch.letter_digests import Letters, Repeated
from runners.core.ground import dead_letters
from runners.core.ground.lineage import LineageEntry
from runners.core.tables.columns import TableColumns
from runners.core.tables.row_changes import RowChanges
from runners.errors import (
    FencedError,
    JobMismatchError,
    StoreUnreachableError,
    UnrepeatableError,
)
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import Counted, Production, StoredDeadLetter
from runners.millwheel.store.commit_or_resolve import commit_or_resolve
from runners.millwheel.store.port import Committed, Indeterminate, RangeRow, Store
from runners.stored.metrics import encode_metrics
from runners.stored.places import ReadSoFar, decode_read_so_far, encode_read_so_far

#: Rows in one statement, and of a split in one transaction.
ROWS_MAX = 50_000
#: How long a fenced attempt waits for the one that fenced it.
FENCED_WAIT_S = 60.0
_FENCED_POLL_S = 0.5


class RangeWriter:
    """Owns one range for one attempt; owned by the thread that made it.

    Args:
        store: left open, but for an error.
        job: that the range belongs to.
        range_id: of the range.
        owner: unique among the attempts.
        run: which run of the job the attempt belongs to (`JobRow.version`); None: any.
        is_binding: whether the digests that earlier runs have committed count.  They do not where a range has committed
            nothing else, and no other range has committed anything made of what it sent.
        repeated: what of a record is the same in every attempt.
        where: names the stage, for errors.
        fenced_wait_s: how long a fenced attempt waits for the one that fenced it; by default `FENCED_WAIT_S`.
    """

    def __init__(
        self,
        store: Store,
        job: str,
        range_id: RangeId,
        owner: str,
        *,
        run: int | None = None,
        is_binding: bool = True,
        repeated: Repeated = Repeated.ALL,
        where: str = "",
        fenced_wait_s: float | None = None,
    ) -> None:
        self._store, self._job, self._range_id, self._owner = store, job, range_id, owner
        self._run, self._is_binding, self._where = run, is_binding, where or str(range_id)
        self._fenced_wait_s = FENCED_WAIT_S if fenced_wait_s is None else fenced_wait_s
        self._pending: list[_TableBuffer] = []
        self._dead: list[StoredDeadLetter] = []
        self._lineage: list[LineageEntry] = []
        self._repeated = repeated
        # Dead letters that wait for a commit; those that this attempt has met among records that were committed before;
        # and those that are committed, by whichever attempt.  The last two have to be the same.
        self._dead_waiting = self._dead_behind = self._dead_committed = Letters()
        self._row: RangeRow | None = None
        self._before = ReadSoFar()
        self._bundle = 0
        #: Whether what is counted from here on is added to what is committed.
        self._counts_on = False

    def __enter__(self) -> Self:
        """Take the range over."""
        try:
            taken = self._store.acquire(self._job, [self._range_id], self._owner, self._run)
        except JobMismatchError as error:
            self._store.close()
            raise FencedError(
                f"job {self._job} is being run anew",
                detail=error.fact,
                hint="nothing is lost: the run that was started last goes on, and the others end",
            ) from None
        except BaseException:
            self._store.close()
            raise
        row = taken[self._range_id].row
        self._bundle = row.bundle
        self._look_at(row)
        return self

    def _look_at(self, row: RangeRow) -> None:
        self._row, self._before = row, self._so_far_of(row)
        counts = self._is_binding or self._before.run in (None, self._run)
        if not counts:
            self._before = ReadSoFar()
        self.is_finished = counts and self._is_done(row)
        self._dead_committed = Letters(self._before.dead, self._before.letters)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None:
            # What was going on in its session is not known.
            self._store.close()

    @property
    def token(self) -> int:
        """Of the attempt, greater than that of any before."""
        assert self._row is not None
        return self._row.token

    @property
    def read_so_far(self) -> ReadSoFar:
        """What earlier attempts have committed."""
        return self._before

    @property
    def has_sent(self) -> bool:
        """Whether receivers may have what an earlier attempt has sent."""
        return self._before.sent is not None

    @property
    def is_full(self) -> bool:
        """Whether so many rows, letters and entries wait that a split should commit."""
        waiting = len(self._dead) + len(self._lineage)
        return sum(buffer.size for buffer in self._pending) + waiting >= ROWS_MAX

    def resume(self) -> None:
        """Begin where the commits so far end, instead of repeating what they are made of."""
        self._counts_on = True
        self._dead_behind = self._dead_committed

    def pass_over(self, dead: Sequence[dead_letters.DeadLetter]) -> None:
        """Note letters that come again and are committed already."""
        self._dead_behind += Letters.of(dead, self._repeated)

    def write(
        self,
        writes: Iterable[TableWrite],
        dead: Sequence[dead_letters.DeadLetter] = (),
        lineage: Sequence[LineageEntry] = (),
    ) -> None:
        """Keep rows, letters and entries for the next commit; those of a finished range are all committed.

        Args:
            writes: rows, by table.
            dead: the dead letters.
            lineage: where what is written or sent comes from.
        """
        if self.is_finished:
            self.pass_over(dead)
            return
        self._dead_waiting += Letters.of(dead, self._repeated)
        self._dead.extend(map(StoredDeadLetter.of, dead))
        self._lineage.extend(lineage)
        for write in writes:
            buffer = self._buffer(write.table)
            buffer.add(write)

    def check_sent(self, sent: Mapping[int, int] | None) -> None:
        """Compare digests of what this attempt has sent with those of an earlier one that was as far.

        Raises:
            UnrepeatableError: they differ.
        """
        before = self._before.sent
        if sent is None or before is None:
            return
        if any(digest != before.get(target) for target, digest in sent.items()):
            raise UnrepeatableError(
                f"{self._where} emitted other records when it was run again",
                detail="results have a part of its former output already: together with the rest of its output now, "
                "records would be lost, and others counted twice",
                hint="let functions return the same for the same records (fixed seeds, no clock, no order of arrival); "
                "fresh=True starts over",
            )

    def commit(
        self,
        read_so_far: ReadSoFar | None = None,
        *,
        is_last: bool,
        sent: Mapping[int, int] | None = None,
        packings: Mapping[int, Sequence[int]] = MappingProxyType({}),
        metrics: MetricValues = MappingProxyType({}),
    ) -> None:
        """Make the rows and letters kept so far durable, with the digests of what was sent so far.

        Returns normally, having written nothing, if another attempt has meanwhile finished the
        range.

        Args:
            read_so_far: where the next attempt goes on; None: at the beginning.
            is_last: whether the range is finished with this commit.
            sent: the digest of what was sent, by receiver; None: no receiver needs it.
            packings: how that was packed (`Gatherer.packings`).
            metrics: what user code has counted since this attempt has last committed.

        Raises:
            FencedError: another attempt owns the range and has not finished it, or has, and has packed otherwise.
            StoreUnreachableError: it is unknown whether it was committed; the next attempt will see.
            UnrepeatableError: what was committed before had other dead letters, or other digests.
        """
        self._check_dead(self._dead_behind)
        if self.is_finished:
            if is_last:
                self._check_end(read_so_far, sent)
            return
        assert self._row is not None
        fence = Fence(range_id=self._range_id, token=self._row.token, bundle=self._bundle + 1)
        met = self._dead_behind + self._dead_waiting
        so_far = None
        if read_so_far is not None or met.count or sent is not None:
            so_far = attrs.evolve(
                read_so_far or ReadSoFar(),
                dead=met.count,
                letters=met.digest,
                sent=sent,
                run=self._run,
                packings=packings,
            )
        production = Production(
            job=self._job,
            fences=[fence],
            dead=self._dead,
            lineage=self._lineage,
            tables=[buffer.table_write() for buffer in self._pending],
            metrics=self._counted(metrics),
            **self._progress(so_far, is_last=is_last),
        )
        result = commit_or_resolve(self._store, production)
        if isinstance(result.outcome, Indeterminate):
            raise self._unknown(result.detail)
        self._pending, self._dead, self._lineage = [], [], []
        self._dead_behind, self._dead_waiting = met, Letters()
        if isinstance(result.outcome, Committed):
            self._bundle, self.is_finished = fence.bundle, is_last
            self._dead_committed, self._counts_on = met, True
        else:
            self._wait_for_new_owner()
            if is_last:
                self._check_dead(met)
                self._check_end(read_so_far, sent)
                self._check_packings(packings)

    def _unknown(self, detail: str) -> StoreUnreachableError:
        return StoreUnreachableError(
            f"it is not known whether {self._range_id} of job {self._job} was committed",
            detail=detail,
            hint="check that the store is up, and run the same job again: it finds out first whether "
            "that was committed",
        )

    def _counted(self, metrics: MetricValues) -> Counted | None:
        """What is to be kept of what was counted: an attempt that has begun anew counts anew what others have."""
        is_anew = not self._counts_on and self._bundle > 0
        if not metrics and not is_anew:
            return None
        return Counted(encode_metrics(metrics), self._range_id, is_anew)

    # What a range's row contains, and how it is written: different where a stream is to go on from it.

    def _is_done(self, row: RangeRow) -> bool:
        return row.is_finished

    def _so_far_of(self, row: RangeRow) -> ReadSoFar:
        return ReadSoFar() if row.position is None else decode_read_so_far(row.position)

    def _progress(self, so_far: ReadSoFar | None, *, is_last: bool) -> dict[str, Any]:
        """The parts of a production that record how far the range is."""
        positions = {}
        if so_far is not None:
            positions[self._range_id] = encode_read_so_far(so_far)
        return {
            "positions": positions,
            "finished": frozenset([self._range_id] if is_last else []),
        }

    def _check_end(self, so_far: ReadSoFar | None, sent: Mapping[int, int] | None) -> None:
        if so_far is not None and so_far.records != self._before.records:
            raise UnrepeatableError(
                f"{self._where} was read twice, up to {so_far.records} records and to {self._before.records}",
                detail="results of one of the two inputs are in the store already",
                hint="do not change input while it is read; run the same again, or with fresh=True to start over",
            )
        self.check_sent(sent)

    def _check_packings(self, packings: Mapping[int, Sequence[int]]) -> None:
        if packings != self._before.packings:
            raise FencedError(
                f"another attempt at {self._range_id} of job {self._job} has ended, and has packed its output "
                "otherwise",
                hint="nothing is lost: the next attempt packs as that one has",
            )

    def _check_dead(self, repeated: Letters) -> None:
        before = self._dead_committed
        if repeated.differ(before):
            now = "others" if repeated.count == before.count else str(repeated.count)
            raise UnrepeatableError(
                f"user code of {self._range_id} failed on {before.count} records and timers, and when it was run "
                f"again on {now} of the same",
                detail="a task is run again when its output for other tasks is lost, and must then leave "
                "out the same records: their dead letters are committed",
                hint="let code fail only because of what is in a record, not by chance or time; running "
                "the same job again tries once more",
            )

    def _buffer(self, table: TableSpec) -> "_TableBuffer":
        # Only the last one of a table takes more, so that the order of the rows of a key
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
                self._look_at(row)
                if self.is_finished:
                    return
            if not row or row.owner in (None, self._owner) or waited_s >= self._fenced_wait_s:
                raise FencedError(
                    f"this attempt no longer owns {self._range_id} of job {self._job}",
                    detail=f"owner: {row.owner if row else 'none, the job was reset'}",
                    hint="nothing is lost; if this happens again and again, check whether the same job is "
                    "running twice",
                )
            time.sleep(_FENCED_POLL_S)
            waited_s += _FENCED_POLL_S


class _TableBuffer:
    """The net effect of several bundles on one table."""

    def __init__(self, table: TableSpec) -> None:
        self.table = table
        self._inserts: list[Row] = []
        self._rows: dict[Row, Row] = {}
        self._changes = RowChanges(table)
        #: Rows as columns, which come before all of these.
        self._columns: list[TableColumns] = []

    @property
    def size(self) -> int:
        waiting = len(self._inserts) + len(self._rows) + len(self._changes)
        return waiting + sum(map(len, self._columns))

    def add(self, write: TableWrite) -> None:
        rows = write.upserts or write.inserts
        if isinstance(rows, TableColumns) and not (self._rows or self._inserts):
            self._columns.append(rows)
            return
        for columns in self._columns:
            self._add_rows(self._write_of(columns))
        self._columns = []
        self._add_rows(write)

    def _add_rows(self, write: TableWrite) -> None:
        self._inserts.extend(write.inserts)
        self._changes.take(write.changes)
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
            upserts=list(self._rows.values()),
            changes=self._changes.net(),
            inserts=self._inserts,
        )
