"""The store: where the exactly-once core keeps all durable state, in verbs of the domain.

Two adapters implement it, memory and Postgres, and one conformance suite tests both (`runners.testing`).
Rules that every adapter keeps:

* **The fence is a lock, not a check.**  `Store.commit` takes the row of every fenced range inside its transaction and
  writes only when token and bundle number both match; `Store.acquire` takes the same rows first and moves the token,
  and only then reads (ADR 0004; MillWheel figure 12).
* **Losing a race is a result**, not an exception: `Fenced`.
* **Not knowing is a result of its own**: `Indeterminate`, when the connection died around the commit.  It is resolved
  by `Store.resolve`, which reads the bundle number back, and never by sending the commit again.
* A store error that certainly changed nothing is retried inside the adapter or raised as `StoreError`.

MillWheel, section 6; ADR 0004.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

import attrs

from dataflow.table import Row, TableSpec
from runners.core.ground.lineage import LineageEntry, LineageKind
from runners.millwheel.model.events import UNKNOWN, Cause, JobEvent, StoredEvent
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.production import Checkpoint, Production
from runners.millwheel.model.requests import Answer, Request, StoredRequest
from runners.millwheel.model.signals import NO_SIGNALS, Signal, SignalMark
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import StoredTrouble, Trouble
from runners.relay.outbox import LaneStatus, OutboxStore
from runners.stored.framing import current_format


@attrs.frozen
class Committed:
    """All of the production is durable."""


@attrs.frozen
class StoredLineage:
    """An entry of the lineage of a job.

    Attributes:
        number: grows from one commit to those that have seen it.
        version: of the job when it was recorded.
        entry: the entry.
    """

    number: int
    version: int
    entry: LineageEntry


@attrs.frozen
class Fenced:
    """None of the production happened, and none of it ever will: another worker owns one of its ranges."""

    range_id: RangeId


@attrs.frozen
class Indeterminate:
    """The production is either wholly durable or wholly absent; ask `Store.resolve`."""

    reason: str


CommitOutcome = Committed | Fenced | Indeterminate


class UnderWay(Protocol):
    """A commit that was sent, and may still be under way."""

    @property
    def is_answered(self) -> bool:
        """Whether `outcome` has hardly anything to wait for; asks nobody, and may be False although it is so."""

    def outcome(self) -> CommitOutcome:
        """Wait for the outcome; returns and raises what `Store.commit` does, each time that it is called."""


@attrs.frozen
class Answered:
    """A commit that is not under way any more.

    Attributes:
        known: its outcome.
    """

    known: CommitOutcome
    is_answered: bool = attrs.field(default=True, init=False)

    def outcome(self) -> CommitOutcome:
        """What became of it."""
        return self.known


#: What a job keeps for people: records that came too late, and records that user code could not take.
KeptKind = Literal["late", "dead"]
#: What `Store.purge` deletes.
PurgedKind = Literal["late", "dead", "lineage"]
#: What `Store.prune` deletes.
PRUNED = ("ranges", "owners", "requests", "signals", "events")
#: What the keys of cells begin with that are pages of the state of another cell: of these a store hands out only those
#: that it is asked for, as there may be any number for one key.
PAGE_MARK = b"\xfe"
#: Key hash and `CellWrite.cell_key`: one cell of a computation.
CellKey = tuple[int, bytes]
#: No store needs to take a larger value; Postgres takes no message of 1 GiB, and a message is larger than its value.
VALUE_BYTES_MAX = 1_000_000_000


@attrs.frozen(kw_only=True)
class RangeSpec:
    """A range as the job is created with it: a key range, or a source split (opaque bytes)."""

    range_id: RangeId
    keys: KeyRange | None = None
    split: bytes | None = None


@attrs.frozen(kw_only=True)
class JobSpec:
    """The specification of a job.

    Attributes:
        fingerprint: identifies the shape of the pipeline, to refuse a different one under the same name.
        signals: the names of the signals that its triggers listen to.
        computations: what the state of each is made of, by name (`runners.millwheel.versions.state_shape`); opaque to
            the store.
        stored_format: the number of the format of stored bytes that this code writes (`runners.stored.framing`).
        readable_formats: the numbers of the formats that this code reads.
    """

    job: str
    mode: str
    fingerprint: str
    ranges: Sequence[RangeSpec]
    tables: Sequence[TableSpec] = ()
    signals: frozenset[str] = frozenset()
    computations: Mapping[str, str] = attrs.field(factory=dict)
    stored_format: int = attrs.field(factory=lambda: current_format().number)
    readable_formats: frozenset[int] = attrs.field(factory=lambda: current_format().readable)


@attrs.frozen(kw_only=True)
class RangeRow:
    """A range as the store has it.

    Attributes:
        watermark_us: None until the range's first commit.
        percentile_us: None until a range whose triggers follow a percentile has fired by one.
        firing_us: the input watermark by which it has fired some of what is due, where that was not all; None: there
            has been none.  It need not be ahead of ``watermark_us`` any more.
        handover_with: the range whose owner must own this one too (`Production.reshape`).
        is_removed: whether it is a split that its input does not have any more (`SplitsChange.removed`).
    """

    range_id: RangeId
    keys: KeyRange | None
    split: bytes | None
    token: int
    bundle: int
    owner: str | None
    position: bytes | None
    watermark_us: int | None
    is_finished: bool
    signal_mark: SignalMark = NO_SIGNALS
    percentile_us: int | None = None
    firing_us: int | None = None
    handover_with: RangeId | None = None
    is_removed: bool = False

    @property
    def input_watermark_us(self) -> int | None:
        """The furthest input watermark by which it has fired anything; None: there has been none."""
        known = [us for us in (self.watermark_us, self.firing_us) if us is not None]
        return max(known, default=None)

    @property
    def is_retired(self) -> bool:
        """Whether it was merged into another, and has nothing left to do."""
        return self.is_finished and self.keys is None and self.split is None


@attrs.frozen(kw_only=True)
class SplitsChange:
    """Splits of a source that a running job gets, and those that its input does not have any more.

    Attributes:
        version: of the job that the driver knows.
        computation: that reads the source.
        known: how many splits the driver knows of it.
        added: the new ones, encoded.
        watermark_us: at which the new ones begin, in microseconds since 1970.
        removed: ranges of known splits.
    """

    job: str
    version: int
    computation: str
    known: int
    added: Sequence[bytes]
    watermark_us: int
    removed: Sequence[RangeId] = ()


@attrs.frozen(kw_only=True)
class JobRow:
    """A job as the store has it.

    Attributes:
        is_drained: finished because of a request to drain.
        computations: as in `JobSpec`, None where it is not known.
        version: counts the updates.
        stored_format: the format of the code that has the job; all that is stored of it is of this number or lower; 0:
            from before formats had numbers.
        is_new: whether it was created by the call of `Store.open_job` that has returned it: of several that are made at
            once, by one.  Not compared.
    """

    job: str
    mode: str
    fingerprint: str
    is_finished: bool
    ranges: Mapping[RangeId, RangeRow]
    signals: frozenset[str] = frozenset()
    is_drained: bool = False
    computations: Mapping[str, str | None] = attrs.field(factory=dict)
    version: int = 0
    stored_format: int = 0
    is_new: bool = attrs.field(default=False, eq=False)


@attrs.frozen(kw_only=True)
class StateCounts:
    """How much state a job has, by computation: cells, timers, and productions in flight by sender and receiver.

    A cell in the journal counts for each of its entries.
    Zeros are left out.
    """

    cells: Mapping[str, int] = attrs.field(factory=dict)
    timers: Mapping[str, int] = attrs.field(factory=dict)
    in_flight: Mapping[tuple[str, str], int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class JobUpdate:
    """A new version of a job.

    Attributes:
        spec: its specification from here on.
        kept: computations that keep their ranges and all their state: by the old name, the new one.
        version: of the job that is to be updated.
        counts: how much state it had when this was decided.
        emptied: own tables of the job (`Store.own_tables`) all of whose rows go; those that the specification does not
            have go with them.
    """

    spec: JobSpec
    kept: Mapping[str, str]
    version: int
    counts: StateCounts
    emptied: Sequence[TableSpec] = ()


@attrs.frozen(kw_only=True)
class ResultTable:
    """A table that a job writes to.

    Attributes:
        is_created: whether the job has created it, or has it from one that did.
        others: jobs that write to it too.
        has_rows: None if it is not there any more.
    """

    name: str
    is_created: bool
    others: Sequence[str]
    has_rows: bool | None

    @property
    def is_own(self) -> bool:
        """Whether it is dropped together with the job."""
        return self.is_created and not self.others


@attrs.frozen(kw_only=True)
class JobSummary:
    """A job in a list of jobs.

    Attributes:
        ranges: how many it has.
        open_ranges: in how many of them there is something left to do: none of a job that is finished.
        watermark_us: the lowest that a range has committed; None while there is a split of a source without one.  A key
            range without one has had nothing yet, and does not count.
        driver: the process that runs the job now, with its host; None: there is none, or it is a batch, which leaves no
            trace in the store.
    """

    job: str
    mode: str
    is_finished: bool
    signals: frozenset[str]
    ranges: int
    open_ranges: int
    watermark_us: int | None
    is_drained: bool = False
    driver: str | None = None
    stored_format: int = 0

    @classmethod
    def of(cls, job: JobRow) -> "JobSummary":
        """The summary of a job."""
        rows = job.ranges.values()
        known_us = [row.watermark_us for row in rows if row.watermark_us is not None]
        has_begun = all(row.split is None or row.watermark_us is not None for row in rows)
        return cls(
            job=job.job,
            mode=job.mode,
            is_finished=job.is_finished,
            is_drained=job.is_drained,
            signals=job.signals,
            ranges=len(rows),
            open_ranges=0 if job.is_finished else sum(not row.is_finished for row in rows),
            watermark_us=min(known_us, default=None) if has_begun else None,
            stored_format=job.stored_format,
        )


@attrs.frozen(kw_only=True)
class StoredTimer:
    """A timer as scanned at takeover."""

    key_hash: int
    cell_key: bytes
    tag: bytes
    domain: str
    fire_us: int


@attrs.frozen(kw_only=True)
class StoredKey:
    """All that is stored of the keys with one hash, for people: whoever owns their range may be ahead of it.

    Attributes:
        range_id: the range that has them.
        watermark_us: as in `RangeRow`.
        cells: by their keys, without pages; what the journal of the range has of them is not in these yet
            (`Store.read_journal`).
    """

    range_id: RangeId
    watermark_us: int | None
    cells: Mapping[bytes, bytes]
    timers: Sequence[StoredTimer]


class JournalPlace(NamedTuple):
    """Where an entry is in the journal of its range."""

    bundle: int
    part: int


#: Before all entries.
JOURNAL_START = JournalPlace(-1, 0)
#: Entries that are read at once, at most.
JOURNAL_PAGE = 500


@attrs.frozen(kw_only=True)
class TakenRange:
    """What a new owner needs at once, read after the token moved, so no earlier owner can add to it.

    The new owner reads the cells afterwards, as it needs them.

    Attributes:
        delivered: the highest sequence that it has seen, per channel into it.
        sent: the highest sequence ever given out, per channel out of it, as far as it or the receiver has it.
        checkpoints: productions of this range that are not acknowledged yet, ordered per channel.
        journal: what has changed in cells and timers since those were written, oldest first (`Production.journal`).
    """

    row: RangeRow
    timers: Sequence[StoredTimer]
    delivered: Mapping[Channel, int]
    sent: Mapping[Channel, int]
    checkpoints: Sequence[Checkpoint]
    journal: Sequence[bytes] = ()


@attrs.frozen(kw_only=True)
class OldSnapshot:
    """What keeps a database from freeing all that was overwritten or deleted since it began.

    Attributes:
        holder: what it is and its number or name, such as "session 4711" or "prepared transaction x".
        application: the name that it gives itself; may be empty.
        user: its role.
        state: what it does, in the database's words, such as "idle in transaction".
        age_s: for how long, in seconds.
    """

    holder: str
    application: str
    user: str
    state: str
    age_s: float


@attrs.frozen(kw_only=True)
class ReplicationSlot:
    """A slot of a database, by which a standby or a reader of its changes goes on where it was.

    Attributes:
        is_active: whether somebody reads it now.
        wal_status: what becomes of what it keeps, in the database's words, such as "reserved" or "lost".
        kept_bytes: how much of the log it keeps.
        keeps_rows: whether it keeps rows that were overwritten or deleted, too.
    """

    name: str
    is_active: bool
    wal_status: str
    kept_bytes: int
    keeps_rows: bool


@attrs.frozen(kw_only=True)
class VacuumedTable:
    """A table of a store, and what there is of it that a vacuum would free.

    Attributes:
        vacuum_after: how many dead rows it has to have until it is vacuumed.
        is_autovacuumed: whether it is at all, by the database itself.
        vacuumed_age_s: how long ago it was, by anybody, in seconds; None: never.
        is_being_vacuumed: whether it is now.
    """

    name: str
    size_bytes: int
    live_rows: int
    dead_rows: int
    vacuum_after: int
    is_autovacuumed: bool
    vacuumed_age_s: float | None
    is_being_vacuumed: bool = False


@attrs.frozen(kw_only=True)
class BlockedSession:
    """A session of a database that waits for a lock of another one.

    Attributes:
        session: its number.
        holder: the number of the other one.
        query: what that one runs, or has run last.
        age_s: for how long the first one's statement has run, in seconds.
    """

    session: int
    holder: int
    query: str
    age_s: float


@attrs.frozen(kw_only=True)
class StoredSnapshot:
    """What the driver of a job knew, as the store has it.

    Attributes:
        document: JSON; opaque to the store (`runners.observability.evidence.snapshot`).
        taken_us: when it was taken, by the driver's clock, in microseconds since 1970.
        age_s: how long ago it was written, by the store's clock, in seconds.
    """

    document: bytes
    taken_us: int
    age_s: float


@attrs.frozen(kw_only=True)
class PendingChannel:
    """What is durable and not acknowledged on a channel.

    Attributes:
        pending: how many productions.
        hold_us: the earliest event time in them, which holds the sender's output watermark.
        age_s: how long ago the oldest was made, in seconds.
    """

    pending: int
    hold_us: int
    age_s: float


class Store(OutboxStore, Protocol):
    """Durable state of jobs, and the outboxes of their sinks.

    Not thread-safe: one instance per thread (an adapter may have one connection).

    Attributes:
        value_bytes_max: a production with a larger value (of a cell, the journal, a checkpoint) is refused; all of them
            together may be larger.  May be set to less.
    """

    value_bytes_max: int

    def incarnation(self) -> str:
        """An opaque value that is another one after a restart, a failover or a restore of the store.

        While it stays the same nothing acknowledged is gone.  An adapter can be bound to one when it is made.  When the
        store has another one, every verb raises `StoreRestartedError`, because commits may be lost that this process
        has made, or has been notified of.
        """

    def open_job(self, spec: JobSpec) -> JobRow:
        """Create the job, its ranges and its result tables, or return them if they exist.

        Existing ranges (and splits) win over those of ``spec``, so that positions keep their meaning.
        Idempotent, and safe when two drivers call it at once.

        A job in an older format of stored bytes has the format of the spec from then on, and counts as updated: workers
        of the former version can `acquire` nothing any more.

        Raises:
            StoredFormatError: it is in a format that the spec does not read.
            JobMismatchError: the name is taken by a job with another fingerprint or mode, or other state.
            TableMismatchError: a result table exists with other columns or key.
            TableOwnedError: another job writes to a result table, and the spec does not declare it as shared.
            TableMissingError: the job has written to a result table that is not there any more.
        """

    def update_job(self, update: JobUpdate) -> JobRow:
        """Go over to a new version of a job, whole or not at all; idempotent.

        The owners of its ranges are fenced from then on, and workers of the former version can `acquire` none.
        Computations that are not kept lose everything that is theirs, and what is on its way from and to them.
        Result tables that are not written any more stay as they are, but for those that are to be emptied.

        Raises:
            StoreError: there is no such job, it has another version, or it does not have what it had (`StateCounts`);
                or a table that is to be emptied is not its own.
            JobMismatchError: the job has another mode.
            StoredFormatError: it is in a format that the spec does not read.
            TableMismatchError, TableOwnedError, TableMissingError: as in `open_job`.
        """

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        """Note which splits a source has got and lost, whole or not at all; idempotent.

        Nothing is added where the job has splits that the driver does not know: they are those of the same call that
        was cut off, or of another driver.  So no split is added twice, whatever it is encoded as.

        Args:
            change: what the driver has found.  The new splits are at its watermark, with nobody who owns them; those
                that are removed go on being owned and read until their owners end them.

        Returns:
            The rows of all splits that the driver does not know, in their order.

        Raises:
            JobMismatchError: the job has another version.
            StoreError: there is no such job or computation, or the job is finished.
        """

    def count_state(self, job: str) -> StateCounts:
        """How much state a job has; none if there is no such job."""

    def reset_job(self, job: str) -> None:
        """Forget the job and drop the result tables that it created; no error if there is no such job.

        The owners of its ranges are fenced from then on.
        """

    def result_tables(self, job: str) -> Sequence[ResultTable]:
        """The tables that a job writes to, by name; none of an unknown job."""

    def own_tables(self, job: str, tables: Sequence[TableSpec]) -> Mapping[str, int]:
        """Count the rows of those tables that the job has created, and that no other job writes to.

        Args:
            job: its name.
            tables: as a pipeline describes them; one that is not there is not the job's.

        Returns:
            The number of rows, by the name that the pipeline gives the table.
        """

    def read_job(self, job: str) -> JobRow | None:
        """The job as it stands, or None."""

    def read_jobs(self) -> Sequence[JobSummary]:
        """All jobs, by name."""

    def send_signal(self, job: str, name: str) -> int:
        """Keep a signal for the job, and return its number: from 1 without a gap, in the order of sending.

        Once it returns, every range will process it, exactly once (`runners.millwheel.model.signals`).

        Args:
            job: its name.
            name: of the signal.

        Raises:
            SignalError: no window would receive it: the job is finished, or runs in batch, or does not listen to the
                name.
            StoreError: there is no such job.
        """

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        """The job's signals with numbers above ``after``, in their order; none of an unknown job.

        A signal that is not among them yet has a higher number than all that are.

        Args:
            job: its name.
            after: a number; 0: all that are kept.
        """

    def note_troubles(self, job: str, troubles: Sequence[Trouble]) -> None:
        """Keep troubles of a job, each with how often this driver has met it since the last time.

        Troubles with the same kind, place and first line of the reason are one: its count grows, and its reason is the
        last one.  Only the latest `TROUBLES_MAX` of a job are kept, and none of an unknown job.

        Args:
            job: its name.
            troubles: each with its count since the last call.
        """

    def read_troubles(self, job: str) -> Sequence[StoredTrouble]:
        """The troubles of a job, the latest first; none of an unknown job."""

    def note_polls(self, job: str, polls: Mapping[RangeId, SplitPoll]) -> None:
        """Keep the last polls of a job's splits, in place of those that were kept; no error if there is no such job.

        Args:
            job: its name.
            polls: of all splits of which one is known.
        """

    def read_polls(self, job: str) -> Mapping[RangeId, SplitPoll]:
        """The last polls of a job's splits, as `note_polls` has kept them; none of an unknown job."""

    def note_snapshot(self, job: str, document: bytes, taken_us: int) -> None:
        """Keep what the driver of a job knows, in place of what was kept; no error if there is no such job.

        It need not survive a crash of the store.

        Args:
            job: its name.
            document: JSON.
            taken_us: when it was taken, by the clock of the caller, in microseconds since 1970.
        """

    def read_snapshot(self, job: str) -> StoredSnapshot | None:
        """What the driver of a job knew last; None: nothing is kept, or there is no such job."""

    def note_event(self, job: str, event: JobEvent) -> None:
        """Keep an event of a job; no error if there is no such job.

        If the connection is lost it may be kept twice.  Events that have a transaction of their own are kept by its
        verb: `commit` (splits and merges), `acquire`, `update_job`, `finish_job`, `note_troubles` and `send_request`.

        Args:
            job: its name.
            event: what has happened.
        """

    def read_events(self, job: str, most: int = 100) -> Sequence[StoredEvent]:
        """The last events of a job, the latest first; none of an unknown job.

        Args:
            job: its name.
            most: at most so many.
        """

    def read_pending(self, job: str) -> Mapping[Channel, PendingChannel]:
        """What is durable and not acknowledged, by channel; of channels with nothing, none; none of an unknown job."""

    def read_key(self, job: str, computation: str, key_hash: int) -> StoredKey | None:
        """What is stored of the keys with a hash, as of one instant; no owner is needed, and none is fenced.

        Args:
            job: its name.
            computation: that has the keys.
            key_hash: as `dataflow.coders.hash_key` makes it.

        Returns:
            None of an unknown job or computation, or one without key ranges.
        """

    def state_sizes(self, job: str) -> Mapping[RangeId, int]:
        """How many bytes of state each key range has in cells and journal, for people; none of an unknown job.

        All of it is looked through, which takes time.

        Args:
            job: its name.
        """

    def read_journal(
        self, job: str, range_id: RangeId, after: JournalPlace = JOURNAL_START
    ) -> Sequence[tuple[JournalPlace, bytes]]:
        """The next entries of a key range's journal, oldest first, for people: no owner is needed, and none is fenced.

        Of one instant with what else is read if all of it is inside `at_one_moment`.

        Args:
            job: its name.
            range_id: the range.
            after: the place of the last one that was read; by default they are read from the first.

        Returns:
            `JOURNAL_PAGE` of them, or fewer if there are no more; none of an unknown job or range.
        """

    def at_one_moment(self) -> AbstractContextManager[None]:
        """Have all that is read inside be of one instant; nothing may be written there.

        Of a store that is shared a statement that takes longer than some seconds is ended.
        """

    def read_lanes(self, job: str) -> Sequence[LaneStatus]:
        """The lanes of the job's sinks, also of sinks that it has no more; none of an unknown job."""

    def old_snapshots(self, older_than_s: float) -> Sequence[OldSnapshot]:
        """Who keeps the store from freeing what was overwritten or deleted, the oldest first; not the caller.

        None where a store frees that at once; and none that the caller has no right to see.

        Args:
            older_than_s: only those that began so many seconds ago or earlier.
        """

    def replication_slots(self) -> Sequence[ReplicationSlot]:
        """The slots of the database, by name; none where there are none."""

    def vacuumed_tables(self, job: str) -> Sequence[VacuumedTable]:
        """The tables of a job, and those of all jobs together, most dead rows first; none where nothing is vacuumed."""

    def blocked_sessions(self) -> Sequence[BlockedSession]:
        """Who waits for whose locks in the store, the longest first; none where there are no sessions.

        And none of whose statements the caller has no right to see.
        """

    def version(self) -> str:
        """What the store is, and of which version, for people; nothing about where it is."""

    def send_request(self, job: str, request: Request) -> int:
        """Keep a request for the job, and return its number: from 1 without a gap, in the order of sending.

        Args:
            job: its name.
            request: what its driver is to do.

        Raises:
            RequestError: no driver would carry it out: the job is finished, or runs in batch.
            StoreError: there is no such job.
        """

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The job's requests with numbers above ``after``, in their order, and their answers; none of an unknown job.

        A request that is not among them yet has a higher number than all that are.

        Args:
            job: its name.
            after: a number; 0: all that are kept.
        """

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        """Keep the answer to a request, unless it has one already; no error if there is no such request.

        Args:
            job: its name.
            number: of the request.
            answer: what was done, or why not.
        """

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        """Take ranges over from their owners: move every token first, then read.

        ``version``: of the job that the owner knows; None: whichever it has.

        Ranges that are in a handover with them come with them, asked for or not.
        Waits for a commit in flight on these ranges to end.  After a failure it may simply be
        called again (the token moves once more).

        Args:
            job: its name.
            range_ids: those that are in handover with them are taken as well.
            owner: unique among all workers of the job.
            version: that the worker runs (`JobRow.version`); None: any.
            cause: why; kept as an event.

        Raises:
            JobMismatchError: the job has another version; no token has moved.
            LostCommitsError: there is no such range, or the ranges are at an earlier moment than others; no token has
                moved.
            StoreError: there is no such job.
        """

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read those of these cells of a computation that exist, for the owner of all these ranges.

        Returns `Fenced` to any other worker: tokens and cells are read in one instant, so an owner never sees what its
        successor has written.

        Args:
            job: its name.
            computation: that has the cells.
            tokens: the caller's tokens, by range.
            keys: of the cells.
        """

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read the cells of a key range from a key hash on, in the order of the hashes; for its owner, as `read_cells`.

        At least ``cells`` of them if there are so many, and those that have the hash of the last one; but no pages
        (`PAGE_MARK`).

        Args:
            job: its name.
            range_id: of the key range.
            token: the caller's.
            first_hash: the first key hash of the page.
            cells: about how many.
        """

    def commit(self, production: Production) -> CommitOutcome:
        """Make the production durable, whole, if every fence is valid.

        A new range (`Production.reshape`) starts with what the range that it comes from has committed: watermarks and
        signal mark.

        Raises:
            StoreError: no worker can commit it as it is; nothing of it was committed.
        """

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        """Send a production to be committed, and return while that is under way.

        Commits that one process submits take effect in their order, and whatever it asks the store for afterwards is
        answered as of after them.

        Args:
            production: as for `commit`.
            ready: called when all is packed, before anything is sent; what it raises is raised, and nothing is sent.

        Raises:
            StoreError: as `commit`.
        """

    def resolve(self, production: Production) -> CommitOutcome:
        """After `Indeterminate`: find out what became of a production.

        `Committed` or `Fenced` by reading bundle numbers, `Indeterminate` if the store is still out of reach.
        A production whose fences still match the store was not applied: that is reported as `Fenced` too, after the
        adapter made sure that it can no longer land; the owner takes the range over again and repeats the work.
        """

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        """Find which of these record ids the range has, with what every commit before has written.

        Also answers a worker that does not own the range, for which the answer is only good for a commit that is
        fenced.  None of an unknown job or range.

        Args:
            job: its name.
            range_id: of the split.
            digests: of the ids.
        """

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """The range's record ids with greater digests than ``after``, in their order, each with its event time.

        Fewer than ``count`` only if there are no more.

        Args:
            job: its name.
            range_id: of the split.
            after: the last digest of the page before; empty: from the first.
            count: at most so many.
        """

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        """Mark the job as done, and answer every request that is not answered, in one transaction.  The first counts.

        ``is_drained``: because of a request to drain; such requests are answered `DRAINED`, others `FINISHED`.

        Args:
            job: its name.
            is_drained: whether it ends because a drain was requested.
        """

    def read_table(self, table: TableSpec) -> Sequence[Row]:
        """All rows of a result table, columns in the order of the spec, in no particular order."""

    def read_rows(self, table: str, count: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of a result table by the names of its columns, in the order of its key if it has one.

        Args:
            table: its name, as pipelines have it.
            count: at most so many; None: all.

        Raises:
            StoreError: it is no table that a job of this store writes to.
        """

    def read_late(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's late records, oldest first: number, and the fields of `LateRecord`.

        ``number`` grows from one record to the next; `purge` takes it.
        """

    def read_dead_letters(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's dead letters, oldest first: number, as in `read_late`, and the fields of `StoredDeadLetter`."""

    def read_late_counts(self, job: str) -> Mapping[str, int]:
        """How many records of the job came too late (the sum of their counts), by transform; without zeros.

        Those that were purged count too.
        """

    def read_metrics(self, job: str) -> Sequence[bytes]:
        """What user code has counted, as the payloads of the commits that count (`Counted`), oldest first.

        None of an unknown job.  Those of several commits may have become one (`fold_metrics`).
        """

    def fold_metrics(self, job: str, fold: Callable[[Sequence[bytes]], bytes]) -> None:
        """Replace payloads that are of no range by one, if there are several; all at once.

        Safe while the job runs: it takes no fence, and what is committed meanwhile stays as it is.

        Args:
            job: its name; no error if there is no such job.
            fold: makes one payload of several, oldest first; may be called again.
        """

    def read_lineage(
        self, job: str, kind: LineageKind, transform: str, key_hash: int
    ) -> Sequence[StoredLineage]:
        """The entries of the lineage of a job about one key, oldest first; none of an unknown job.

        Args:
            job: its name.
            kind: of the entries.
            transform: their `LineageEntry.transform`.
            key_hash: of the key, without a sign.
        """

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        """Delete late records, dead letters or lineage of the job; returns how many rows, 0 of an unknown job.

        Idempotent, and safe while the job runs: it takes no fence.

        Args:
            job: its name.
            kind: which of them.
            older_than_s: only those that were recorded at least so long ago, in seconds.
            up_to: only those whose ``number`` is not above this; None: whatever it is.
        """

    def begin_replay(self, job: str, kind: KeptKind) -> int | None:
        """Begin to replay the late records or dead letters of the job, or go on with a replay that was cut off.

        Args:
            job: its name.
            kind: late records or dead letters.

        Returns:
            The ``number`` of the last row that it is about: that of the last row there is, the first time, and the same
            until `end_replay`, so that a replay that is repeated is about the same rows.  None if there are no rows.
        """

    def end_replay(self, job: str, kind: KeptKind) -> None:
        """Note that the rows were replayed.  Idempotent; no error if no replay has begun.

        Args:
            job: its name.
            kind: late records or dead letters.
        """

    def prune(
        self,
        job: str,
        *,
        older_than_s: float,
        retired: Collection[RangeId] = (),
        signals_up_to: int = 0,
    ) -> Mapping[str, int]:
        """Delete what the job has left behind and no process will ask for; returns the rows, by `PRUNED` kind.

        Ranges that were merged into others, with their channels and fences; former owners of ranges; requests that were
        answered; signals; and, whatever their age, all events but the last so many
        (`runners.millwheel.model.events.EVENTS_MAX`).  Idempotent, and safe while the job runs.

        Args:
            job: its name.
            older_than_s: only what was done with at least so long ago, in seconds.  It has to be longer than a message
                can be on its way, or a worker asleep, for example a day.
            retired: the ranges that the master knows to be retired.  It may not know of all that are, and would have a
                worker take over one that is deleted.
            signals_up_to: every range that listens to signals has processed those up to this number.
        """

    def statistics(self, job: str) -> Mapping[str, int]:
        """Row counts of the job by kind: `runners.millwheel.store.guards.STATISTICS` names them."""

    def close(self) -> None:
        """Release the connection.  Idempotent."""
