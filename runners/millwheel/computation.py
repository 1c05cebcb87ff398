"""Computations: what a worker does with the ranges it owns, one step at a time.

A step takes what has come (records of a source, deliveries, due timers) and returns a `Draft`, which the worker commits
before anyone hears of it.  Two kinds: `SourceComputation` injects, `GroupingComputation` groups.

Sans-IO but for the sources' readers.  MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from dataflow.graph import Read
from dataflow.io.source import SourceReader, SplitStatus
from dataflow.serialization import dumps, loads
from runners.core.bundle import Bundle
from runners.core.cells import Cell, CellId, LateArrival, TimerId
from runners.core.grouping import GroupingStage, StageClock, Step
from runners.core.plan import ExecutionPlan, Stage
from runners.core.stage_executor import StageExecutor
from runners.core.timers import Timers
from runners.millwheel.cell_codec import (
    decode_cell,
    decode_cell_id,
    decode_window,
    encode_cell,
    encode_cell_key,
    encode_window,
)
from runners.millwheel.draft import Draft
from runners.millwheel.ids import RangeId
from runners.millwheel.key_range import range_index
from runners.millwheel.messages import Deliver
from runners.millwheel.owned_range import OwnedRange
from runners.millwheel.production import CellWrite, LateRecord, TimerWrite
from runners.millwheel.router import Router
from runners.millwheel.store.port import TakenRange
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Timers that fire in one step: bounds the size of a commit when the watermark jumps.
TIMERS_PER_STEP = 10_000


@attrs.define
class _Split:
    owned: OwnedRange
    reader: SourceReader
    is_finished: bool


class SourceComputation:
    """Reads the splits of one source that this worker owns: the paper's injector."""

    def __init__(self, job: str, plan: ExecutionPlan, stage: Stage, router: Router) -> None:
        operation = stage.root.operation
        assert isinstance(operation, Read)
        self._job, self._router = job, router
        self._source = operation.source
        self._executor = StageExecutor(plan, stage)
        self._splits: dict[RangeId, _Split] = {}

    def setup(self) -> None:
        """Start the life of the user's code on this worker."""
        self._executor.setup()

    def close(self) -> None:
        """End it, and close the readers."""
        for split in self._splits.values():
            split.reader.close()
        self._executor.teardown()

    def take(self, taken: TakenRange) -> OwnedRange:
        """Go on reading where the last commit of the split ended."""
        row = taken.row
        assert row.split is not None
        position = None if row.position is None else loads(row.position)
        owned = OwnedRange.taken(taken)
        reader = self._source.open(loads(row.split), position)
        self._splits[row.range_id] = _Split(owned, reader, row.is_finished)
        return owned

    def unfinished(self) -> list[OwnedRange]:
        """The ranges that may have more to read."""
        return [split.owned for split in self._splits.values() if not split.is_finished]

    def read(self, range_id: RangeId, records_max: int) -> tuple[Draft | None, int]:
        """Read on in one split; the draft (None if there was nothing) and the number of records."""
        split = self._splits[range_id]
        owned = split.owned
        batch = split.reader.read(records_max)
        is_finished = batch.status is SplitStatus.FINISHED
        owned.is_idle = batch.status is SplitStatus.IDLE
        watermark_us = MAX_TIMESTAMP_US if is_finished else batch.watermark_us
        if not batch.values and not is_finished and watermark_us <= owned.watermark_us:
            return None, 0
        outputs = self._executor.process(
            Bundle(batch.values, batch.timestamps_us), watermark_us=owned.watermark_us
        )
        draft = Draft(self._job)
        draft.touch(owned)
        payloads = self._router.payloads(outputs.groups)
        draft.emit(outputs.tables, payloads, hold_us=owned.watermark_us)
        owned.watermark_us = max(owned.watermark_us, watermark_us)
        draft.move(owned, dumps(batch.position), is_finished=is_finished)
        split.is_finished = is_finished
        return draft, len(batch.values)


