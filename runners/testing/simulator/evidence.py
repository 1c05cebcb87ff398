"""Evidence of a simulated job: what its driver knows, and what the ranges that its workers have are held by.

As a driver writes it about once a second (`runners.observability.evidence.snapshot`), but of this very moment.
"""

from collections.abc import Mapping

import attrs

from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.master.master import Master
from runners.millwheel.master.slots import Slot
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad
from runners.millwheel.worker.owned_range import OwnedRange
from runners.observability.evidence.snapshot import (
    RangeEvidence,
    RangeState,
    StageEvidence,
    WorkerEvidence,
)
from runners.observability.evidence.snapshot_taker import hot_keys_of, poll_of
from runners.observability.why.evidence import Evidence, JobState, Pending
from runners.observability.why.from_store import key_from_store, with_due
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from windowing.timestamps import MAX_TIMESTAMP_US


def evidence_of(cluster: SimulatedCluster, key: str | None = None) -> Evidence:
    """What is known of the job now.

    Args:
        cluster: that runs it.
        key: to be looked at; None: none is.
    """
    evidence = with_due(_evidence_of(cluster), cluster.plan)
    if key is None:
        return evidence
    return attrs.evolve(
        evidence, key=key_from_store(cluster.store, JOB, key, evidence, cluster.plan)
    )


def _evidence_of(cluster: SimulatedCluster) -> Evidence:
    master, plan = cluster.master, cluster.plan
    now_us = cluster._driver_clock.now_us()  # noqa: SLF001 - the simulator sees everything
    owned = {
        process.name: process.worker._ranges  # noqa: SLF001 - as above
        for process in cluster._processes  # noqa: SLF001 - as above
        if process.worker is not None
    }
    loads = master.statistics().loads
    ranges = {
        str(each): _range(cluster, each, owned, loads)
        for each in sorted(master._authority._outputs_us)  # noqa: SLF001 - as above
    }
    return Evidence(
        job=JOB,
        now_us=now_us,
        state=_state(cluster),
        as_of_us=now_us,
        stages={name: _stage(master, plan, name, ranges) for name in plan.stages},
        ranges=ranges,
        workers=[
            WorkerEvidence(
                slot=number,
                worker=slot.worker,
                is_ready=slot.is_ready,
                reported_us=_reported_us(cluster, slot),
                lease_ttl_ms=slot.lease_ttl_ms,
                refused=0 if slot.refused is None else slot.refused.count,
                refused_since_us=None if slot.refused is None else slot.refused.since_us,
                refused_reason=None if slot.refused is None else slot.refused.reason,
            )
            for number, slot in enumerate(master._slots)  # noqa: SLF001 - as above
        ],
        pending=[
            Pending(
                sender=str(channel.sender),
                receiver=str(channel.receiver),
                count=each.pending,
                hold_us=each.hold_us,
            )
            for channel, each in cluster.store.read_pending(JOB).items()
        ],
        labels={
            node.label: stage.name
            for stage in plan.stages.values()
            for node in (*stage.nodes, *stage.tables)
        },
        late=cluster.store.read_late_counts(JOB),
    )


def _state(cluster: SimulatedCluster) -> JobState:
    if cluster.is_over:
        return JobState.FINISHED
    is_dead = cluster._is_driver_dead  # noqa: SLF001 - the simulator sees everything
    return JobState.NOT_RUNNING if is_dead else JobState.RUNNING


def _stage(
    master: Master, plan: ExecutionPlan, name: str, ranges: Mapping[str, RangeEvidence]
) -> StageEvidence:
    authority = master._authority  # noqa: SLF001 - the simulator sees everything
    mine = [each for each in ranges.values() if each.stage == name]
    waited_us = [each.output_us for each in mine if not each.is_idle]
    return StageEvidence(
        is_source=plan.stages[name].is_source,
        senders=plan.senders(name),
        input_us=authority.inputs_us.get(name),
        output_us=min(waited_us or [each.output_us for each in mine], default=MAX_TIMESTAMP_US),
        hold_us=authority._holds_us.get(name),  # noqa: SLF001 - as above
        may_grow=name in authority._growing,  # noqa: SLF001 - as above
    )


def _reported_us(cluster: SimulatedCluster, slot: Slot) -> int:
    clock = cluster._driver_clock  # noqa: SLF001 - the simulator sees everything
    return clock.now_us() - (clock.monotonic_ms() - slot.last_seen_ms) * 1_000


def _range(
    cluster: SimulatedCluster,
    range_id: RangeId,
    owned: Mapping[str, Mapping[RangeId, OwnedRange]],
    loads: Mapping[RangeId, RangeLoad],
) -> RangeEvidence:
    master = cluster.master
    authority, assignment = master._authority, master._assignment  # noqa: SLF001 - the simulator sees everything
    number = assignment.slots.get(range_id, 0)
    is_confirmed = range_id in assignment._confirmed  # noqa: SLF001 - as above
    state = RangeState.OWNED if is_confirmed else RangeState.AWAITED
    if range_id in assignment._leaving:  # noqa: SLF001 - as above
        state = RangeState.MOVING
    slot = master._slots[number]  # noqa: SLF001 - as above
    output_us = authority._outputs_us[range_id]  # noqa: SLF001 - as above
    mine = owned.get(slot.worker or "", {}).get(range_id) if is_confirmed else None
    return RangeEvidence(
        stage=range_id.computation,
        index=range_id.index,
        slot=number,
        state=state,
        worker=slot.worker if is_confirmed else None,
        output_us=output_us,
        is_idle=range_id in authority._idle,  # noqa: SLF001 - as above
        is_ended=output_us >= MAX_TIMESTAMP_US,
        reported_us=None if mine is None else _reported_us(cluster, slot),
        processed_us=None if mine is None else mine.watermark_us,
        unacknowledged_us=None if mine is None else mine.outbox.hold_us,
        window_hold_us=None if mine is None else mine.window_hold_us,
        records=loads[range_id].records if range_id in loads else 0,
        hot_keys=[]
        if slot.account is None
        else hot_keys_of(slot.account.frequent.get(range_id, ())),
        poll=poll_of(master.last_poll(range_id)),
    )
