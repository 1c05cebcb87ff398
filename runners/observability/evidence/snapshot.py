"""JobSnapshot: what the driver of a job knew at one moment, as a document that others read from the store.

Written about once a second (`runners.streaming.evidence_writer`), and read when the driver may be dead: so all of it
has a time.  A document is JSON, for psql too, and has a version: a field may be added that has a default, and any
other change counts the version up.

Instants are microseconds since 1970.  Those of workers are by the clocks of their hosts, all others by the driver's.
Counts are since the process that counts has begun.  A range is a text, as `RangeId` prints it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Self

import attrs
import msgspec

from runners.errors import StoredFormatError
from runners.millwheel.model.accounts import COMMIT_BOUNDS_US

#: Of the documents that this code writes.
VERSION = 1


class Phase(StrEnum):
    """What a driver is about."""

    RUNNING = "running"
    PAUSING = "pausing"
    DRAINING = "draining"
    #: The job is on its way to another pipeline.
    RETRACTING = "retracting"
    #: Its workers are being stopped, or have been; nobody writes another document.
    ENDED = "ended"


class RangeState(StrEnum):
    """Where a range is."""

    #: The worker of its slot has it.
    OWNED = "owned"
    #: Its slot has no worker, or one that has not taken it over yet.
    AWAITED = "awaited"
    #: It is to go to another slot, and its worker has not released it yet.
    MOVING = "moving"


@attrs.frozen(kw_only=True)
class Histogram:
    """How many values are in each interval.

    Attributes:
        bounds_us: the upper ones, ascending.
        counts: one for each bound, of values that are not above it and above the one before; and of those above all.
        sum_us: of all values.
    """

    bounds_us: Sequence[int] = COMMIT_BOUNDS_US
    counts: Sequence[int] = (0,) * (len(COMMIT_BOUNDS_US) + 1)
    sum_us: int = 0


@attrs.frozen(kw_only=True)
class DriverEvidence:
    """The driver.

    Attributes:
        name: its host and process.
        started_us: when it began to run the job.
        phase: what it is about.
        workers: how many there are to be.
        workers_ready: how many own ranges, or are ready to.
        longest_round_ms: of the rounds of its loop since the document before: workers wait for it as long.
        moves: how long nobody had a range that moved.
    """

    name: str
    started_us: int
    phase: Phase
    workers: int
    workers_ready: int
    longest_round_ms: int = 0
    moves: Histogram = attrs.field(factory=Histogram)


@attrs.frozen(kw_only=True)
class StageEvidence:
    """A stage: what it inherits, and how far it is itself.

    Attributes:
        is_source: whether it begins with a read.
        senders: the stages that send to it.
        input_us: its input watermark, as the authority has it; None: of a source.
        input_before_us: the same in the document before; None: not known.
        output_us: the least output watermark of its ranges that are waited for.
        percentile: what its triggers follow, of those that follow one.
        percentile_us: the percentile watermark.
        hold_us: of a source: no receiver is given a later one, as it may be about to get splits; None: no such hold.
        may_grow: of a source: whether it may get splits while the job runs.
        records: what its ranges have taken in, as they count it since their owners have them.
        records_per_s: the same since the document before; None: not known.
        busy_us: for how long workers have been in steps of it, all together.
        backlog_records: of a source: what its splits have still to read; None: not all of them know that.
        backlog_growth_per_s: by how much that grows in a second, over some seconds; negative: it shrinks; None: not
            known.
        overdue_timers: how many timers are due and have not fired.
        overdue_us: when the first of them that follows the clock was due; None: none of them does.
    """

    is_source: bool
    senders: Sequence[str]
    input_us: int | None
    output_us: int
    percentile: float | None = None
    percentile_us: int | None = None
    hold_us: int | None = None
    may_grow: bool = False
    records: int = 0
    records_per_s: float | None = None
    busy_us: int = 0
    input_before_us: int | None = None
    backlog_records: int | None = None
    backlog_growth_per_s: float | None = None
    overdue_timers: int = 0
    overdue_us: int | None = None

    def inherited_lag_us(self, now_us: int) -> int:
        """How far its input is behind the clock; 0 of a source.

        Args:
            now_us: the time, in microseconds since 1970.
        """
        return 0 if self.input_us is None else max(0, now_us - self.input_us)

    def own_lag_us(self, now_us: int) -> int:
        """How far it is behind its input; of a source, behind the clock.

        Args:
            now_us: the time, in microseconds since 1970.
        """
        return max(0, (now_us if self.input_us is None else self.input_us) - self.output_us)


def senders_first(stages: Mapping[str, StageEvidence]) -> Mapping[str, StageEvidence]:
    """The stages, senders before receivers; the same whatever order they come in.

    Args:
        stages: by name; the fields of a jsonb, which a store has them from, are in an order of their own.
    """
    senders = {
        name: [sender for sender in each.senders if sender in stages]
        for name, each in stages.items()
    }
    depths: dict[str, int] = {}
    for name in TopologicalSorter(senders).static_order():
        depths[name] = 1 + max((depths[sender] for sender in senders[name]), default=-1)
    return {name: stages[name] for name in sorted(stages, key=lambda name: (depths[name], name))}


def latest_output_us(stages: Mapping[str, StageEvidence], name: str) -> int:
    """How far a stage is known to be: what a driver knows of a range begins anew with each owner, and no input does.

    Args:
        stages: by name.
        name: of the stage; it is one of them.
    """
    inputs_us = [each.input_us for each in stages.values() if [*each.senders] == [name]]
    return max([stages[name].output_us, *(each for each in inputs_us if each is not None)])


@attrs.frozen(kw_only=True)
class SplitEvidence:
    """The last poll of a split (`runners.millwheel.model.split_poll`).

    Its reader's word that it is idle counts for as long as the worker that has it reports within its lease.

    Attributes:
        outage: what could not be read, while its reader tries again; None: it could be.
        outage_error: of the last try.
        outage_since_us: since when.
    """

    polled_us: int
    record_us: int | None = None
    idle_since_us: int | None = None
    is_finished: bool = False
    backlog_records: int | None = None
    backlog_bytes: int | None = None
    backlog_age_us: int | None = None
    outage: str | None = None
    outage_error: str | None = None
    outage_since_us: int | None = None


@attrs.frozen(kw_only=True)
class HotKey:
    """A key that is frequent in what a range has taken in, by a sample of it (space-saving).

    Attributes:
        key_hash: unsigned, 64 bits.
        count: how often it was in the sample, at most; at least ``count - error``.
        of: how many keys were in the sample.
        key: as text, shortened; None: not to be shown.
    """

    key_hash: int
    count: int
    error: int
    of: int
    key: str | None = None


@attrs.frozen(kw_only=True)
class RangeEvidence:
    """A key range, or a split of a source.

    Its output watermark is the least of ``processed_us``, ``unacknowledged_us`` and ``window_hold_us``, and never goes
    back.

    Attributes:
        slot: whose worker has it, or is to have it.
        worker: the name of its owner; None: nobody has it now.
        handover_with: the range that has to have the same owner.
        output_us: as the authority counts it.
        is_idle: whether it holds nothing back, as its split has nothing.
        is_ended: whether it has come to its end.
        reported_us: when its owner has last reported on it; that is when the three were so.
        processed_us: up to where it has fired; a split: has read.
        unacknowledged_us: the least hold of its productions that are not acknowledged; None: there are none.
        window_hold_us: the earliest pane that a window of it is still to emit; None: none that holds.
        percentile_us: the percentile watermark up to which it has fired, where there is one.
        records: what it has taken in since its owner has it.
        records_per_s: since the document before; None: not known.
        hot_keys: the most frequent first.
        keys: the first and last hash of its keys; None: it is a split.
        hashes: of some keys that it has taken in, where its slot has more to do than others; none elsewhere.
        poll: of a split; None: nobody has asked it yet.
    """

    stage: str
    index: int
    slot: int
    state: RangeState
    worker: str | None
    output_us: int
    handover_with: str | None = None
    is_idle: bool = False
    is_ended: bool = False
    reported_us: int | None = None
    processed_us: int | None = None
    unacknowledged_us: int | None = None
    window_hold_us: int | None = None
    percentile_us: int | None = None
    records: int = 0
    records_per_s: float | None = None
    hot_keys: Sequence[HotKey] = ()
    keys: tuple[int, int] | None = None
    hashes: Sequence[int] = ()
    poll: SplitEvidence | None = None


@attrs.frozen(kw_only=True)
class Doing:
    """What a worker is in the middle of.

    Attributes:
        stage: whose step it is.
        transform: the label of the one whose user code runs; None: none does, the step is this package's own work.
        since_us: when the step began, by the clock of the worker's host.
        transform_since_us: when the code of that transform was entered, for this bundle, as far as was seen.
        ranges: that the step is for.
        sender: of the deliveries that it takes in; None: it takes in none.
        first: the number of its first delivery, or how many bundles of the ranges were committed before.
        last: the number of its last delivery; None: it fires what is due.
        record: which element of its bundle the code is at, from 0; None: not known.
        records: how many elements the bundle has; None: not known.
        is_trial: whether it runs in a process of its own first, since its input has ended a process before.
    """

    stage: str
    since_us: int
    transform: str | None = None
    transform_since_us: int | None = None
    ranges: Sequence[str] = ()
    sender: str | None = None
    first: int = 0
    last: int | None = None
    record: int | None = None
    records: int | None = None
    is_trial: bool = False


@attrs.frozen(kw_only=True)
class WorkerEvidence:
    """The worker of a slot.

    Attributes:
        worker: its name; None: the slot has none now.
        is_ready: whether it has what was assigned to it.
        reported_us: when its loop has last sent something; one that is in a long step sends nothing.
        lease_ttl_ms: if that is so long ago, and another worker lives, it loses its ranges.
        heartbeat_us: when its process, or the one that watches it, has last sent a heartbeat, by the clock of its host.
        heartbeat_received_us: the same by the driver's clock.
        interpreter_us: when its Python last ran another thread, by the clock of its host: code that keeps the
            interpreter to itself, and a process that is stopped, do not.
        doing: the step that it is in the middle of; None: it is in none, or it is not known.
        committing_us: since when it waits for a commit, by the clock of its host; None: it does not.
        busy_us: for how long its loop has been at work, without waiting for commits.
        blocked_us: for how long it has waited for commits.
        idle_us: for how long it has waited for something to do.
        commits: how long they took.
        committed_us: when the last one was done, by the clock of its host.
        busy_share: the part of the time since the document before in which its loop was at work; None: not known.
        refused: how many of its reports the driver has not taken, since the last one that it did.
        refused_since_us: since when; None: the last one was taken.
        refused_reason: why.
    """

    slot: int
    worker: str | None = None
    is_ready: bool = False
    reported_us: int | None = None
    lease_ttl_ms: int = 0
    heartbeat_us: int | None = None
    heartbeat_received_us: int | None = None
    interpreter_us: int | None = None
    doing: Doing | None = None
    committing_us: int | None = None
    busy_us: int = 0
    blocked_us: int = 0
    idle_us: int = 0
    commits: Histogram = attrs.field(factory=Histogram)
    committed_us: int | None = None
    busy_share: float | None = None
    refused: int = 0
    refused_since_us: int | None = None
    refused_reason: str | None = None


@attrs.frozen(kw_only=True)
class FreshnessObjective:
    """How far behind the clock what a transform emits may be, as its pipeline declares it, and how far it is.

    Attributes:
        transform: its label.
        stage: that it is in, whose output watermark counts.
        within_us: how far it may be, in microseconds.
        behind_us: how far it is; None: event time is at one of its ends, or has not come anywhere.
        is_met: whether that is not more; also where all of the input has come to its end.
    """

    transform: str
    stage: str
    within_us: int
    behind_us: int | None
    is_met: bool


@attrs.frozen(kw_only=True)
class JobSnapshot:
    """What the driver of a job knew.

    Attributes:
        job_version: counts the updates of the job.
        taken_us: when.
        watermark_us: of the whole job: the least output watermark of all ranges.
        slowest_source_us: the least output watermark of all splits that are not idle.
        stages: by name, in any order (`senders_first`).
        ranges: by name.
        workers: by slot.
        counts: of the whole job since its driver has begun, with those of workers that are gone: ``records_read``,
            ``records_late``, ``records_dead``, ``duplicates``, ``stragglers``, ``long_ms``, ``workers_replaced``,
            ``cache_bytes``, ``cache_hits``, ``cache_misses``, ``cache_loads`` and ``cache_evictions``.
        rates: those of counts that grow, in a second, since the document before: ``records_read_per_s``,
            ``records_late_per_s``, ``records_dead_per_s`` and ``long_ms_per_s``; none in the first
            document.
        objectives: that the pipeline declares.
        gather_bytes_max: the state with which the driver would have all ranges on one worker, if there is little to do;
            None: it never has.
        balance: whether the driver moves, splits and merges ranges by itself; None: not known.
    """

    job: str
    job_version: int
    taken_us: int
    driver: DriverEvidence
    watermark_us: int
    slowest_source_us: int
    stages: Mapping[str, StageEvidence]
    ranges: Mapping[str, RangeEvidence]
    workers: Sequence[WorkerEvidence]
    counts: Mapping[str, int] = attrs.field(factory=dict)
    rates: Mapping[str, float] = attrs.field(factory=dict)
    objectives: Sequence[FreshnessObjective] = ()
    gather_bytes_max: int | None = None
    balance: bool | None = None
    version: int = VERSION

    def write(self) -> bytes:
        """The document."""
        return msgspec.json.encode(self)

    @classmethod
    def read(cls, document: bytes) -> Self:
        """The inverse of `write`; fields that are not known here are passed over.

        Args:
            document: of this version, or an earlier one.

        Raises:
            StoredFormatError: it is of a later version, or no such document.
        """
        try:
            version = msgspec.json.decode(document, type=_Numbered).version
            if version <= VERSION:
                return msgspec.json.decode(document, type=cls)
        except msgspec.MsgspecError as error:
            raise StoredFormatError(
                "what the driver of a job has left of itself cannot be read",
                detail=str(error),
                hint="is it from another program? a driver that runs writes it anew every second",
            ) from error
        raise StoredFormatError(
            "the driver of a job is of a later version of dataflow-model than this program",
            detail=f"its document has version {version}, and this program reads up to {VERSION}",
            hint="use the version that the job runs with",
        )


class _Numbered(msgspec.Struct):
    version: int
