"""StoredJob and StoredTable: what the memory store keeps of a job and of a result table."""

from operator import itemgetter

import attrs

from dataflow.io.table import TableSpec
from runners.core.changelog import Rows
from runners.millwheel.ids import Channel, Fence, RangeId
from runners.millwheel.production import Checkpoint, DeadLetter, LateRecord
from runners.millwheel.signals import Signal
from runners.millwheel.store.port import JobSpec, RangeRow, RangeSpec, StoredTimer, TakenRange


@attrs.define
class StoredJob:
    """Everything of one job; owned by the store's lock."""

    spec: JobSpec
    ranges: dict[RangeId, RangeRow]
    is_finished: bool = False
    cells: dict[str, dict[tuple[int, bytes], bytes]] = attrs.field(factory=dict)
    timers: dict[str, dict[tuple[int, bytes, bytes, str], int]] = attrs.field(factory=dict)
    checkpoints: dict[Channel, dict[int, Checkpoint]] = attrs.field(factory=dict)
    delivered: dict[Channel, int] = attrs.field(factory=dict)
    acknowledged: dict[Channel, int] = attrs.field(factory=dict)
    late: list[LateRecord] = attrs.field(factory=list)
    dead: list[DeadLetter] = attrs.field(factory=list)
    signals: list[Signal] = attrs.field(factory=list)
    #: Last bundle committed under each token that was taken away, which makes `resolve` exact.
    last_bundles: dict[tuple[RangeId, int], int] = attrs.field(factory=dict)


@attrs.define
class StoredTable:
    """A result table; ``creator`` is the job whose reset drops it."""

    spec: TableSpec
    creator: str | None
    users: set[str]
    rows: Rows = attrs.field(factory=dict)


def new_range(spec: RangeSpec, token: int) -> RangeRow:
    """A range of a job that has just been created."""
    return RangeRow(
        range_id=spec.range_id,
        keys=spec.keys,
        split=spec.split,
        token=token,
        bundle=0,
        owner=None,
        position=None,
        watermark_us=None,
        is_finished=False,
    )


def read_range(job: StoredJob, range_id: RangeId) -> TakenRange:
    """What a new owner of a range is given."""
    row = job.ranges[range_id]
    keys = row.keys
    cells = job.cells.get(range_id.computation, {}) if keys else {}
    timers = job.timers.get(range_id.computation, {}) if keys else {}
    sent = {c: n for c, n in job.acknowledged.items() if c.sender == range_id}
    checkpoints: list[Checkpoint] = []
    for channel, pending in job.checkpoints.items():
        if channel.sender == range_id and pending:
            sent[channel] = max(*pending, sent.get(channel, 0))
            checkpoints.extend(pending.values())
    return TakenRange(
        row=row,
        cells={key: value for key, value in cells.items() if keys and key[0] in keys},
        timers=[
            StoredTimer(key_hash=key[0], cell_key=key[1], tag=key[2], domain=key[3], fire_us=us)
            for key, us in timers.items()
            if keys and key[0] in keys
        ],
        delivered={c: n for c, n in job.delivered.items() if c.receiver == range_id},
        sent=sent,
        checkpoints=sorted(checkpoints, key=itemgetter(0, 1)),
    )


def has_landed(job: StoredJob, fence: Fence) -> bool:
    """Whether the bundle was committed under the fence's token, however many owners came since."""
    row = job.ranges.get(fence.range_id)
    if row is None:
        return False
    if row.token == fence.token:
        return row.bundle >= fence.bundle
    return job.last_bundles.get((fence.range_id, fence.token), -1) >= fence.bundle


def is_same_table(one: TableSpec, other: TableSpec) -> bool:
    """Whether two specs agree on columns, their order, and the key."""
    return list(one.columns.items()) == list(other.columns.items()) and set(one.key) == set(
        other.key
    )
