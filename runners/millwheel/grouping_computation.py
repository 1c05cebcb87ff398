"""GroupingComputation: the key ranges of one grouping, one step at a time.

MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from dataflow.serialization import loads
from runners.core.cells import Cell, CellId, LateArrival, TimerId, window_holds
from runners.core.grouping import GroupingStage, StageClock, Step
from runners.core.late import late_payload
from runners.core.plan import ExecutionPlan, Stage
from runners.core.timers import TimerQueue, Timers
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
from runners.millwheel.signals import Signal, SignalMark, SignalNews, portions
from runners.millwheel.store.port import TakenRange
from windowing.time_domain import TimeDomain
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import Window

#: Timers that fire in one step: bounds the size of a commit when the watermark jumps.
TIMERS_PER_STEP = 10_000
#: Cells that hear a signal in one step: bounds the size of a commit likewise.
CELLS_PER_STEP = 10_000


class GroupingComputation:
    """The key ranges of one grouping that this worker owns; their cells live together in memory."""

    def __init__(
        self,
        job: str,
        plan: ExecutionPlan,
        stage: Stage,
        router: Router,
        range_count: int,
        *,
        tries: int | None,
    ) -> None:
        self._job, self._router = job, router
        self._name, self._range_count = stage.name, range_count
        self._stage = GroupingStage(plan, stage, tries=tries)
        self._cells: dict[CellId, Cell] = {}
        self._timers = Timers()
        self._holds: TimerQueue[tuple[CellId, Window]] = TimerQueue()
        self._ranges: dict[RangeId, OwnedRange] = {}
        #: The input watermark that every due timer up to it has fired for.
        self._watermark_us = MIN_TIMESTAMP_US
        #: The same for the percentile watermark, which matters where the triggers follow one.
        self._percentile_us = MIN_TIMESTAMP_US
        #: Whether a range has been taken for which something may be due that has fired for the others, and how far its
        #: former owner had come: what was true of all senders then is true for the other ranges too.
        self._is_behind = False
        self._taken_us = self._taken_percentile_us = MIN_TIMESTAMP_US

    def setup(self) -> None:
        """Start the life of the user's code on this worker."""
        self._stage.setup()

    def close(self) -> None:
        """End it."""
        self._stage.teardown()

    def take(self, taken: TakenRange) -> OwnedRange:
        """Load the cells and timers of a range just acquired; `advance` before anything else."""
        is_merging = self._stage.machine.is_merging
        for (_, cell_key), value in taken.cells.items():
            cell_id, cell = decode_cell_id(cell_key, is_merging=is_merging), decode_cell(value)
            self._cells[cell_id] = cell
            for window, hold_us in window_holds(cell_id, cell):
                self._holds.set((cell_id, window), hold_us)
        for timer in taken.timers:
            cell_id = decode_cell_id(timer.cell_key, is_merging=is_merging)
            timer_id = cell_id, decode_window(timer.tag), TimeDomain(timer.domain)
            self._timers.set(timer_id, timer.fire_us)
        owned = OwnedRange.taken(taken)
        self._ranges[owned.range_id] = owned
        self._hold_back()
        self._is_behind = True
        self._taken_us = max(self._taken_us, owned.watermark_us)
        if owned.percentile_us is not None:
            self._taken_percentile_us = max(self._taken_percentile_us, owned.percentile_us)
        return owned

    def release(self, range_id: RangeId) -> None:
        """Let go of a range, and of everything that is kept of it in memory."""
        del self._ranges[range_id]
        index, codec, count = range_id.index, self._stage.codec, self._range_count
        gone = {
            cell_id
            for cell_id in self._cells
            if range_index(codec.encode(cell_id[0]).hash, count) == index
        }
        for cell_id in gone:
            del self._cells[cell_id]
        self._timers.forget(lambda timer: timer[0] in gone)
        self._holds.forget(lambda place: place[0] in gone)
        self._hold_back()

    @property
    def open_bytes(self) -> int:
        """Bytes that it has sent and that are not acknowledged."""
        return sum(owned.outbox.open_bytes for owned in self._ranges.values())

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
        hold_us = self._told_us
        step = self._stage.add(
            self._cells, partials, self._clock(self._watermark_us, self._percentile_us, now_us)
        )
        return self._drafted(draft, step, hold_us)

    def hear(self, news: SignalNews, now_us: int) -> Iterator[Draft]:
        """Act on the signals that it may act on, one after the other, a bounded number of cells at a time.

        Commit each draft before the next is asked for, and nothing in between.
        """
        last = news.inputs.get(self._name, 0)
        for signal in news.signals:
            if signal.number <= last and signal.name in self._stage.signals:
                yield from self._signal(signal, now_us)
        for owned in self._ranges.values():
            owned.act_on_signals(SignalMark(last))
            # Also where no window has changed: after a crash, one that opens later must not hear it.
            if self._stage.signals and owned.signal_mark > owned.signal_mark_committed:
                draft = Draft(self._job)
                draft.touch(owned)
                yield draft

    def _signal(self, signal: Signal, now_us: int) -> Iterator[Draft]:
        for owned, cells in self._waiting_for(signal):
            for told, next_hash in portions(cells, CELLS_PER_STEP):
                hold_us, draft = self._told_us, Draft(self._job)
                draft.touch(owned)
                clock = self._clock(self._watermark_us, self._percentile_us, now_us)
                step = self._stage.signal(self._cells, told, signal.name, clock)
                is_partial = next_hash > 0
                mark = SignalMark(signal.number - is_partial, next_hash)
                self._drafted(draft, step, hold_us)
                owned.act_on_signals(mark)
                if step.effects.touched:
                    yield draft

    def _waiting_for(self, signal: Signal) -> Iterable[tuple[OwnedRange, list[tuple[int, CellId]]]]:
        """The ranges that have not acted on a signal, each with those of its cells, in the order of their hashes."""
        behind = {
            owned.range_id.index: (owned, list[tuple[int, CellId]]())
            for owned in self._ranges.values()
            if owned.signal_mark.number < signal.number
        }
        for cell_id in self._cells if behind else ():
            key_hash = self._stage.codec.encode(cell_id[0]).hash
            owned, cells = behind.get(range_index(key_hash, self._range_count), (None, []))
            if owned is not None and owned.signal_mark < (signal.number - 1, key_hash + 1):
                cells.append((key_hash, cell_id))
        for _, cells in behind.values():
            cells.sort(key=itemgetter(0))
        return behind.values()

    def has_due(self, watermark_us: int, percentile_us: int, now_us: int) -> bool:
        """Whether `advance` has something to do."""
        next_us = self._timers.next_processing_us()
        return (
            self._is_behind
            or watermark_us > self._watermark_us
            or percentile_us > self._percentile_us
            or (next_us is not None and next_us <= now_us)
        )

    def advance(self, watermark_us: int, percentile_us: int, now_us: int) -> Draft | None:
        """Fire what is due, a bounded number of timers at a time; None when all have fired."""
        # What the master says may be older than what a range that was taken over had acted on.
        watermark_us = max(watermark_us, self._watermark_us, self._taken_us)
        percentile_us = max(percentile_us, self._percentile_us, self._taken_percentile_us)
        clock = self._clock(watermark_us, percentile_us, now_us)
        due = self._timers.pop_due(
            watermark_us=watermark_us,
            now_us=now_us,
            percentile_watermark_us=percentile_us,
            timers_max=TIMERS_PER_STEP,
        )
        hold_us = self._told_us
        step = self._stage.fire_timers(self._cells, due, clock) if due else None
        if len(due) < TIMERS_PER_STEP:
            self._act_on(watermark_us, percentile_us)
        return None if step is None else self._drafted(Draft(self._job), step, hold_us, due)

    def _act_on(self, watermark_us: int, percentile_us: int) -> None:
        self._watermark_us = max(self._watermark_us, watermark_us)
        self._percentile_us = max(self._percentile_us, percentile_us)
        self._is_behind = False
        is_following = self._stage.percentile is not None
        for owned in self._ranges.values():
            owned.watermark_us = self._watermark_us
            owned.percentile_us = self._percentile_us if is_following else None

    @property
    def _told_us(self) -> int:
        """What bounds everything that any of the ranges can have told the world."""
        hold_us, acted_us = self._holds.next_us(), self._watermark_us
        if self._is_behind:
            # Of a range just taken its former owner may have told less.
            acted_us = min([acted_us, *(owned.watermark_us for owned in self._ranges.values())])
        return acted_us if hold_us is None else min(acted_us, hold_us)

    def _hold_back(self) -> None:
        hold_us = self._holds.next_us()
        for owned in self._ranges.values():
            owned.window_hold_us = hold_us

    def _clock(self, watermark_us: int, percentile_us: int, now_us: int) -> StageClock:
        return StageClock(
            watermark_us=watermark_us,
            output_watermark_us=self._told_us,
            now_us=now_us,
            percentile_watermark_us=percentile_us,
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
        for place, held_us in effects.holds.items():
            self._holds.set(place, held_us)
        self._hold_back()
        draft.keep_late(self._late(arrival) for arrival in effects.late)
        draft.keep_dead(step.outputs.dead)
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
            payload=late_payload(arrival),
            count=arrival.count,
        )
