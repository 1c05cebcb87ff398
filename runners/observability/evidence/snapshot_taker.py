"""SnapshotTaker: makes of what a master knows the document that others read from the store."""

from collections.abc import Mapping

import attrs

from runners.millwheel.master.view import MasterView, SlotView
from runners.millwheel.model.accounts import RangeHolds
from runners.millwheel.model.hot_keys import FrequentKey
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.wire.messages import Heartbeat
from runners.observability.evidence.snapshot import (
    Doing,
    DriverEvidence,
    Histogram,
    HotKey,
    JobSnapshot,
    Phase,
    RangeEvidence,
    RangeState,
    SplitEvidence,
    StageEvidence,
    WorkerEvidence,
)
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Counts of which the growth in a second is shown too.
_GROWING = ("records_read", "records_late", "records_dead")


class SnapshotTaker:
    """Takes the snapshots of one run of a driver, for the thread that writes them.

    Args:
        job: its name.
        version: of the job.
        driver: the host and process of the driver.
        started_us: when it began, in microseconds since 1970.
    """

    def __init__(self, job: str, version: int, driver: str, started_us: int) -> None:
        self._job, self._version, self._driver = job, version, driver
        self._started_us = started_us
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
        ranges = {
            str(range_id): self._range(view, range_id, took_s) for range_id in sorted(view.owners)
        }
        earlier = {} if before is None else before.stages
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
            ),
            watermark_us=view.statistics.watermark_us,
            slowest_source_us=view.slowest_source_us,
            stages={name: _stage(view, name, ranges, earlier.get(name)) for name in view.senders},
            ranges=ranges,
            workers=[_worker(number, slot) for number, slot in enumerate(view.slots)],
            counts=counts,
            rates=rates,
        )
        return snapshot

    def _range(self, view: MasterView, range_id: RangeId, took_s: float | None) -> RangeEvidence:
        slot = view.slots[view.owners[range_id]]
        account, holds = slot.account, slot.holds.get(range_id)
        records = view.statistics.loads.get(range_id, RangeLoad()).records
        output_us = view.outputs_us.get(range_id, MIN_TIMESTAMP_US)
        head = view.heads.get(range_id)
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
            records=records,
            records_per_s=self._records_per_s(range_id, records, took_s),
            hot_keys=[] if account is None else _hot(account.frequent.get(range_id, ())),
            poll=_poll(view.statistics.splits.get(range_id)),
            **_holds(holds),
        )

    def _records_per_s(self, range_id: RangeId, records: int, took_s: float | None) -> float | None:
        earlier = None if self._before is None else self._before.ranges.get(str(range_id))
        if earlier is None or not took_s:
            return None
        # A worker counts from the moment at which it took the range over.
        grown = records - earlier.records if records >= earlier.records else records
        return grown / took_s


def _holds(holds: RangeHolds | None) -> Mapping[str, int | None]:
    if holds is None:
        return {}
    return {
        "processed_us": holds.processed_us,
        "unacknowledged_us": holds.unacknowledged_us,
        "window_hold_us": holds.window_us,
    }


def _hot(frequent: tuple[FrequentKey, ...]) -> list[HotKey]:
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


def _poll(poll: SplitPoll | None) -> SplitEvidence | None:
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
    )


def _phase(view: MasterView) -> Phase:
    if view.is_retracting:
        return Phase.RETRACTING
    if view.is_pausing:
        return Phase.PAUSING
    return Phase.DRAINING if view.is_draining else Phase.RUNNING


def _worker(number: int, slot: SlotView) -> WorkerEvidence:
    heartbeat, received_us = slot.heartbeat or (None, None)
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
    )


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