class GroupingComputation:
    """The key ranges of one grouping that this worker owns; their cells live together in memory."""

    def __init__(
        self, job: str, plan: ExecutionPlan, stage: Stage, router: Router, range_count: int
    ) -> None:
        self._job, self._router = job, router
        self._name, self._range_count = stage.name, range_count
        self._stage = GroupingStage(plan, stage)
        self._cells: dict[CellId, Cell] = {}
        self._timers = Timers()
        self._ranges: dict[RangeId, OwnedRange] = {}
        #: The input watermark that every due timer up to it has fired for.
        self.watermark_us = MIN_TIMESTAMP_US

    def setup(self) -> None:
        """Start the life of the user's code on this worker."""
        self._stage.executor.setup()

    def close(self) -> None:
        """End it."""
        self._stage.executor.teardown()

    def take(self, taken: TakenRange) -> OwnedRange:
        """Load the cells and timers of a range just acquired."""
        is_merging = self._stage.machine.is_merging
        for (_, cell_key), value in taken.cells.items():
            self._cells[decode_cell_id(cell_key, is_merging=is_merging)] = decode_cell(value)
        for timer in taken.timers:
            cell_id = decode_cell_id(timer.cell_key, is_merging=is_merging)
            timer_id = cell_id, decode_window(timer.tag), TimeDomain(timer.domain)
            self._timers.set(timer_id, timer.fire_us)
        owned = OwnedRange.taken(taken)
        self._ranges[owned.range_id] = owned
        # A watermark that one range has acted on was true of all senders, so it is true for the other ranges too.
        self._act_on(owned.watermark_us)
        return owned

    def deliver(self, deliveries: Sequence[Deliver], now_us: int) -> Draft | None:
        """Take deliveries in; None if none of them was new."""
        draft = Draft(self._job)
        partials: list[Any] = []
        for delivery in deliveries:
            owned = self._ranges.get(delivery.channel.receiver)
            if owned is None or not owned.accept([delivery]):
                continue
            draft.touch(owned)
            draft.deliver(delivery.channel, delivery.sequence)
            partials.extend(loads(delivery.payload))
        if not partials:
            return None
        step = self._stage.add(self._cells, partials, self._clock(self.watermark_us, now_us))
        return self._drafted(draft, step, self.watermark_us)

    def has_due(self, watermark_us: int, now_us: int) -> bool:
        """Whether `advance` has something to do."""
        next_us = self._timers.next_processing_us()
        return watermark_us > self.watermark_us or (next_us is not None and next_us <= now_us)

    def advance(self, watermark_us: int, now_us: int) -> Draft | None:
        """Fire what is due, a bounded number of timers at a time; None when all have fired."""
        due = self._timers.pop_due(
            watermark_us=watermark_us, now_us=now_us, timers_max=TIMERS_PER_STEP
        )
        if not due:
            self._act_on(watermark_us)
            return None
        hold_us = self.watermark_us
        step = self._stage.fire_timers(self._cells, due, self._clock(watermark_us, now_us))
        if len(due) < TIMERS_PER_STEP:
            self._act_on(watermark_us)
        return self._drafted(Draft(self._job), step, hold_us, due)

    def _act_on(self, watermark_us: int) -> None:
        self.watermark_us = max(self.watermark_us, watermark_us)
        for owned in self._ranges.values():
            owned.watermark_us = self.watermark_us

    def _clock(self, watermark_us: int, now_us: int) -> StageClock:
        # What has been acted on bounds what any of the ranges can have told the world.
        return StageClock(
            watermark_us=watermark_us, output_watermark_us=self.watermark_us, now_us=now_us
        )

    def _drafted(
        self, draft: Draft, step: Step, hold_us: int, fired: Iterable[TimerId] = ()
    ) -> Draft:
        effects = step.effects
        cells = []
        for cell_id in effects.touched:
            key_hash, cell_key = self._touch(draft, cell_id)
            cell = self._cells.get(cell_id)
            value = None if cell is None else encode_cell(cell)
            cells.append(CellWrite(self._name, key_hash, cell_key, value))
        # A timer that fired is gone, unless the step has set it again.
        changed = dict.fromkeys(fired) | effects.timers
        draft.write(cells, [self._timer(draft, *item) for item in changed.items()])
        draft.keep_late(self._late(arrival) for arrival in effects.late)
        payloads = self._router.payloads(step.outputs.groups)
        draft.emit(step.outputs.tables, payloads, hold_us=hold_us)
        return draft

    def _touch(self, draft: Draft, cell_id: CellId) -> tuple[int, bytes]:
        key, window = cell_id
        encoded = self._stage.codec.encode(key)
        index = range_index(encoded.hash, self._range_count)
        draft.touch(self._ranges[RangeId(self._name, index)])
        return encoded.hash, encode_cell_key(window, encoded.encoded)

    def _timer(self, draft: Draft, timer: TimerId, fire_us: int | None) -> TimerWrite:
        cell_id, window, domain = timer
        self._timers.set(timer, fire_us)
        key_hash, cell_key = self._touch(draft, cell_id)
        return TimerWrite(self._name, key_hash, cell_key, encode_window(window), domain, fire_us)

    def _late(self, arrival: LateArrival) -> LateRecord:
        return LateRecord(
            transform=self._name,
            key=repr(arrival.key),
            window_start_us=arrival.window.start_us,
            window_end_us=arrival.window.end_us,
            watermark_us=arrival.watermark_us,
            payload=dumps(arrival.accumulator),
            count=arrival.count,
        )


Computation = SourceComputation | GroupingComputation


def build_computations(
    job: str, plan: ExecutionPlan, range_counts: Mapping[str, int]
) -> dict[str, Computation]:
    """A computation for each stage of the plan, owning nothing yet."""
    router = Router(plan, range_counts)
    computations: dict[str, Computation] = {}
    for name, stage in plan.stages.items():
        if stage.is_source:
            computations[name] = SourceComputation(job, plan, stage, router)
        else:
            computations[name] = GroupingComputation(job, plan, stage, router, range_counts[name])
    return computations
