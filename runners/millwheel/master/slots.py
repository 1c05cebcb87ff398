"""Slot: one place for a worker, as the master sees it; and what follows from all of them together."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import attrs

from dataflow.source import Backlog
from runners.millwheel.model.accounts import RangeHolds, WorkerAccount
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.wire.messages import Heartbeat, Report

#: A worker that sends nothing for so long loses its ranges, if there is another one to take them.
LEASE_TTL_MS = 10_000
#: Longest lease of a slot whose worker was only slow: each time it is given twice as long.
LEASE_TTL_MAX_MS = 600_000
#: A copy of a message comes while its sender is one of the last so many workers of its slot.
FORMER_MAX = 100
#: A pause must last so long before it is believed that nothing is on its way: some reports of each worker.
PAUSE_TTL_MS = 300


@attrs.frozen(kw_only=True)
class RefusedReports:
    """Reports of a worker that were not taken, since the last one that was.

    Attributes:
        since_us: when the first came, in microseconds since 1970.
        count: how many.
        reason: why the last one was not taken.
    """

    since_us: int
    count: int
    reason: str


@attrs.define
class Slot:
    """One place for a worker, and the worker that is in it.

    Attributes:
        sent_ms: when its worker was last sent news.
        expired: the worker that has lost its lease, until there is a new one.
        registered: the last workers that have registered.
        paused_ms: since when its worker reads nothing and has nothing on its way; None while that is not so.
        idle: source splits that its worker has polled, and that had nothing; as of when, by the master's clock.
        holds: what the output watermarks of its ranges are the least of.
        account: what its worker has last reported of itself.
        heartbeat: the last one of its worker, or of the one before; and when it came.
        refused: reports of its worker that were not taken; None: the last one was.
    """

    worker: str | None = None
    address: str | None = None
    last_seen_ms: int = 0
    sent_ms: int = 0
    lease_ttl_ms: int = LEASE_TTL_MS
    expired: str | None = None
    registered: deque[str] = attrs.field(factory=lambda: deque(maxlen=FORMER_MAX))
    is_ready: bool = False
    is_quiet: bool = False
    paused_ms: int | None = None
    counts: Counts = attrs.field(factory=Counts)
    idle: Collection[RangeId] = ()
    as_of_ms: int = 0
    holds: Mapping[RangeId, RangeHolds] = attrs.field(factory=dict)
    account: WorkerAccount | None = None
    heartbeat: tuple[Heartbeat, int] | None = None
    refused: RefusedReports | None = None

    def place(self, worker: str, address: str, now_ms: int) -> None:
        """Note that a worker has registered, which it does once.

        Args:
            worker: its name.
            address: where it receives.
            now_ms: the monotonic clock.
        """
        self.worker, self.address, self.expired, self.last_seen_ms = worker, address, None, now_ms
        self.registered.append(worker)
        self.account = self.heartbeat = self.refused = None

    def vacate(self) -> None:
        """Forget the worker's state: nothing is known of the next one."""
        self.counts, self.is_ready, self.is_quiet, self.paused_ms = Counts(), False, False, None
        self.idle, self.holds = (), {}

    def confirm(self) -> None:
        """Note that the worker has taken ranges over: its earlier reports on all its ranges did not include these."""
        self.is_ready, self.is_quiet, self.paused_ms = True, False, None
        self.idle, self.holds = (), {}

    def is_within_lease(self, now_ms: int) -> bool:
        """Whether the worker has sent a message recently enough to be believed alive."""
        return now_ms - self.last_seen_ms <= self.lease_ttl_ms

    def forgive(self, worker: str) -> None:
        """Give the successor of a worker that has lost its lease more time, if that worker was only slow."""
        if self.expired == worker:
            self.expired = None
            self.lease_ttl_ms = min(2 * self.lease_ttl_ms, LEASE_TTL_MAX_MS)

    def on_end(self, *, is_silent: bool) -> None:
        """Note that the worker has ended, by an error that it reported, or (``is_silent``) without a report.

        One that ends itself after its lease was at work all the while: a step that lasts longer than a lease ends with
        a commit that is refused, and so with the worker, before it can report anything.
        """
        if self.expired is not None and not is_silent:
            self.forgive(self.expired)

    def refuse(self, now_us: int, reason: str) -> None:
        """Note that a report of its worker is not taken.

        Args:
            now_us: when it came, in microseconds since 1970.
            reason: why, for people.
        """
        before = self.refused
        self.refused = RefusedReports(
            since_us=now_us if before is None else before.since_us,
            count=1 if before is None else before.count + 1,
            reason=reason,
        )

    def on_report(self, report: Report) -> None:
        """Note the worker's report on all its ranges together; `last_seen_ms` is when it came."""
        self.refused = None
        self.holds, self.account = report.holds, report.account or self.account
        self.is_quiet, self.counts = report.is_quiet, report.counts
        self.idle, self.as_of_ms = report.idle, report.as_of_ms
        if not report.is_paused:
            self.paused_ms = None
        elif self.paused_ms is None:
            self.paused_ms = self.last_seen_ms


