"""MemoryStore: the store port in one process, for tests, the simulator and losable pipelines.

One object is the whole store; any number of workers and threads of the process share it, each as
if it had its own connection.  One lock makes every verb a transaction.

**Invariant:** a verb that raises, or that returns anything but `Committed`, changed nothing that
can be seen, except that `resolve` may have moved a token.

Never `Indeterminate`: faults are added by wrapping (`runners.testing`).
Nothing survives the process.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from dataflow.sink import Batching
from dataflow.table import Row, TableSpec, TableWrite
from runners.core.ground.clock import Clock
from runners.core.ground.lineage import LineageKind
from runners.core.panes.late import count_by_transform
from runners.core.tables.changelog import apply_table_write, check_write
from runners.core.tables.row_changes import applied
from runners.errors import StoreError
from runners.millwheel.model.events import UNKNOWN, Cause, JobEvent, StoredEvent
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.production import Counted, Production
from runners.millwheel.model.requests import DRAINED, FINISHED, Answer, Request, StoredRequest, Verb
from runners.millwheel.model.signals import Signal
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import StoredTrouble, Trouble
from runners.millwheel.store import events
from runners.millwheel.store.channel_ends import check_channels, check_cuts, check_receivers
from runners.millwheel.store.guards import (
    STATISTICS,
    check_fenced,
    check_fences,
    check_format,
    check_is_listening,
    check_is_served,
    check_names,
    check_own,
    check_same_job,
    check_sizes,
    check_splits_change,
    check_update,
    check_version,
    escaped_dead,
    escaped_late,
    escaped_lineage,
    is_carried_out,
    no_result_table,
    unknown_job,
    unknown_range,
)
from runners.millwheel.store.memory.evidence import (
    forget_events,
    note_event,
    read_events,
    read_pending,
)
from runners.millwheel.store.memory.job import (
    Kept,
    StoredJob,
    StoredTable,
    add_tables,
    apply_deliveries,
    apply_journal,
    apply_metrics,
    apply_record_ids,
    apply_reshape,
    changed_splits,
    check_ends,
    count_rows,
    cuts_of,
    delete_retired,
    empty_tables,
    ends_of,
    family,
    forget_owners,
    forget_requests,
    forget_signals,
    has_committed,
    has_landed,
    is_same_table,
    job_row,
    new_range,
    purge,
    read_journal,
    read_key,
    read_page,
    read_range,
    state_sizes,
    tables_of,
)
from runners.millwheel.store.memory.tokens import Tokens
from runners.millwheel.store.memory.troubles import MemoryTroubles
from runners.millwheel.store.memory.update import count_state, updated_job
from runners.millwheel.store.port import (
    JOURNAL_START,
    PRUNED,
    VALUE_BYTES_MAX,
    Answered,
    BlockedSession,
    CellKey,
    CommitOutcome,
    Committed,
    Fenced,
    JobRow,
    JobSpec,
    JobSummary,
    JobUpdate,
    JournalPlace,
    KeptKind,
    OldSnapshot,
    PendingChannel,
    PurgedKind,
    RangeRow,
    ReplicationSlot,
    ResultTable,
    SplitsChange,
    StateCounts,
    StoredKey,
    StoredLineage,
    StoredSnapshot,
    TakenRange,
    UnderWay,
    VacuumedTable,
)
from runners.relay.job_outboxes import SCHEMA
from runners.relay.memory_outbox import MemoryOutbox
from runners.relay.outbox import (
    AT_ONCE,
    LanePlace,
    LaneStatus,
    OutboxBatch,
    PartialBatch,
    Taken,
    TakenLane,
)
from runners.system_clock import SystemClock


class MemoryStore:
    """The store port on dictionaries; `runners.millwheel.store.port.Store` has the contract.

    Thread-safe, which the port does not require: one instance stands for all connections to one store.

    Args:
        clock: for the age of late records and other rows; by default that of the system.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        #: See `runners.millwheel.store.port.Store`.
        self.value_bytes_max = VALUE_BYTES_MAX
        self._jobs: dict[str, StoredJob] = {}
        self._tables: dict[str, StoredTable] = {}
        self._troubles = MemoryTroubles()
        self._outbox = MemoryOutbox(
            "memory", lambda name: self._tables[name].rows, self._clock.now_us
        )
        # Tokens never repeat, not even across reset and re-creation of a job, so that no commit
        # of an earlier incarnation can fit the next one.
        self._tokens = Tokens()

    def take_lane(self, place: LanePlace) -> TakenLane:
        """Take a lane of an outbox."""
        with self._lock:
            self._job(place.job)
            return self._outbox.take_lane(place)

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        """Note what is delivered, and take the batch after it.

        Args:
            lane: as it was taken.
            delivered: the number of the last batch that the sink has.
            batching: when a batch is full.
            is_due: whether a batch that is not full is taken too.
        """
        with self._lock:
            return self._outbox.next_batch(lane, delivered, batching, is_due=is_due)

    def count_waiting(self, place: LanePlace) -> int:
        """How many rows of a lane are not known to be delivered."""
        with self._lock:
            return self._outbox.count_waiting(place)

    def note_failure(self, place: LanePlace, reason: str | None) -> None:
        """Keep that a lane cannot be sent; None: it can."""
        with self._lock:
            self._job(place.job)
            self._outbox.note_failure(place, reason)

    def read_key(self, job: str, computation: str, key_hash: int) -> StoredKey | None:
        """What is stored of the keys with a hash."""
        with self._lock:
            found = self._jobs.get(job)
            return None if found is None else read_key(found, computation, key_hash)

    def state_sizes(self, job: str) -> Mapping[RangeId, int]:
        """How many bytes of state each key range has."""
        with self._lock:
            return state_sizes(self._jobs[job]) if job in self._jobs else {}

    def read_journal(
        self, job: str, range_id: RangeId, after: JournalPlace = JOURNAL_START
    ) -> Sequence[tuple[JournalPlace, bytes]]:
        """The next entries of a range's journal."""
        with self._lock:
            found = self._jobs.get(job)
            return () if found is None else read_journal(found, range_id, after)

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Keep everybody else out."""
        with self._lock:
            yield

    def read_lanes(self, job: str) -> Sequence[LaneStatus]:
        """The lanes of a job's sinks, and what waits in them."""
        with self._lock:
            names = [each.name for each in tables_of(self._tables, job)]
            outboxes = [name for name in names if name.startswith(f"{SCHEMA}.")]
            return [lane for each in outboxes for lane in self._outbox.status(job, each)]

    def incarnation(self) -> str:
        """Always the same: it ends with the process."""
        return "memory"

    def open_job(self, spec: JobSpec) -> JobRow:
        """Create the job, its ranges and its tables, or return them as they are."""
        check_names(spec)
        with self._lock:
            job = self._jobs.get(spec.job)
            if job is not None:
                check_same_job(
                    spec,
                    mode=job.spec.mode,
                    fingerprint=job.spec.fingerprint,
                    computations=job.spec.computations,
                )
                check_format(spec, job.spec.stored_format)
            add_tables(self._tables, spec)
            if job is None:
                self._jobs[spec.job] = StoredJob(
                    spec, {r.range_id: new_range(r, next(self._tokens)) for r in spec.ranges}
                )
            else:
                known = {**spec.computations, **job.spec.computations}
                job.version += job.spec.stored_format != spec.stored_format
                job.spec = attrs.evolve(
                    job.spec,
                    signals=spec.signals,
                    computations=known,
                    stored_format=spec.stored_format,
                )
            return attrs.evolve(job_row(self._jobs[spec.job]), is_new=job is None)

    def update_job(self, update: JobUpdate) -> JobRow:
        """Go over to a new version of the job."""
        check_names(update.spec)
        with self._lock:
            job = self._job(update.spec.job)
            if not is_carried_out(update, job_row(job)):
                check_update(update, job_row(job), count_state(job))
                check_own(job.spec.job, update.emptied, self._own(job.spec.job, update.emptied))
                event = events.updated(update, job_row(job))
                add_tables(self._tables, update.spec)
                empty_tables(self._tables, update)
                for table in update.emptied:
                    self._outbox.forget_outbox(job.spec.job, table.name)
                job = self._jobs[update.spec.job] = updated_job(
                    job, update, self._tokens, self._clock.monotonic_ms()
                )
                self._note(job, event)
            return job_row(job)

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        """Note which splits a source has got and lost."""
        with self._lock:
            stored = self._job(change.job)
            check_splits_change(
                change,
                version=stored.version,
                is_finished=stored.is_finished,
                computations={each.computation for each in stored.ranges},
            )
            return changed_splits(stored, change, self._tokens)

    def count_state(self, job: str) -> StateCounts:
        """How much state the job has."""
        with self._lock:
            return count_state(self._jobs[job]) if job in self._jobs else StateCounts()

    def reset_job(self, job: str) -> None:
        """Forget the job; drop the tables it created, unless another job writes to them too."""
        with self._lock:
            if self._jobs.pop(job, None) is None:
                return
            self._troubles.forget(job)
            self._outbox.forget(job)
            for name, table in list(self._tables.items()):
                table.users.discard(job)
                if table.creator == job:
                    table.creator = min(table.users, default=None)
                    if table.creator is None:
                        del self._tables[name]

    def result_tables(self, job: str) -> Sequence[ResultTable]:
        """The tables that the job writes to."""
        with self._lock:
            return tables_of(self._tables, job)

    def own_tables(self, job: str, tables: Sequence[TableSpec]) -> Mapping[str, int]:
        """The tables that are the job's own, with how many rows they have."""
        with self._lock:
            return self._own(job, tables)

    def _own(self, job: str, tables: Sequence[TableSpec]) -> dict[str, int]:
        own = {each.name for each in tables_of(self._tables, job) if each.is_own}
        return {each.name: len(self._tables[each.name].rows) for each in tables if each.name in own}

    def read_job(self, job: str) -> JobRow | None:
        """The job as it stands, or None."""
        with self._lock:
            return job_row(self._jobs[job]) if job in self._jobs else None

    def read_jobs(self) -> Sequence[JobSummary]:
        """All jobs, by name."""
        with self._lock:
            return [JobSummary.of(job_row(job)) for _, job in sorted(self._jobs.items())]

    def note_troubles(self, job: str, troubles: Sequence[Trouble]) -> None:
        """Keep why workers of the job have ended, and wait."""
        with self._lock:
            if job in self._jobs:
                self._troubles.note(job, troubles, self._clock.now_us())
                for event in events.failures(troubles):
                    self._note(self._jobs[job], event)

    def read_troubles(self, job: str) -> Sequence[StoredTrouble]:
        """The troubles of a job, the latest first."""
        with self._lock:
            return self._troubles.read(job)

    def note_polls(self, job: str, polls: Mapping[RangeId, SplitPoll]) -> None:
        """Keep the last polls of the job's splits."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job].polls = dict(polls)

    def read_polls(self, job: str) -> Mapping[RangeId, SplitPoll]:
        """The last polls of the job's splits."""
        with self._lock:
            return self._jobs[job].polls if job in self._jobs else {}

    def note_snapshot(self, job: str, document: bytes, taken_us: int) -> None:
        """Keep what the driver of the job knows."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job].snapshot = document, taken_us, self._clock.now_us()

    def read_snapshot(self, job: str) -> StoredSnapshot | None:
        """What the driver of the job knew last."""
        with self._lock:
            found = self._jobs[job].snapshot if job in self._jobs else None
            if found is None:
                return None
            document, taken_us, written_us = found
            age_s = (self._clock.now_us() - written_us) / 1_000_000
            return StoredSnapshot(document=document, taken_us=taken_us, age_s=age_s)

    def note_event(self, job: str, event: JobEvent) -> None:
        """Keep an event."""
        with self._lock:
            if job in self._jobs:
                self._note(self._jobs[job], event)

    def _note(self, job: StoredJob, event: JobEvent) -> None:
        note_event(job, event, self._clock.now_us())

    def read_events(self, job: str, most: int = 100) -> Sequence[StoredEvent]:
        """The last events of the job, the latest first."""
        with self._lock:
            return read_events(self._jobs[job], most) if job in self._jobs else []

    def read_pending(self, job: str) -> Mapping[Channel, PendingChannel]:
        """What is not acknowledged, by channel."""
        with self._lock:
            return read_pending(self._jobs[job], self._clock.now_us()) if job in self._jobs else {}

    def replication_slots(self) -> Sequence[ReplicationSlot]:
        """None: nobody follows memory."""
        return ()

    def vacuumed_tables(self, job: str) -> Sequence[VacuumedTable]:
        """None: memory has one version of everything."""
        return ()

    def blocked_sessions(self) -> Sequence[BlockedSession]:
        """Nobody has a session."""
        return ()

    def version(self) -> str:
        """Memory has none."""
        return "memory"

    def old_snapshots(self, older_than_s: float) -> Sequence[OldSnapshot]:
        """None: memory has one version of everything."""
        return []

    def send_signal(self, job: str, name: str) -> int:
        """Keep a signal for the job, and return its number."""
        with self._lock:
            stored = self._job(job)
            check_is_listening(
                job,
                name,
                mode=stored.spec.mode,
                is_finished=stored.is_finished,
                known=stored.spec.signals,
            )
            number = stored.signals[-1].number + 1 if stored.signals else 1
            stored.signals.append(Signal(number, name))
            stored.sent_ms[number] = self._clock.monotonic_ms()
            return number

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        """The job's signals with numbers above ``after``."""
        with self._lock:
            stored = self._jobs.get(job)
            return [each for each in stored.signals if each.number > after] if stored else []

    def send_request(self, job: str, request: Request) -> int:
        """Keep a request for the job, and return its number."""
        with self._lock:
            stored = self._job(job)
            check_is_served(job, request, mode=stored.spec.mode, is_finished=stored.is_finished)
            number = stored.requests[-1].number + 1 if stored.requests else 1
            stored.requested_us[number] = self._clock.now_us()
            stored.requests.append(StoredRequest(number=number, request=request))
            return number

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The job's requests with numbers above ``after``."""
        with self._lock:
            stored = self._jobs.get(job)
            return [each for each in stored.requests if each.number > after] if stored else []

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        """Keep the answer to a request, once."""
        with self._lock:
            if job not in self._jobs:
                return
            stored = self._jobs[job]
            for index, each in enumerate(stored.requests):
                if each.number == number and each.answer is None:
                    stored.requests[index] = attrs.evolve(each, answer=answer)
                    stored.answered_ms[number] = self._clock.monotonic_ms()

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        """Mark the job as done, and answer all open requests."""
        with self._lock:
            stored = self._job(job)
            if not stored.is_finished:
                stored.is_finished, stored.is_drained = True, is_drained
                self._note(stored, events.finished(is_drained=is_drained))
            for each in list(stored.requests):
                drains = stored.is_drained and each.request.verb is Verb.DRAIN
                self.answer_request(job, each.number, DRAINED if drains else FINISHED)

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        """Move every token first, then read."""
        with self._lock:
            stored = self._job(job)
            check_version(job, version, stored.version)
            for range_id in range_ids:
                if range_id not in stored.ranges:
                    raise unknown_range(job, range_id)
            taken = family(stored, range_ids)
            self._check_taken(stored, taken)
            former = {range_id: stored.ranges[range_id].owner for range_id in taken}
            changed = {range_id: name for range_id, name in former.items() if name != owner}
            if changed:
                self._note(stored, events.takeover(changed, owner, cause))
            for range_id in taken:
                self._move_token(stored, range_id, owner)
            return {range_id: read_range(stored, range_id) for range_id in taken}

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read those of these cells that exist, for the owner of their ranges."""
        with self._lock:
            fenced = self._not_owned(job, tokens)
            if fenced is not None:
                return fenced
            stored = self._jobs[job].cells.get(computation, {})
            return {key: stored[key] for key in keys if key in stored}

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """The next cells of a range, to its owner."""
        with self._lock:
            fenced = self._not_owned(job, {range_id: token})
            return fenced or read_page(self._jobs[job], range_id, first_hash, cells)

    def commit(self, production: Production) -> CommitOutcome:
        """Apply the production, whole, if every fence is valid."""
        check_fences(production)
        check_sizes(production, self.value_bytes_max)
        for write in production.tables:
            check_write(write)
        with self._lock:
            job = self._jobs.get(production.job)
            if job is None:
                return Fenced(production.fences[0].range_id)
            for fence in production.fences:
                if not self._holds(job, fence):
                    return Fenced(fence.range_id)
            keys = {f.range_id: job.ranges[f.range_id].keys for f in production.fences}
            check_fenced(production, keys, job.ranges)
            if unknown := production.named_ranges() - job.ranges.keys():
                raise unknown_range(production.job, min(unknown))
            self._check_relied_on(job, production)
            self._check_new(job, production)
            self._apply(job, production)
            return Committed()

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        """Apply the production at once."""
        ready()
        return Answered(self.commit(production))

    def resolve(self, production: Production) -> CommitOutcome:
        """Whether the production landed; if not, it never will from here on."""
        with self._lock:
            job = self._jobs.get(production.job)
            if job is None:
                return Fenced(production.fences[0].range_id)
            if all(has_landed(job, fence) for fence in production.fences):
                return Committed()
            for fence in production.fences:
                row = job.ranges.get(fence.range_id)
                if row is not None and row.token == fence.token:
                    self._move_token(job, fence.range_id, None)
            return Fenced(production.fences[0].range_id)

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        """Find which of these record ids the range has."""
        with self._lock:
            kept = self._record_ids(job, range_id)
            return {digest for digest in digests if digest in kept}

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """The range's record ids after one of them, in order."""
        with self._lock:
            kept = self._record_ids(job, range_id).items()
            return sorted(each for each in kept if each[0] > after)[:count]

    def read_table(self, table: TableSpec) -> Sequence[Row]:
        """All rows of a result table."""
        with self._lock:
            return list(self._table(table).rows.values())

    def read_rows(self, table: str, count: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of a result table by the names of its columns."""
        with self._lock:
            if table not in self._tables:
                raise no_result_table(table, list(self._tables))
            stored = self._tables[table]
            names = list(stored.spec.columns)
            rows = [dict(zip(names, row, strict=True)) for row in stored.rows.values()]
        rows.sort(key=lambda row: [row[name] for name in stored.spec.key])
        return rows[:count]

    def read_late(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's late records, oldest first."""
        with self._lock:
            stored = self._jobs.get(job)
            return [kept.fields() for kept in stored.late] if stored else []

    def read_dead_letters(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's dead letters, oldest first."""
        with self._lock:
            stored = self._jobs.get(job)
            return [kept.fields() for kept in stored.dead] if stored else []

    def read_late_counts(self, job: str) -> Mapping[str, int]:
        """How many records came too late, by transform."""
        with self._lock:
            if job not in self._jobs:
                return {}
            stored = self._jobs[job]
            late = [(kept.row.transform, kept.row.count) for kept in stored.late]
            return count_by_transform([*late, *stored.purged_late.items()])

    def read_metrics(self, job: str) -> Sequence[bytes]:
        """What user code has counted."""
        with self._lock:
            return [each.payload for each in self._jobs[job].metrics] if job in self._jobs else []

    def fold_metrics(self, job: str, fold: Callable[[Sequence[bytes]], bytes]) -> None:
        """Replace what is of no range by one payload."""
        with self._lock:
            if job not in self._jobs:
                return
            stored = self._jobs[job]
            several = [each.payload for each in stored.metrics if each.range_id is None]
            if len(several) > 1:
                kept = [each for each in stored.metrics if each.range_id is not None]
                stored.metrics = [*kept, Counted(fold(several))]

    def read_lineage(
        self, job: str, kind: LineageKind, transform: str, key_hash: int
    ) -> Sequence[StoredLineage]:
        """The entries of the lineage of a job about one key, oldest first."""
        with self._lock:
            stored = self._jobs.get(job)
            found = [] if stored is None else [kept.row for kept in stored.lineage]
            wanted = kind, transform, key_hash
            return [
                each
                for each in found
                if (each.entry.kind, each.entry.transform, each.entry.key_hash) == wanted
            ]

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        """Delete late records, dead letters or lineage; returns how many rows."""
        with self._lock:
            if job not in self._jobs:
                return 0
            until_ms = self._clock.monotonic_ms() - round(older_than_s * 1_000)
            return purge(self._jobs[job], kind, until_ms, up_to)

    def begin_replay(self, job: str, kind: KeptKind) -> int | None:
        """The number of the last row that the replay is about; None if there is none."""
        with self._lock:
            stored = self._jobs.get(job)
            if stored is None:
                return None
            rows: Sequence[Kept[Any]] = stored.late if kind == "late" else stored.dead
            return stored.replays.setdefault(kind, rows[-1].number) if rows else None

    def end_replay(self, job: str, kind: KeptKind) -> None:
        """Note that the replay is done."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job].replays.pop(kind, None)

    def prune(
        self,
        job: str,
        *,
        older_than_s: float,
        retired: Collection[RangeId] = (),
        signals_up_to: int = 0,
    ) -> Mapping[str, int]:
        """Delete what the job has left behind."""
        with self._lock:
            if job not in self._jobs:
                return dict.fromkeys(PRUNED, 0)
            stored = self._jobs[job]
            until_ms = self._clock.monotonic_ms() - round(older_than_s * 1_000)
            return {
                "ranges": delete_retired(stored, until_ms, retired),
                "owners": forget_owners(stored, until_ms),
                "requests": forget_requests(stored, until_ms),
                "signals": forget_signals(stored, until_ms, signals_up_to),
                "events": forget_events(stored),
            }

    def statistics(self, job: str) -> Mapping[str, int]:
        """Row counts of the job by kind; all zero for a job that does not exist."""
        with self._lock:
            stored = self._jobs.get(job)
            return count_rows(stored) if stored else dict.fromkeys(STATISTICS, 0)

    def close(self) -> None:
        """Do nothing: other workers may share the store."""

    def _not_owned(self, job: str, tokens: Mapping[RangeId, int]) -> Fenced | None:
        ranges = self._jobs[job].ranges if job in self._jobs else {}
        for range_id, token in tokens.items():
            if range_id not in ranges or ranges[range_id].token != token:
                return Fenced(range_id)
        return None

    def _holds(self, job: StoredJob, fence: Fence) -> bool:
        row = job.ranges.get(fence.range_id)
        return row is not None and (row.token, row.bundle + 1) == (fence.token, fence.bundle)

    def _move_token(self, job: StoredJob, range_id: RangeId, owner: str | None) -> None:
        row = job.ranges[range_id]
        job.last_bundles[range_id, row.token] = row.bundle
        job.ended_ms[range_id, row.token] = self._clock.monotonic_ms()
        job.ranges[range_id] = attrs.evolve(row, token=next(self._tokens), owner=owner)

    def _check_taken(self, job: StoredJob, range_ids: Sequence[RangeId]) -> None:
        has = partial(has_committed, job)
        check_channels(job.spec.job, ends_of(job, range_ids), has)
        check_cuts(job.spec.job, cuts_of(job, range_ids), has)
        self._check_receivers(job, range_ids)

    def _check_receivers(self, job: StoredJob, range_ids: Sequence[RangeId]) -> None:
        on_their_way = [channel for channel, pending in job.checkpoints.items() if pending]
        mine = [channel for channel in on_their_way if channel.sender in range_ids]
        check_receivers(job.spec.job, mine, job.ranges)

    def _check_relied_on(self, job: StoredJob, production: Production) -> None:
        check_ends(job, production)

    def _check_new(self, job: StoredJob, production: Production) -> None:
        """Refuse, before anything changes, what a store with transactions would refuse half-way."""
        for channel, sequence, _, _ in production.checkpoints:
            if sequence in job.checkpoints.get(channel, {}):
                raise StoreError(
                    f"sequence {sequence} of channel {channel} is taken",
                    hint="this is a bug in dataflow-model: a sequence is given out once",
                )
        writes: dict[str, list[TableWrite]] = {}
        for write in production.tables:
            self._table(write.table)
            writes.setdefault(write.table.name, []).append(write)
        for name, several in writes.items():
            applied(self._tables[name].rows, several)

    def _apply(self, job: StoredJob, production: Production) -> None:
        self._apply_state(job, production)
        apply_journal(job, production)
        self._apply_deliveries(job, production)
        self._apply_progress(job, production)
        apply_record_ids(job, production)
        if production.reshape is not None:
            owner = job.ranges[production.reshape.handover_with].owner
            self._note(job, events.reshaped(production.reshape, owner))
            apply_reshape(job, production.reshape, next(self._tokens))
        recorded_ms = self._clock.monotonic_ms()
        for range_id in production.ended_handovers:
            row = job.ranges[range_id] = attrs.evolve(job.ranges[range_id], handover_with=None)
            if row.keys is None and row.split is None:
                job.retired_ms[range_id] = recorded_ms
        for record in map(escaped_late, production.late):
            job.late.append(Kept(next(self._tokens), recorded_ms, record))
        if production.metrics is not None:
            apply_metrics(job, production.metrics)
        for entry in map(escaped_lineage, production.lineage):
            number = next(self._tokens)
            kept = StoredLineage(number, job.version, entry)
            job.lineage.append(Kept(number, recorded_ms, kept))
        for letter in map(escaped_dead, production.dead):
            job.dead.append(Kept(next(self._tokens), recorded_ms, letter))
        for write in production.tables:
            apply_table_write(self._table(write.table).rows, write)

    def _apply_state(self, job: StoredJob, production: Production) -> None:
        for computation, key_hash, cell_key, value in production.cells:
            cells = job.cells.setdefault(computation, {})
            if value is None:
                cells.pop((key_hash, cell_key), None)
            else:
                cells[key_hash, cell_key] = value
        for computation, key_hash, cell_key, tag, domain, fire_us in production.timers:
            timers = job.timers.setdefault(computation, {})
            if fire_us is None:
                timers.pop((key_hash, cell_key, tag, domain), None)
            else:
                timers[key_hash, cell_key, tag, domain] = fire_us

    def _apply_deliveries(self, job: StoredJob, production: Production) -> None:
        apply_deliveries(job, production, self._clock.now_us())

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        for fence in production.fences:
            range_id = fence.range_id
            if production.cut:
                job.cuts[range_id] = dict(production.cut)
            row = job.ranges[range_id]
            watermarks = (row.watermark_us, production.watermarks_us.get(range_id))
            percentiles = (row.percentile_us, production.percentiles_us.get(range_id))
            firing = (row.firing_us, production.firing_us.get(range_id))
            job.ranges[range_id] = attrs.evolve(
                row,
                bundle=fence.bundle,
                position=production.positions.get(range_id, row.position),
                # A watermark only ever advances (I4), whichever process reports it.
                watermark_us=max((us for us in watermarks if us is not None), default=None),
                percentile_us=max((us for us in percentiles if us is not None), default=None),
                firing_us=max((us for us in firing if us is not None), default=None),
                is_finished=row.is_finished or range_id in production.finished,
                signal_mark=max(
                    row.signal_mark, production.signal_marks.get(range_id, row.signal_mark)
                ),
            )

    def _record_ids(self, job: str, range_id: RangeId) -> Mapping[bytes, int]:
        return self._jobs[job].record_ids.get(range_id, {}) if job in self._jobs else {}

    def _job(self, job: str) -> StoredJob:
        if job not in self._jobs:
            raise unknown_job(job)
        return self._jobs[job]

    def _table(self, table: TableSpec) -> StoredTable:
        stored = self._tables.get(table.name)
        if stored is None or not is_same_table(stored.spec, table):
            raise StoreError(
                f"there is no table {table.name} with these columns and this key",
                hint="declare the table in the job's spec",
            )
        return stored
