"""How an update changes a job in memory: see `Store.update_job`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

import attrs

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.store.memory.job import StoredJob, new_range
from runners.millwheel.store.port import JobUpdate, RangeRow, StateCounts

ValueT = TypeVar("ValueT")
#: A range, and the token of a former owner.
Owner = tuple[RangeId, int]


def count_state(job: StoredJob) -> StateCounts:
    """How much state there is."""
    in_flight: Counter[tuple[str, str]] = Counter()
    for (sender, receiver), pending in job.checkpoints.items():
        in_flight[sender.computation, receiver.computation] += len(pending)
    cells = Counter({name: len(found) for name, found in job.cells.items()})
    for range_id, entries in job.journal.items():
        cells[range_id.computation] += sum(entry.cells for _, entry in entries)
    return StateCounts(
        cells={name: count for name, count in cells.items() if count},
        timers={name: len(timers) for name, timers in job.timers.items() if timers},
        in_flight={edge: count for edge, count in in_flight.items() if count},
    )


def updated_job(job: StoredJob, update: JobUpdate, tokens: Iterator[int], now_ms: int) -> StoredJob:
    """The next version of a job, which itself is left as it is.

    Args:
        job: the present version.
        update: the spec of the next version, and which computations go on, under which names.
        tokens: new ones, one for each range, so that all former owners are fenced.
        now_ms: the time at which their reigns end, by the store's clock.
    """
    kept = update.kept

    def renamed(range_id: RangeId) -> RangeId:
        return RangeId(kept[range_id.computation], range_id.index)

    def of_ranges(found: Mapping[RangeId, ValueT]) -> dict[RangeId, ValueT]:
        return {renamed(each): value for each, value in found.items() if each.computation in kept}

    def of_channels(found: Mapping[Channel, ValueT]) -> dict[Channel, ValueT]:
        return {
            Channel(renamed(channel.sender), renamed(channel.receiver)): value
            for channel, value in found.items()
            if {channel.sender.computation, channel.receiver.computation} <= kept.keys()
        }

    def fenced(range_id: RangeId, row: RangeRow) -> RangeRow:
        return attrs.evolve(
            row,
            range_id=range_id,
            token=next(tokens),
            owner=None,
            handover_with=row.handover_with and renamed(row.handover_with),
        )

    def of_owners(found: Mapping[Owner, int]) -> dict[Owner, int]:
        staying = {each: n for each, n in found.items() if each[0].computation in kept}
        return {(renamed(range_id), token): n for (range_id, token), n in staying.items()}

    reigns = {(each, row.token): row.bundle for each, row in job.ranges.items()}
    cuts = {each: of_ranges(cut) for each, cut in of_ranges(job.cuts).items()}
    born = [each for each in update.spec.ranges if each.range_id.computation not in kept.values()]
    return attrs.evolve(
        job,
        spec=update.spec,
        version=job.version + 1,
        ranges={
            **{each: fenced(each, row) for each, row in of_ranges(job.ranges).items()},
            **{each.range_id: new_range(each, next(tokens)) for each in born},
        },
        cells={kept[name]: cells for name, cells in job.cells.items() if name in kept},
        timers={kept[name]: timers for name, timers in job.timers.items() if name in kept},
        journal={
            range_id: [(bundle, entry._replace(range_id=range_id)) for bundle, entry in entries]
            for range_id, entries in of_ranges(job.journal).items()
        },
        checkpoints={
            channel: _sent_on(channel, pending)
            for channel, pending in of_channels(job.checkpoints).items()
        },
        checkpointed_us=of_channels(job.checkpointed_us),
        delivered=of_channels(job.delivered),
        acknowledged=of_channels(job.acknowledged),
        origins=of_channels(job.origins),
        receipts=of_channels(job.receipts),
        cuts=cuts,
        record_ids=of_ranges(job.record_ids),
        forgotten_tokens=of_ranges(job.forgotten_tokens),
        last_bundles=of_owners(job.last_bundles | reigns),
        ended_ms=of_owners(job.ended_ms | dict.fromkeys(reigns, now_ms)),
        retired_ms=of_ranges(job.retired_ms),
    )


def _sent_on(channel: Channel, pending: Mapping[int, Checkpoint]) -> dict[int, Checkpoint]:
    """Unacknowledged productions by sequence, on a channel whose ends may have new names."""
    return {number: each._replace(channel=channel) for number, each in pending.items()}