def are_paused(slots: Sequence[Slot], now_ms: int) -> bool:
    """Whether all workers have been paused for so long that each has reported so again since the last one was.

    A paused worker can be sent something by one that is not paused, and be paused again before it reports; but that
    cannot happen twice without a report of one of them.

    Args:
        slots: all of the job.
        now_ms: the monotonic clock.
    """
    paused_ms = [slot.paused_ms for slot in slots if slot.is_ready and slot.paused_ms is not None]
    if len(paused_ms) < len(slots):
        return False
    since_ms = max(paused_ms) + PAUSE_TTL_MS
    return now_ms >= since_ms and all(slot.last_seen_ms >= since_ms for slot in slots)


def live_slots(slots: Sequence[Slot], now_ms: int) -> list[int]:
    """The slots whose worker is ready and within its lease.

    Args:
        slots: all of the job.
        now_ms: the monotonic clock.
    """
    return [
        index for index, slot in enumerate(slots) if slot.is_ready and slot.is_within_lease(now_ms)
    ]


def idle_splits(
    slots: Sequence[Slot], owners: Mapping[RangeId, int], now_ms: int
) -> Collection[RangeId]:
    """Source splits that hold no watermark back: the worker of their slot polled them a moment ago, with no result.

    A report on a split ends with the worker, after `LEASE_TTL_MS`, and when the split goes to another slot: what comes
    into a split that no worker reads is not known.  The longer lease of a slow worker does not make it hold for longer.

    Args:
        slots: all of the job.
        owners: the slot of each range.
        now_ms: by the master's clock.
    """
    return {
        range_id
        for index, slot in enumerate(slots)
        if slot.idle and now_ms - slot.as_of_ms <= LEASE_TTL_MS
        for range_id in slot.idle
        if owners.get(range_id) == index
    }


@attrs.frozen(kw_only=True)
class MasterStatistics(Counts):
    """What the job has done since this master started.

    Attributes:
        workers_ready: how many own ranges, or are ready to.
        workers_replaced: how many are gone.
        watermark_us: of the whole job, in microseconds.
        splits: the last poll of each source split, as its worker has reported it; none of one that nobody has asked.
    """

    workers_ready: int
    workers_replaced: int
    watermark_us: int
    splits: Mapping[RangeId, SplitPoll] = attrs.field(factory=dict)

    def backlog(self) -> Backlog:
        """The backlog of all splits together, of those that know theirs; its age is that of the oldest record."""
        known = [each.backlog for each in self.splits.values() if each.backlog is not None]
        records = [each.records for each in known if each.records is not None]
        sizes_bytes = [each.size_bytes for each in known if each.size_bytes is not None]
        ages_us = [each.age_us for each in known if each.age_us is not None]
        return Backlog(
            records=sum(records) if records else None,
            size_bytes=sum(sizes_bytes) if sizes_bytes else None,
            age_us=max(ages_us, default=None),
        )

    @classmethod
    def of(
        cls,
        slots: Sequence[Slot],
        *,
        before: Counts,
        workers_replaced: int,
        watermark_us: int,
        splits: Mapping[RangeId, SplitPoll],
    ) -> "MasterStatistics":
        """The sum of all slots, and of what workers that are gone have done.

        Args:
            slots: all of the job.
            before: the counts of workers that are gone.
            workers_replaced: how many are.
            watermark_us: of the whole job, in microseconds.
            splits: the last poll of each.
        """
        counts = Counts.total([before, *(slot.counts for slot in slots)])
        return cls(
            **attrs.asdict(counts, recurse=False),
            workers_ready=sum(slot.is_ready for slot in slots),
            workers_replaced=workers_replaced,
            watermark_us=watermark_us,
            splits=dict(splits),
        )
