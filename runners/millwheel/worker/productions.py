"""Productions: what is committed of a step, and what its ranges know when it is durable."""

from collections.abc import Mapping

from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.production import Counted, Production
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.metrics import encode_metrics


def production_of(job: str, step: WorkerStep, ranges: Mapping[RangeId, OwnedRange]) -> Production:
    """The production of a step that is sealed; call once, as it takes the acknowledgements out of the outboxes.

    Args:
        job: the name of the job.
        step: one step, or several that were merged.
        ranges: all of the worker.
    """
    acknowledged: dict[Channel, int] = {}
    receipts: dict[Channel, Receipt] = {}
    watermarks_us: dict[RangeId, int] = {}
    percentiles_us: dict[RangeId, int] = {}
    firing_us: dict[RangeId, int] = {}
    signal_marks: dict[RangeId, SignalMark] = {}
    for range_id, owned in step.ranges.items():
        if taken := owned.outbox.take_acknowledged():
            acknowledged.update(taken)
            known = owned.outbox.receipts.items()
            receipts.update((each, receipt) for each, receipt in known if each in taken)
        progress = step.progress[range_id]
        watermarks_us[range_id] = progress.watermark_us
        if progress.percentile_us is not None:
            percentiles_us[range_id] = progress.percentile_us
        fired_us = progress.firing_us
        if fired_us is not None and fired_us > owned.stored_input_watermark_us:
            firing_us[range_id] = fired_us
        if progress.signal_mark != owned.signal_mark_committed:
            signal_marks[range_id] = progress.signal_mark
    return Production(
        job=job,
        fences=[owned.fence() for owned in step.ranges.values()],
        cells=step.cells,
        timers=step.timers,
        journal=step.journal,
        compacted=step.compacted,
        delivered=step.delivered,
        origins={channel: mark for channel, mark in step.origins.items() if mark},
        checkpoints=step.checkpoints,
        acknowledged=acknowledged,
        receipts=receipts,
        positions=step.positions,
        record_ids=step.record_ids,
        record_id_horizons_us=step.horizons_us,
        watermarks_us=watermarks_us,
        percentiles_us=percentiles_us,
        firing_us=firing_us,
        signal_marks=signal_marks,
        finished=step.finished,
        reshape=step.reshape,
        ended_handovers=step.ended_handovers,
        late=step.late,
        dead=step.dead,
        tables=step.tables,
        lineage=step.lineage,
        metrics=Counted(encode_metrics(step.metrics)) if step.metrics else None,
        cut=_cut_of(step, ranges) if step.takes_handed_on else {},
    )


def _cut_of(step: WorkerStep, ranges: Mapping[RangeId, OwnedRange]) -> Mapping[RangeId, CommitMark]:
    """How far ranges have come with the commit of a step."""
    return {
        range_id: owned.next_mark if range_id in step.ranges else owned.mark
        for range_id, owned in ranges.items()
    }


def take_in_own(step: WorkerStep) -> None:
    """Acknowledge the productions of a step that it has itself taken in; they need not be kept (ADR 0054).

    Args:
        step: about to be committed.
    """
    found = {
        channel: sequence
        for channel, sequence, _, _ in step.checkpoints
        if sequence <= step.delivered.get(channel, 0)
    }
    for channel, sequence in found.items():
        receipt = Receipt(step.ranges[channel.receiver].next_mark, is_remembered=True)
        step.ranges[channel.sender].outbox.acknowledge(channel, sequence, receipt)


def note_submitted(step: WorkerStep) -> None:
    """Note that the production of a step is on its way: the next one on its ranges takes the next bundle number.

    From here on memory is as of that commit; if it does not happen, all of memory goes.
    """
    for range_id, owned in step.ranges.items():
        owned.bundle += 1
        progress = step.progress[range_id]
        owned.signal_mark_committed = progress.signal_mark
        for us in (progress.watermark_us, progress.firing_us):
            if us is not None and us > owned.stored_input_watermark_us:
                owned.stored_input_watermark_us = us
    for channel, sequence in step.taken_in.items():
        step.ranges[channel.receiver].delivered[channel] = sequence
    for checkpoint in step.checkpoints:
        step.ranges[checkpoint.channel.sender].outbox.keep(checkpoint)


def note_durable(step: WorkerStep) -> None:
    """Note that the production of a step that was submitted is durable."""
    for act in step.when_committed:
        act()
