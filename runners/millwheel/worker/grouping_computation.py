"""GroupingComputation: the key ranges of one grouping, one step at a time.

MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from runners.core.ground.cells import CellId, TimerId, window_holds
from runners.core.ground.timers import TimerQueue, Timers
from runners.core.partials.partial import Partial
from runners.core.partials.parts import by_label, parts_of
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.stage_clocks import StageClocks
from runners.core.user_code.poison import Trial
from runners.millwheel.cell_codec import decode_timer
from runners.millwheel.control.shapes import Merge, Split
from runners.millwheel.model.cache_counts import CacheCounts
from runners.millwheel.model.guarantees import BOTH, Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyMap
from runners.millwheel.model.loads import LoadMeter
from runners.millwheel.model.production import LateRecord, StoredDeadLetter
from runners.millwheel.model.signals import Signal, SignalMark, SignalNews
from runners.millwheel.store.port import TakenRange
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.committer import WorkerStoppedError
from runners.millwheel.worker.input_watermark import InputWatermark
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.reshaping import merge, split
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX, Pieces, StepSize, of_key
from runners.millwheel.worker.state.cell_cache import CellCache
from runners.millwheel.worker.state.column_state import ColumnState, Release
from runners.millwheel.worker.state.journal import Journal
from runners.millwheel.worker.state.stored_cells import CellTable, StoredCells
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.millwheel.worker.worker_step import WorkerStep, merged
from runners.stored.journal import encode_released
from runners.stored.partials import decode_partials, encode_partials
from triggers.clocks import Clocks
from triggers.timestamp_combiner import TimestampCombiner
from windowing.window import Window


class GroupingComputation:
    """The key ranges of one grouping that this worker owns; their cells live together in memory.

    Args:
        job: its name.
        plan: the pipeline.
        stage: the stage of the grouping.
        router: divides what it sends.
        table: has the cells that are not in memory.
        tries: see `StageExecutor`.
        guarantees: those that it has.
        cache_bytes: how many bytes of cells stay in memory between two steps; None: all.
        steps: how much it does in one step.
        value_bytes_max: of all that is kept of a key and window.
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
        steps: StepLimits = STEP_LIMITS,
        value_bytes_max: int = VALUE_BYTES_MAX,
    ) -> None:
        self._router, self._guarantees, self._name = router, guarantees, stage.name
        self._steps = steps
        self._stage = GroupingStage(plan, stage, tries=tries)
        self._is_merging = self._stage.machine.is_merging
        strategy = plan.graph.pcollections[stage.root.inputs[0]].strategy
        #: Whether cells can have a hold on the output watermark of the grouping.
        self._can_hold = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        self._timers = Timers()
        self._holds: TimerQueue[tuple[CellId, Window]] = TimerQueue()
        self._ranges: dict[RangeId, OwnedRange] = {}
        #: The load of the ranges.
        self.meter = LoadMeter()
        self._stored = StoredCells(
            table,
            job,
            stage.name,
            self._stage.codec,
            is_merging=self._is_merging,
            owned=self._ranges,
            steps=steps,
        )
        self._cells = CellCache(self._stored.read, cache_bytes)
        #: The state that is kept as columns, in place of cells and timers.
        self.columns = ColumnState(self._stage.panes, cache_bytes, steps)
        #: State that is durable and not in cells and timers yet.
        self.journal = Journal(
            stage.name,
            self._cells,
            self._stored,
            self.columns,
            self._locate,
            Pieces(value_bytes_max, partial(_not_kept, str(stage.root)), steps),
            steps,
        )
        #: How many timers fire in one step.
        self._timers_size = StepSize(steps)
        #: Which of the ranges has a key.
        self._map = KeyMap({})
        #: The input watermark.  While it is behind the watermark of the master, no delivery may be taken in.
        self.time = InputWatermark(
            self._ranges, follows_percentile=self._stage.percentile is not None
        )

    def setup(self) -> None:
        """Set up the user's code on this worker."""
        self._stage.setup()

    def close(self) -> None:
        """Tear the user's code down."""
        self._stage.teardown()

    def take(self, taken: TakenRange) -> OwnedRange:
        """Load the timers of a range just acquired, and its cells while there is room; `advance` before anything else.

        Raises:
            StoreError: another worker owns the range already.
        """
        owned = OwnedRange.taken(
            taken,
            is_weak=not self._guarantees.strong_productions,
            remembers=self._guarantees.exactly_once,
        )
        timers: dict[TimerId, int | None] = {
            decode_timer(timer, is_merging=self._is_merging): timer.fire_us
            for timer in taken.timers
        }
        self.journal.has_stored(timers)
        timers |= self.journal.replay(owned, taken.journal)
        for timer, fire_us in timers.items():
            self._timers.set(timer, fire_us)
        self.columns.note_cells(self._timers)
        self._load_cells(owned)
        self._ranges[owned.range_id] = owned
        self.meter.forget(owned.range_id)
        self._map_keys()
        self._hold_back()
        self.time.take(owned)
        return owned

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
        """Forget a range, and everything that is kept of it in memory."""
        encode, find = self._stage.codec.encode, self._map.find

        def is_gone(cell_id: CellId) -> bool:
            return find(encode(cell_id[0]).hash) == range_id

        self._cells.forget(is_gone)
        self.journal.forget(range_id, is_gone)
        self.columns.forget(range_id)
        self._timers.forget(lambda timer: is_gone(timer[0]))
        self._holds.forget(lambda place: is_gone(place[0]))
        del self._ranges[range_id]
        self.meter.forget(range_id)
        self._map_keys()
        self._hold_back()
        if not self._ranges:
            self._cells.start_anew()

    def split(self, asked: Split) -> WorkerStep:
        """Give the upper keys of a range to a new one; acquire both again when that is committed."""
        cells = [*self._cells, *(timer[0] for timer in self._timers)]
        hashes = (self._stage.codec.encode(cell_id[0]).hash for cell_id in dict.fromkeys(cells))
        return split(self._ranges, asked, hashes)

    def merge(self, asked: Merge) -> WorkerStep:
        """Give all keys of a range to its neighbour; acquire both again when that is committed."""
        return merge(self._ranges, asked)

    def _map_keys(self) -> None:
        self._map = KeyMap(
            {range_id: owned.keys for range_id, owned in self._ranges.items() if owned.keys}
        )

    @property
    def cache_counts(self) -> CacheCounts:
        """How large the cells in memory are, and how many were read and evicted."""
        counts = self._cells.counts
        return attrs.evolve(counts, bytes_buffered=counts.bytes_buffered + self.columns.nbytes)

    @property
    def open_bytes(self) -> int:
        """Bytes that it has sent and that are not acknowledged."""
        return sum(owned.outbox.open_bytes for owned in self._ranges.values())

    def deliver(self, deliveries: Sequence[Deliver], now_us: int) -> WorkerStep | None:
        """Process deliveries; returns the step, None if none of them was new."""
        accepted = [
            (owned, delivery)
            for delivery in deliveries
            if (owned := self._ranges.get(delivery.channel.receiver)) is not None
            and owned.accept([delivery])
        ]
        if not accepted:
            return None
        steps, partials = [self._taken_in(accepted)], list[Partial]()
        for owned, delivery in accepted:
            for step, others in self._buffered(owned, delivery.payload):
                steps.append(step)
                partials.extend(others)
        if not partials:
            return merged(steps)
        windows = self.columns.make_single(partials, self.time.watermark_us)
        return self._released(steps, self.columns.release(windows), partials, now_us)

    def _taken_in(self, accepted: Sequence[tuple[OwnedRange, Deliver]]) -> WorkerStep:
        """Take deliveries in on their channels; durably, if they are to be deduplicated."""
        taken_in = {delivery.channel: delivery.sequence for _, delivery in accepted}
        origins = {delivery.channel: delivery.origin for _, delivery in accepted}
        is_kept = self._guarantees.exactly_once
        return WorkerStep(
            ranges={owned.range_id: owned for owned, _ in accepted},
            taken_in=taken_in,
            delivered=taken_in if is_kept else {},
            origins=origins if is_kept else {},
        )

    def _buffered(
        self, owned: OwnedRange, payload: bytes
    ) -> Iterator[tuple[WorkerStep, Sequence[Partial]]]:
        """Keep as columns, and note, what can be kept so of a delivery to a range; yields the rest of it too."""
        taken_in = decode_partials(payload, self._stage.combiners)
        by_range: Mapping[RangeId, Sequence[Partial]] = {owned.range_id: taken_in}
        if any(each.handover_with for each in self._ranges.values()):
            # It may have been addressed before the ranges were reshaped.
            by_range = by_label(taken_in, lambda key: self._locate(key).range_id)
        encode = self._stage.codec.encode
        for range_id, partials in by_range.items():
            for part in parts_of(partials):
                self.meter.take_in(range_id, part, lambda key: encode(key).hash)
                buffered, rest = self.columns.take_in(range_id, part, self.time.watermark_us)
                if buffered is None:
                    yield WorkerStep(), rest
                    continue
                blob = payload if buffered is taken_in else encode_partials(buffered)
                yield self.journal.note_entry(self._ranges[range_id], len(buffered), blob), rest

    def _released(
        self,
        steps: list[WorkerStep],
        released: Iterable[Release],
        partials: list[Partial],
        now_us: int,
    ) -> WorkerStep:
        """Process partials by the window machine, together with what was kept as columns for their windows.

        Args:
            steps: what has been done before, as a part of the same step.
            released: the columns.
            partials: those that came otherwise.
            now_us: the processing time, in microseconds.
        """
        for range_id, entry, parts in released:
            steps.append(self.journal.note_entry(self._ranges[range_id], 0, encode_released(entry)))
            for part in parts:
                partials.extend(part)
        hold_us = self._output_watermark_us
        self._cells.need(
            (key, None if self._is_merging else window) for key, window, _, _ in partials
        )
        clocks = self.time.reached(output_watermark_us=hold_us, now_us=now_us)
        return self._done(steps, self._stage.add(self._cells, partials, clocks), hold_us)

    def release_columns(self, now_us: int) -> Iterator[WorkerStep]:
        """Turn all that is kept as columns into cells.

        Commit each step before the next is asked for, and nothing in between.
        """
        for range_id in self.columns.range_ids:
            released = self.columns.release(None, range_id)
            yield self._released([], released, [], now_us)

    def try_first(self, trial: Trial | None) -> None:
        """Run user code in the trial process before it is run here; None: at once."""
        self._stage.try_first(trial)

    def on_signals(self, news: SignalNews, now_us: int) -> Iterator[WorkerStep]:
        """Fire windows by the signals that are due here, one signal after the other, a bounded number of cells at once.

        Commit each step before the next is asked for, and nothing in between.
        """
        last = news.inputs.get(self._name, 0)
        for signal in news.signals:
            if signal.number <= last and signal.name in self._stage.signals:
                yield from self._signal(signal, now_us)
        for owned in self._ranges.values():
            owned.act_on_signals(SignalMark(last))
            # Also where no window has changed: after a crash, one that opens later must not fire by this signal.
            if self._stage.signals and owned.signal_mark > owned.signal_mark_committed:
                yield WorkerStep.touching(owned)

    def _signal(self, signal: Signal, now_us: int) -> Iterator[WorkerStep]:
        behind = [each for each in self._ranges.values() if each.signal_mark.number < signal.number]
        for owned in behind:
            number, processed_hash = owned.signal_mark
            first_hash = processed_hash if number == signal.number - 1 else 0
            for page, next_hash in self._stored.pages(owned, first_hash, self._steps.cells):
                self._cells.bring_back(page)
                # The signal goes to cells that the store does not have yet too.
                receivers = dict.fromkeys(
                    [*page, *self._uncommitted(owned.range_id, first_hash, next_hash)]
                )
                first_hash = next_hash
                hold_us = self._output_watermark_us
                clocks = self.time.reached(output_watermark_us=hold_us, now_us=now_us)
                step = self._stage.signal(self._cells, receivers, signal.name, clocks)
                is_partial = next_hash > 0
                mark = SignalMark(signal.number - is_partial, next_hash)
                done = self._done([WorkerStep.touching(owned)], step, hold_us)
                owned.act_on_signals(mark)
                if step.effects.touched:
                    yield done
                else:
                    self._cells.trim()

    def _uncommitted(self, range_id: RangeId, first_hash: int, end_hash: int) -> Iterator[CellId]:
        for cell_id in self._cells.uncommitted:
            key_hash = self._stage.codec.encode(cell_id[0]).hash
            is_between = first_hash <= key_hash < (end_hash or KEY_SPACE_END)
            if is_between and self._map.find(key_hash) == range_id:
                yield cell_id

    def has_due(self, clocks: Clocks) -> bool:
        """Whether `advance` has something to do."""
        next_us = self._timers.next_processing_us()
        is_due = next_us is not None and next_us <= clocks.now_us
        return is_due or self.time.is_before(clocks)

    def advance(self, clocks: Clocks) -> WorkerStep | None:
        """Fire what is due, a bounded number of timers at a time; returns None when all have fired."""
        if self.time.is_behind and self.columns.is_conflicting:
            released = self.columns.release(self.columns.singles)
            return self._released([], released, [], clocks.now_us)
        hold_us, steps = self._output_watermark_us, list[WorkerStep]()
        known = self.time.known(clocks, output_watermark_us=hold_us)
        watermark_us = known.watermark_us
        timers_max = self._timers_size.allowed(self._steps.timers)
        # Windows that are kept as columns fire in turn with the timers.
        until_us = min(watermark_us, self.columns.next_end_us)
        due = self._timers.pop_due(attrs.evolve(known, watermark_us=until_us), timers_max)
        self._cells.need(cell_id for cell_id, _, _ in due)
        fired = self._stage.fire_timers(self._cells, due, known) if due else None
        if fired is None and self.columns.next_end_us <= watermark_us:
            noted, fired = self._fire_columns(known)
            steps.append(noted)
        timer_us = self._timers.next_event_us()
        is_over = self.columns.next_end_us > watermark_us and len(due) < timers_max
        if is_over and (timer_us is None or timer_us > watermark_us):
            self.time.act_on(known)
            self.columns.has_fired(watermark_us)
        if fired is None:
            return None
        step = self._done(steps, fired, hold_us, due)
        self._timers_size.caused(len(due), step.nbytes)
        return step

    def _fire_columns(self, clocks: StageClocks) -> tuple[WorkerStep, Step]:
        """Fire the windows that are kept as columns, up to the next timer."""
        timer_us, until_us = self._timers.next_event_us(), clocks.watermark_us
        if timer_us is not None:
            until_us = min(until_us, timer_us - 1)
        popped, until_us = self.columns.pop_due(until_us)
        noted = merged([self.journal.note_fired(self._ranges[each]) for each in popped])
        self.time.act_in_part(until_us)
        columns = [each for parts in popped.values() for each in parts]
        return noted, self._stage.fire_all_of(columns, clocks)

    @property
    def _output_watermark_us(self) -> int:
        """A bound on every output watermark that any of the ranges can have reported."""
        hold_us, input_watermark_us = self._holds.next_us(), self.time.least_us
        return input_watermark_us if hold_us is None else min(input_watermark_us, hold_us)

    def _hold_back(self) -> None:
        hold_us = self._holds.next_us()
        for owned in self._ranges.values():
            owned.window_hold_us = hold_us

    def _done(
        self,
        steps: list[WorkerStep],
        step: Step,
        hold_us: int,
        fired: Iterable[TimerId] = (),
    ) -> WorkerStep:
        """What a step of the window machine has done, together with what was done before as a part of it.

        Args:
            steps: what was done before.
            step: that of the window machine.
            hold_us: a bound on the output watermarks before it, in microseconds.
            fired: the timers that have fired.
        """
        effects, outputs = step.effects, step.outputs
        # A timer that fired is gone, unless the step has set it again.
        changed = dict.fromkeys(fired) | effects.timers
        steps.append(self.journal.note(effects.touched, changed))
        for timer, fire_us in changed.items():
            self._timers.set(timer, fire_us)
        for place, held_us in effects.holds.items():
            self._holds.set(place, held_us)
        self._hold_back()
        touched = {range_id: owned for each in steps for range_id, owned in each.ranges.items()}
        # Which of the ranges is the sender does not matter, as long as it is fenced.
        sender = touched[min(touched)]
        steps.append(
            WorkerStep(
                late=[LateRecord.of(self._name, arrival) for arrival in effects.late],
                dead=[StoredDeadLetter.of(each) for each in outputs.dead],
                tables=outputs.tables,
                checkpoints=sender.send(self._router.payloads(outputs.groups), hold_us=hold_us),
            )
        )
        return merged(steps)

    def _locate(self, key: Any) -> OwnedRange:
        range_id = self._map.find(self._stage.codec.encode(key).hash)
        if range_id is None:
            # The sender knows newer bounds: another owner has reshaped the ranges, and they are not this worker's.
            raise WorkerStoppedError(f"{self._name} has no range for key {key!r} here any more")
        return self._ranges[range_id]

    def compact(self) -> WorkerStep | None:
        """Bring some of the cells and timers up to date with the journal; returns None if all of them are."""
        return self.journal.compact()


def _not_kept(where: str, change: tuple[CellId, Any]) -> str:
    return of_key(where, "keep the state", change[0][0])
