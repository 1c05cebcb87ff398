"""GroupingComputation: the key ranges of one grouping, one step at a time.

MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dataflow.serialization import loads
from runners.core.cells import CellId, TimerId, window_holds
from runners.core.grouping import GroupingStage, StageClock, Step
from runners.core.plan import ExecutionPlan, Stage
from runners.core.timers import TimerQueue, Timers
from runners.millwheel.cache_counts import CacheCounts
from runners.millwheel.cell_codec import decode_cell_id, decode_window
from runners.millwheel.guarantees import BOTH, Guarantees
from runners.millwheel.ids import RangeId
from runners.millwheel.key_range import KEY_SPACE_END, KeyMap, KeyRange
from runners.millwheel.loads import LoadMeter
from runners.millwheel.messages import Deliver
from runners.millwheel.production import LateRecord, Reshape
from runners.millwheel.shapes import Merge, Split
from runners.millwheel.signals import Signal, SignalMark, SignalNews
from runners.millwheel.store.port import StoredTimer, TakenRange
from runners.millwheel.worker.cell_cache import CellCache
from runners.millwheel.worker.committer import WorkerStoppedError
from runners.millwheel.worker.draft import Draft
from runners.millwheel.worker.journal import Journal
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.stored_cells import CellTable, StoredCells
from triggers.timestamp_combiner import TimestampCombiner
from windowing.time_domain import TimeDomain
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import Window

#: Timers that fire in one step: bounds the size of a commit when the watermark jumps.
TIMERS_PER_STEP = 10_000
#: Cells that hear a signal in one step: bounds the size of a commit likewise.
CELLS_PER_STEP = 10_000


class GroupingComputation:
    """The key ranges of one grouping that this worker owns; their cells live together in memory.

    Args:
        job: the whole.
        plan: its pipeline.
        stage: the part.
        router: divides what it sends.
        table: where cells are that are not in memory.
        tries: see `StageExecutor`.
        guarantees: what it may do without.
        cache_bytes: how much of the cells is in memory between two steps; None: all.
    """

    def __init__(
        self,
        job: str,
        plan: ExecutionPlan,
        stage: Stage,
        router: Router,
        table: CellTable,
        *,
        tries: int | None = None,
        guarantees: Guarantees = BOTH,
        cache_bytes: int | None = None,
    ) -> None:
        self._job, self._router, self._name = job, router, stage.name
        self._guarantees = guarantees
        self._stage = GroupingStage(plan, stage, tries=tries)
        self._is_merging = self._stage.machine.is_merging
        strategy = plan.graph.pcollections[stage.root.inputs[0]].strategy
        #: Whether cells can hold back the watermark behind the grouping.
        self._can_hold = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        self._timers = Timers()
        self._holds: TimerQueue[tuple[CellId, Window]] = TimerQueue()
        self._ranges: dict[RangeId, OwnedRange] = {}
        #: What they have to do.
        self.meter = LoadMeter()
        self._stored = StoredCells(
            table,
            job,
            stage.name,
            self._stage.codec,
            is_merging=self._is_merging,
            owned=self._ranges,
        )
        self._cells = CellCache(self._stored.read, cache_bytes)
        self._journal = Journal(stage.name, self._cells, self._stored, self._locate)
        #: Which of them has a key.
        self._map = KeyMap({})
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
        """Load the timers of a range just acquired, and its cells while there is room; `advance` before anything else.

        Raises:
            StoreError: it is somebody else's already.
        """
        owned = OwnedRange.taken(taken, is_weak=not self._guarantees.strong_productions)
        timers: dict[TimerId, int | None] = {
            self._timer_id(timer): timer.fire_us for timer in taken.timers
        }
        self._journal.has_stored(timers)
        timers |= self._journal.replay(owned, taken.journal)
        for timer, fire_us in timers.items():
            self._timers.set(timer, fire_us)
        self._load_cells(owned)
        self._ranges[owned.range_id] = owned
        self.meter.forget(owned.range_id)
        self._map_keys()
        self._hold_back()
        self._is_behind = True
        self._taken_us = max(self._taken_us, owned.watermark_us)
        if owned.percentile_us is not None:
            self._taken_percentile_us = max(self._taken_percentile_us, owned.percentile_us)
        return owned

    def _timer_id(self, timer: StoredTimer) -> TimerId:
        cell_id = decode_cell_id(timer.cell_key, is_merging=self._is_merging)
        return cell_id, decode_window(timer.tag), TimeDomain(timer.domain)

    def _load_cells(self, owned: OwnedRange) -> None:
        self._hold_for(self._cells.uncommitted)
        for page, next_hash in self._stored.pages(owned):
            self._cells.take_in(page)
            self._hold_for(page)
            if not self._can_hold and next_hash and self._cells.is_full:
                self._cells.leave_out()
                break
            self._cells.trim()
        self._cells.trim()

    def _hold_for(self, cell_ids: Iterable[CellId]) -> None:
        if self._can_hold:
            for cell_id in cell_ids:
                if cell_id in self._cells:
                    for window, hold_us in window_holds(cell_id, self._cells[cell_id]):
                        self._holds.set((cell_id, window), hold_us)

    def release(self, range_id: RangeId) -> None:
        """Let go of a range, and of everything that is kept of it in memory."""
        encode, find = self._stage.codec.encode, self._map.find

        def is_gone(cell_id: CellId) -> bool:
            return find(encode(cell_id[0]).hash) == range_id

        self._cells.forget(is_gone)
        self._journal.forget(range_id, is_gone)
        self._timers.forget(lambda timer: is_gone(timer[0]))
        self._holds.forget(lambda place: is_gone(place[0]))
        del self._ranges[range_id]
        self.meter.forget(range_id)
        self._map_keys()
        self._hold_back()
        if not self._ranges:
            self._cells.start_anew()

    def split(self, asked: Split) -> Draft:
        """Give the upper keys of a range to one that is born; acquire both anew when that is committed."""
        owned = self._ranges[asked.range_id]
        assert owned.keys is not None
        low, high = owned.keys.low, owned.keys.high
        at = asked.at or self._middle(owned.range_id, owned.keys)
        keys = {asked.range_id: KeyRange(low, at), asked.born: KeyRange(at, high)}
        return self._reshaped(Reshape(keys=keys, tied_to=asked.range_id))

    def merge(self, asked: Merge) -> Draft:
        """Give all keys of a range to its neighbour; acquire both anew when that is committed."""
        keys, others = self._ranges[asked.range_id].keys, self._ranges[asked.gone].keys
        assert keys is not None
        assert others is not None
        both = KeyRange(min(keys.low, others.low), max(keys.high, others.high))
        return self._reshaped(
            Reshape(keys={asked.range_id: both, asked.gone: None}, tied_to=asked.range_id)
        )

    def _reshaped(self, reshape: Reshape) -> Draft:
        draft = Draft(self._job)
        for range_id in reshape.keys:
            if range_id in self._ranges:
                draft.touch(self._ranges[range_id])
        draft.reshape(reshape)
        return draft

    def _middle(self, range_id: RangeId, keys: KeyRange) -> int:
        """Where half of the state is on either side; where there is too little to say, in the middle of the keys.

        What is in memory speaks for the rest: cells, and timers of cells that are not.
        """
        encode, find = self._stage.codec.encode, self._map.find
        known = dict.fromkeys([*self._cells, *(timer[0] for timer in self._timers)])
        all_hashes = (encode(cell_id[0]).hash for cell_id in known)
        hashes = sorted(key_hash for key_hash in all_hashes if find(key_hash) == range_id)
        middle = hashes[len(hashes) // 2] if hashes else keys.low
        return middle if middle > keys.low else (keys.low + keys.high) // 2

    def _map_keys(self) -> None:
        self._map = KeyMap(
            {range_id: owned.keys for range_id, owned in self._ranges.items() if owned.keys}
        )

    @property
    def cache_counts(self) -> CacheCounts:
        """What its cells in memory take, and what has become of others."""
        return self._cells.counts

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
            draft.deliver(
                delivery.channel, delivery.sequence, is_kept=self._guarantees.exactly_once
            )
            taken_in = loads(delivery.payload)
            partials.extend(taken_in)
            self.meter.count(owned.range_id, len(taken_in))
        if not partials:
            return None
        for key in self.meter.sample(partials):
            key_hash = self._stage.codec.encode(key).hash
            self.meter.note(self._map.find(key_hash), key_hash)
        hold_us = self._told_us
        self._cells.need(
            (key, None if self._is_merging else window) for key, window, _, _ in partials
        )
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
        behind = [each for each in self._ranges.values() if each.signal_mark.number < signal.number]
        for owned in behind:
            number, heard_hash = owned.signal_mark
            first_hash = heard_hash if number == signal.number - 1 else 0
            for page, next_hash in self._stored.pages(owned, first_hash, CELLS_PER_STEP):
                self._cells.bring_back(page)
                # What the store does not have yet hears it too.
                told = dict.fromkeys(
                    [*page, *self._uncommitted(owned.range_id, first_hash, next_hash)]
                )
                first_hash = next_hash
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
                else:
                    self._cells.trim()

    def _uncommitted(self, range_id: RangeId, first_hash: int, end_hash: int) -> Iterator[CellId]:
        for cell_id in self._cells.uncommitted:
            key_hash = self._stage.codec.encode(cell_id[0]).hash
            is_between = first_hash <= key_hash < (end_hash or KEY_SPACE_END)
            if is_between and self._map.find(key_hash) == range_id:
                yield cell_id

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
        self._cells.need(cell_id for cell_id, _, _ in due)
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
        # A timer that fired is gone, unless the step has set it again.
        changed = dict.fromkeys(fired) | effects.timers
        self._journal.note(draft, effects.touched, changed)
        for timer, fire_us in changed.items():
            self._timers.set(timer, fire_us)
        for place, held_us in effects.holds.items():
            self._holds.set(place, held_us)
        self._hold_back()
        draft.keep_late(LateRecord.of(self._name, arrival) for arrival in effects.late)
        draft.keep_dead(step.outputs.dead)
        payloads = self._router.payloads(step.outputs.groups)
        draft.emit(step.outputs.tables, payloads, hold_us=hold_us)
        return draft

    def _locate(self, key: Any) -> OwnedRange:
        range_id = self._map.find(self._stage.codec.encode(key).hash)
        if range_id is None:
            # Who sent it knows newer bounds: the ranges have been reshaped by somebody else, and are not ours.
            raise WorkerStoppedError(f"{self._name} has no range for key {key!r} here any more")
        return self._ranges[range_id]

    @property
    def journal(self) -> Journal:
        """What is durable and not in cells and timers yet."""
        return self._journal

    def settle(self) -> Draft | None:
        """Bring some of the cells and timers up to date with the journal; None if all of them are."""
        draft = Draft(self._job)
        return draft if self._journal.settle(draft) else None
