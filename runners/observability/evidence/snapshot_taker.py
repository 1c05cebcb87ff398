"""SnapshotTaker: makes of what a master knows the document that others read from the store."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from dataflow.graph import FreshnessDeclared
from runners.millwheel.master.load_policy import PolicyOptions, slots_too_hot
from runners.millwheel.master.view import MasterView, SlotView
from runners.millwheel.model.accounts import RangeHolds, WorkerAccount
from runners.millwheel.model.hot_keys import FrequentKey
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.wire.messages import Heartbeat
from runners.observability.evidence.snapshot import (
    Doing,
    DriverEvidence,
    FreshnessObjective,
    Histogram,
    HotKey,
    JobSnapshot,
    Phase,
    RangeEvidence,
    RangeState,
    SplitEvidence,
    StageEvidence,
    WorkerEvidence,
    latest_output_us,
)
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Counts of which the growth in a second is shown too.
_GROWING = ("records_read", "records_late", "records_dead", "long_ms")
#: Over so many documents, about as many seconds, it is looked how a backlog grows; and at least over so long.
_BACKLOGS_MAX, _BACKLOG_SPAN_MIN_S = 16, 5


class SnapshotTaker:
    """Takes the snapshots of one run of a driver, for the thread that writes them.

    Args:
        job: its name.
        version: of the job.
        driver: the host and process of the driver.
        started_us: when it began, in microseconds since 1970.
        freshness: what its pipeline declares, with the stage that each is about.
        balance: whether the driver moves, splits and merges ranges by itself; None: not known.
        gather_bytes_max: the state with which it would have all of them on one worker; None: it never has.
    """

    def __init__(
        self,
        job: str,
        version: int,
        driver: str,
        started_us: int,
        *,
        freshness: Iterable[tuple[FreshnessDeclared, str]] = (),
        balance: bool | None = None,
        gather_bytes_max: int | None = None,
    ) -> None:
        self._job, self._version, self._driver = job, version, driver
        self._started_us, self._freshness = started_us, tuple(freshness)
        self._balance, self._gather_bytes_max = balance, gather_bytes_max
        #: When backlogs were so large, by source, the oldest first.
        self._backlogs: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=_BACKLOGS_MAX)
        #: What the rates are since.
        self._before: JobSnapshot | None = None

    def take(self, view: MasterView, *, is_ended: bool = False) -> JobSnapshot:
        """The snapshot of a view.

        Args:
            view: of the master, later than the one before.
            is_ended: whether it is the last one.
        """
        before, counts = self._before, _counts(view)
        took_s = None if before is None else (view.taken_us - before.taken_us) / 1_000_000
        per_s = {each: self._records_per_s(view, each, took_s) for each in sorted(view.owners)}
        hot = _hot_slots(view, per_s)
        ranges = {
            str(range_id): _range(view, range_id, rate, has_hashes=view.owners[range_id] in hot)
            for range_id, rate in per_s.items()
        }
        stages = self._stages(view, ranges)
        rates = {}
        if before is not None and took_s:
            rates = {
                f"{name}_per_s": max(0, counts[name] - before.counts[name]) / took_s
                for name in _GROWING
            }
        snapshot = self._before = JobSnapshot(
            job=self._job,
            job_version=self._version,
            taken_us=view.taken_us,
            driver=DriverEvidence(
                name=self._driver,
                started_us=self._started_us,
                phase=Phase.ENDED if is_ended else _phase(view),
                workers=len(view.slots),
                workers_ready=view.statistics.workers_ready,
                longest_round_ms=view.longest_round_ms,
                moves=Histogram(counts=view.moves[0], sum_us=view.moves[1]),
            ),
            watermark_us=view.statistics.watermark_us,
            slowest_source_us=view.slowest_source_us,
            stages=stages,
            ranges=ranges,
            workers=[
                _worker(number, slot, self._worker_before(number, slot))
                for number, slot in enumerate(view.slots)
            ],
            counts=counts,
            rates=rates,
            objectives=[
                _objective(declared, stage, stages, view.taken_us)
                for declared, stage in self._freshness
                if stage in stages
            ],
            gather_bytes_max=self._gather_bytes_max,
            balance=self._balance,
        )
        return snapshot

    def _worker_before(self, number: int, slot: SlotView) -> WorkerEvidence | None:
        """What the document before has of a worker, if it is still the same."""
        workers = () if self._before is None else self._before.workers
        found = workers[number] if number < len(workers) else None
        return None if found is None or found.worker != slot.worker else found

    def _stages(
        self, view: MasterView, ranges: Mapping[str, RangeEvidence]
    ) -> Mapping[str, StageEvidence]:
        earlier = {} if self._before is None else self._before.stages
        stages = {name: _stage(view, name, ranges, earlier.get(name)) for name in view.senders}
        backlogs = {
            name: each.backlog_records
            for name, each in stages.items()
            if each.backlog_records is not None
        }
        self._backlogs.append((view.taken_us, backlogs))
        since_us, first = self._backlogs[0]
        span_s = (view.taken_us - since_us) / 1_000_000
        if span_s < _BACKLOG_SPAN_MIN_S:
            return stages
        return {
            name: attrs.evolve(each, backlog_growth_per_s=(backlogs[name] - first[name]) / span_s)
            if name in first and name in backlogs
            else each
            for name, each in stages.items()
        }

    def _records_per_s(
        self, view: MasterView, range_id: RangeId, took_s: float | None
    ) -> float | None:
        earlier = None if self._before is None else self._before.ranges.get(str(range_id))
        if earlier is None or not took_s:
            return None
        records = view.statistics.loads.get(range_id, RangeLoad()).records
        # A worker counts from the moment at which it took the range over.
        grown = records - earlier.records if records >= earlier.records else records
        return grown / took_s


def _hot_slots(view: MasterView, per_s: Mapping[RangeId, float | None]) -> Collection[int]:
    """The slots that have so much more to do than others that one might split a range of theirs."""
    loads = [0.0] * len(view.slots)
    for range_id, rate in per_s.items():
        loads[view.owners[range_id]] += rate or 0.0
    return slots_too_hot(loads, PolicyOptions().imbalance)


def _range(
    view: MasterView, range_id: RangeId, records_per_s: float | None, *, has_hashes: bool
) -> RangeEvidence:
    slot = view.slots[view.owners[range_id]]
    account, holds = slot.account, slot.holds.get(range_id)
    load = view.statistics.loads.get(range_id, RangeLoad())
    output_us = view.outputs_us.get(range_id, MIN_TIMESTAMP_US)
    head, keys = view.heads.get(range_id), view.key_ranges.get(range_id)
    return RangeEvidence(
        stage=range_id.computation,
        index=range_id.index,
        slot=view.owners[range_id],
        state=_state(view, range_id),
        worker=slot.worker if range_id in view.confirmed else None,
        output_us=output_us,
        handover_with=None if head is None else str(head),
        is_idle=range_id in view.idle,
        is_ended=output_us >= MAX_TIMESTAMP_US,
        reported_us=None if holds is None else slot.reported_us,
        percentile_us=view.percentiles_us.get(range_id.computation),
        records=load.records,
        records_per_s=records_per_s,
        hot_keys=[] if account is None else hot_keys_of(account.frequent.get(range_id, ())),
        keys=None if keys is None else (keys.low, keys.high - 1),
        hashes=load.hashes if has_hashes else (),
        poll=poll_of(view.statistics.splits.get(range_id)),
        **_holds(holds),
    )


def _objective(
    declared: FreshnessDeclared, stage: str, stages: Mapping[str, StageEvidence], now_us: int
) -> FreshnessObjective:
    output_us = latest_output_us(stages, stage)
    has_time = MIN_TIMESTAMP_US < output_us < MAX_TIMESTAMP_US
    behind_us = max(0, now_us - output_us) if has_time else None
    return FreshnessObjective(
        transform=declared.label,
        stage=stage,
        within_us=declared.within_us,
        behind_us=behind_us,
        is_met=output_us >= MAX_TIMESTAMP_US
        or (behind_us is not None and behind_us <= declared.within_us),
    )


def _holds(holds: RangeHolds | None) -> Mapping[str, int | None]:
    if holds is None:
        return {}
    return {
        "processed_us": holds.processed_us,
        "unacknowledged_us": holds.unacknowledged_us,
        "window_hold_us": holds.window_us,
    }


def hot_keys_of(frequent: Sequence[FrequentKey]) -> list[HotKey]:
    """The frequent keys of a range, as a document has them.

    Args:
        frequent: as its worker reports them, the most frequent first.
    """
    return [
        HotKey(
            key_hash=each.key_hash,
            count=each.count,
            error=each.error,
            of=each.of,
            key=each.text,
        )
        for each in frequent
    ]


def poll_of(poll: SplitPoll | None) -> SplitEvidence | None:
    """The last poll of a split, as a document has it.

    Args:
        poll: as its worker reports it, or the store has it; None: nobody has asked the split yet.
    """
    if poll is None:
        return None
    backlog = poll.backlog
    return SplitEvidence(
        polled_us=poll.polled_us,
        record_us=poll.record_us,
        idle_since_us=poll.idle_since_us,
        is_finished=poll.is_finished,
        backlog_records=None if backlog is None else backlog.records,
        backlog_bytes=None if backlog is None else backlog.size_bytes,
        backlog_age_us=None if backlog is None else backlog.age_us,
        outage=None if poll.outage is None else poll.outage.what,
        outage_error=None if poll.outage is None else poll.outage.error,
        outage_since_us=poll.outage_since_us,
    )


def _state(view: MasterView, range_id: RangeId) -> RangeState:
    if range_id in view.leaving:
        return RangeState.MOVING
    return RangeState.OWNED if range_id in view.confirmed else RangeState.AWAITED


def _stage(
    view: MasterView,
    name: str,
    ranges: Mapping[str, RangeEvidence],
    before: StageEvidence | None,
) -> StageEvidence:
    mine = [each for each in ranges.values() if each.stage == name]
    # As the authority waits for them: idle splits hold nothing back, unless all are.
    waited = [each.output_us for each in mine if not each.is_idle]
    rates = [each.records_per_s for each in mine if each.records_per_s is not None]
    accounts = [slot.account for slot in view.slots if slot.account is not None]
    overdue = [each.overdue[name] for each in accounts if name in each.overdue]
    overdue_us = [each.processing_us for each in overdue if each.processing_us is not None]
    return StageEvidence(
        is_source=not view.senders[name],
        senders=view.senders[name],
        input_us=view.inputs_us.get(name),
        input_before_us=None if before is None else before.input_us,
        output_us=min(waited or [each.output_us for each in mine], default=MAX_TIMESTAMP_US),
        percentile=view.percentiles.get(name),
        percentile_us=view.percentiles_us.get(name),
        hold_us=view.holds_us.get(name),
        may_grow=name in view.growing,
        records=sum(each.records for each in mine),
        records_per_s=sum(rates) if rates else None,
        busy_us=sum(each.stages_us.get(name, 0) for each in accounts),
        backlog_records=_backlog(mine) if not view.senders[name] else None,
        overdue_timers=sum(each.count for each in overdue),
        overdue_us=min(overdue_us, default=None),
    )


def _backlog(splits: Sequence[RangeEvidence]) -> int | None:
    """What all splits together have still to read; None: not all know that."""
    total = 0
    for each in splits:
        if each.is_ended or (each.poll is not None and each.poll.is_finished):
            continue
        if each.poll is None or each.poll.backlog_records is None:
            return None
        total += each.poll.backlog_records
    return total


def _phase(view: MasterView) -> Phase:
    if view.is_retracting:
        return Phase.RETRACTING
    if view.is_pausing:
        return Phase.PAUSING
    return Phase.DRAINING if view.is_draining else Phase.RUNNING


def _worker(number: int, slot: SlotView, before: WorkerEvidence | None) -> WorkerEvidence:
    heartbeat, received_us = slot.heartbeat or (None, None)
    refused = slot.refused
    found = WorkerEvidence(
        slot=number,
        worker=slot.worker,
        is_ready=slot.is_ready,
        reported_us=slot.reported_us,
        lease_ttl_ms=slot.lease_ttl_ms,
        heartbeat_us=None if heartbeat is None else heartbeat.sent_us,
        heartbeat_received_us=received_us,
        interpreter_us=None if heartbeat is None else heartbeat.interpreter_us,
        committing_us=None if heartbeat is None else heartbeat.committing_us,
        doing=None if heartbeat is None else _doing(heartbeat),
        refused=0 if refused is None else refused.count,
        refused_since_us=None if refused is None else refused.since_us,
        refused_reason=None if refused is None else refused.reason,
    )
    account = slot.account
    if account is None:
        return found
    return attrs.evolve(
        found,
        busy_us=account.busy_ms * 1_000,
        blocked_us=account.blocked_ms * 1_000,
        idle_us=account.idle_ms * 1_000,
        commits=Histogram(counts=account.commit_counts, sum_us=account.commit_sum_us),
        committed_us=account.committed_us,
        busy_share=_busy_share(account, before),
    )


def _busy_share(account: WorkerAccount, before: WorkerEvidence | None) -> float | None:
    """Of the time that the worker has reported since then, which is as long as that between two of its accounts."""
    if before is None:
        return None
    busy_us, rest_us = (
        account.busy_ms * 1_000 - before.busy_us,
        (account.blocked_ms + account.idle_ms) * 1_000 - before.blocked_us - before.idle_us,
    )
    if busy_us + rest_us <= 0:
        # No new account has come between the two documents.
        return before.busy_share
    return busy_us / (busy_us + rest_us)


def _doing(heartbeat: Heartbeat) -> Doing | None:
    if heartbeat.since_us is None or not heartbeat.at:
        return None
    first = heartbeat.at[0]
    return Doing(
        stage=first.ranges[0].computation,
        since_us=heartbeat.since_us,
        transform=heartbeat.transform or None,
        transform_since_us=heartbeat.transform_since_us,
        ranges=[str(each) for at in heartbeat.at for each in at.ranges],
        sender=None if first.sender is None else str(first.sender),
        first=first.first,
        last=first.last,
        record=heartbeat.record,
        records=heartbeat.records,
        is_trial=heartbeat.is_trial,
    )


def _counts(view: MasterView) -> Mapping[str, int]:
    statistics = view.statistics
    cache = statistics.cell_cache
    return {
        "records_read": statistics.records_read,
        "records_late": statistics.records_late,
        "records_dead": statistics.records_dead,
        "duplicates": statistics.record_ids.duplicates,
        "stragglers": statistics.stragglers,
        "long_ms": statistics.long_ms,
        "workers_replaced": statistics.workers_replaced,
        "cache_bytes": cache.bytes_buffered,
        "cache_hits": cache.hits,
        "cache_misses": cache.misses,
        "cache_loads": cache.loads,
        "cache_evictions": cache.evictions,
    }
