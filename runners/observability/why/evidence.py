"""Evidence: what is known of a job at one moment, whichever engine and store it is from; what `explain` is given.

All of it may be missing but the name and the clock: of an older store, of a driver that has never written, of a batch.
What is missing is None or empty, and named in `Evidence.unknown`; nobody guesses it.

Instants are microseconds since 1970; `now_us` is by the clock of whoever reads.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import attrs

from runners.observability.evidence.snapshot import (
    DriverEvidence,
    FreshnessObjective,
    RangeEvidence,
    StageEvidence,
    WorkerEvidence,
    senders_first,
)
from triggers.awaited import Awaited
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window


class JobState(StrEnum):
    """Whether somebody runs the job."""

    #: Somebody has its lock, or it is simulated.
    RUNNING = "running"
    #: Nobody does.  A batch leaves no trace of who runs it, and is `RUNNING` until it is finished.
    NOT_RUNNING = "not running"
    FINISHED = "finished"
    DRAINED = "drained"


@attrs.frozen(kw_only=True)
class Pending:
    """What is durable and not acknowledged, from one range to another.

    Attributes:
        count: how many productions.
        hold_us: the earliest event time in them.
        age_us: how long ago the oldest was made; None: not known.
    """

    sender: str
    receiver: str
    count: int
    hold_us: int
    age_us: int | None = None


@attrs.frozen(kw_only=True)
class TroubleSeen:
    """The last trouble of its kind: why a worker has ended, or waits.

    Attributes:
        kind: "death", "wait" or "end of a wait".
        at_us: when it was noted last.
    """

    kind: str
    place: str
    headline: str
    count: int
    at_us: int


@attrs.frozen(kw_only=True)
class Blocked:
    """A session of the database that waits for a lock of another one.

    Attributes:
        session: its number.
        holder: the number of the other one.
        query: what that one runs, or has run last.
        age_us: for how long.
    """

    session: int
    holder: int
    query: str
    age_us: int


@attrs.frozen(kw_only=True)
class WindowSeen:
    """A window of a key that has state.

    Attributes:
        window: its bounds.
        pending: how many records have come since it last fired.
        firings: how often it has fired.
        is_past: whether it has fired for its end.
        is_finished: whether its trigger has finished: what comes now is emitted when it expires.
        awaited: what its trigger waits for; None: not known without the pipeline.
        trigger: the trigger as text; None: not known.
        expiry_us: the watermark at which its state goes.
        event_timer_us, processing_timer_us: its timers.
    """

    window: Window
    pending: int
    firings: int = 0
    is_past: bool = False
    is_finished: bool = False
    awaited: Awaited | None = None
    trigger: str | None = None
    expiry_us: int | None = None
    event_timer_us: int | None = None
    processing_timer_us: int | None = None


@attrs.frozen(kw_only=True)
class Dropped:
    """Records of a key that are in no result, as they came too late.

    Attributes:
        watermark_us: of the stage, when they came.
    """

    stage: str
    window: Window
    watermark_us: int
    count: int


@attrs.frozen(kw_only=True)
class KeySeen:
    """What is known of a key that was asked for.

    Attributes:
        key: as it was given.
        windows: by stage where it can be, those that have state; a stage that is not there was not looked at.
        ranges: the range that has it, by stage.
        dropped: what came too late.
        hidden: what was not looked at, and why, by stage.
    """

    key: str
    windows: Mapping[str, Sequence[WindowSeen]] = attrs.field(factory=dict)
    ranges: Mapping[str, str] = attrs.field(factory=dict)
    dropped: Sequence[Dropped] = ()
    hidden: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Due:
    """What is due next in a stage, in event time.

    Attributes:
        next_us: the first end of a window that is not over; None: no window ends.
    """

    next_us: int | None = None


@attrs.frozen(kw_only=True)
class SinkWait:
    """A lane of a sink that has rows waiting.

    Attributes:
        failing_for_us: since when each try has failed; None: it does not fail.
    """

    name: str
    waiting: int
    failing_for_us: int | None = None
    reason: str | None = None


class StoreFindingKind(StrEnum):
    """What a fault of the store is about."""

    #: A transaction that keeps rows from being freed.
    TRANSACTION = "long transaction"
    SLOT = "replication slot"
    BLOAT = "bloat"
    AUTOVACUUM = "autovacuum"


@attrs.frozen(kw_only=True)
class StoreFinding:
    """Something that is wrong with the store.

    Attributes:
        text: what it is, and what one can do.
    """

    kind: StoreFindingKind
    text: str


@attrs.frozen(kw_only=True)
class ChangeSeen:
    """Something that has happened to the job.

    Attributes:
        at_us: when, by the clock of `Evidence.now_us`.
        kind: such as "takeover" or "split".
        subject: ranges, or a slot; None: the job.
        reason: why.
    """

    at_us: int
    kind: str
    subject: str | None
    reason: str


@attrs.frozen(kw_only=True)
class Evidence:
    """What is known of a job.

    Attributes:
        mode: "streaming", "batch" or "direct".
        driver: what the driver knew of itself; None: it has left nothing.
        as_of_us: when the evidence of stages, ranges and workers was taken; None: now.
        stages: by name, senders before receivers.
        ranges: by name.
        workers: by slot.
        pending: what is on its way; by `StageEvidence` and `RangeEvidence` where the store does not know it.
        labels: transforms and tables by the stage that they are in.
        due: what is due next, by stage; none of a stage of which it is not known.
        late: how many records were dropped as too late, by stage.
        dead: how many were set aside as dead letters, by stage.
        key: what is known of the key that was asked for; None: none was.
        objectives: what its pipeline declares of its freshness.
        changes: what has happened to it, the latest first.
        store: what is wrong with its store.
        blocked: sessions of the store that wait for others, the longest first.
        unknown: what could not be found out, and why.
    """

    job: str
    now_us: int
    mode: str = "streaming"
    state: JobState = JobState.RUNNING
    driver: DriverEvidence | None = None
    as_of_us: int | None = None
    stages: Mapping[str, StageEvidence] = attrs.field(factory=dict, converter=senders_first)
    ranges: Mapping[str, RangeEvidence] = attrs.field(factory=dict)
    workers: Sequence[WorkerEvidence] = ()
    pending: Sequence[Pending] = ()
    labels: Mapping[str, str] = attrs.field(factory=dict)
    due: Mapping[str, Due] = attrs.field(factory=dict)
    late: Mapping[str, int] = attrs.field(factory=dict)
    dead: Mapping[str, int] = attrs.field(factory=dict)
    key: KeySeen | None = None
    sinks: Sequence[SinkWait] = ()
    blocked: Sequence[Blocked] = ()
    troubles: Sequence[TroubleSeen] = ()
    objectives: Sequence[FreshnessObjective] = ()
    changes: Sequence[ChangeSeen] = ()
    store: Sequence[StoreFinding] = ()
    unknown: Sequence[str] = ()

    def ranges_of(self, stage: str) -> list[tuple[str, RangeEvidence]]:
        """The ranges of a stage, with their names.

        Args:
            stage: its name.
        """
        return [(name, each) for name, each in self.ranges.items() if each.stage == stage]

    def waited_for(self, stage: str) -> list[tuple[str, RangeEvidence]]:
        """The ranges that a stage's input waits for; where all splits are idle, all of them.

        The end of one split is not the end of its idle neighbour.

        Args:
            stage: its name.
        """
        senders = [each for sender in self.stages[stage].senders for each in self.ranges_of(sender)]
        waiting = [each for each in senders if not each[1].is_idle]
        if any(each.output_us < MAX_TIMESTAMP_US for _, each in waiting):
            return waiting
        return senders

    def worker_of(self, of: RangeEvidence) -> WorkerEvidence | None:
        """The worker that owns a range; None: nobody does, or it is not known.

        Args:
            of: the range.
        """
        known = [each for each in self.workers if each.worker is not None]
        return next((each for each in known if each.worker == of.worker), None)
