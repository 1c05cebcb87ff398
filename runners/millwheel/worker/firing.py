"""Firing: which windows of a grouping fire, by its clocks and by signals, a bounded number in each step."""

from collections.abc import Iterator

import attrs

from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageOutputs
from runners.millwheel.model.signals import Signal, SignalMark, SignalNews
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.sizes import StepSize
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.window_steps import WindowSteps
from runners.millwheel.worker.worker_step import WorkerStep, merged
from triggers.clocks import Clocks


class Firing:
    """Fires the windows of one grouping.

    Args:
        name: of the grouping.
        stage: the grouping.
        state: of the ranges that the worker owns.
        windows: those of the grouping.
        steps: how much fires in one step.
    """

    def __init__(
        self,
        name: str,
        stage: GroupingStage,
        state: OwnedState,
        windows: WindowSteps,
        steps: StepLimits,
    ) -> None:
        self._name, self._stage, self._state, self._windows = name, stage, state, windows
        self._steps = steps
        #: How many timers fire in one step.
        self._timers_size = StepSize(steps)

    def has_due(self, clocks: Clocks) -> bool:
        """Whether `advance` has something to do."""
        next_us = self._state.timers.next_processing_us()
        is_due = next_us is not None and next_us <= clocks.now_us
        return is_due or self._state.time.is_before(clocks)

    def advance(self, clocks: Clocks) -> WorkerStep | None:
        """Fire what is due, a bounded number of timers at a time; returns None when all have fired."""
        state, columns = self._state, self._state.columns
        if state.time.is_behind and columns.is_conflicting:
            released = columns.release(columns.singles)
            return self._windows.add([], released, [], clocks.now_us)
        hold_us, before = state.output_watermark_us, list[WorkerStep]()
        known = state.time.known(clocks, output_watermark_us=hold_us)
        watermark_us = known.watermark_us
        timers_max = self._timers_size.allowed(self._steps.timers)
        # Windows that are kept as columns fire in turn with the timers.
        until_us = min(watermark_us, columns.next_end_us)
        due = state.timers.pop_due(attrs.evolve(known, watermark_us=until_us), timers_max)
        state.cells.need(cell_id for cell_id, _, _ in due)
        fired = self._stage.fire_timers(state.cells, due, known) if due else None
        if fired is None and columns.next_end_us <= watermark_us:
            noted, fired = self._fire_columns(known)
            before.append(noted)
        timer_us = state.timers.next_event_us()
        is_over = columns.next_end_us > watermark_us and len(due) < timers_max
        if is_over and (timer_us is None or timer_us > watermark_us):
            state.time.act_on(known)
            columns.has_fired(watermark_us)
        if fired is None:
            return None
        step = self._windows.done(before, fired, hold_us, due)
        self._timers_size.caused(len(due), step.nbytes)
        return step

    def _fire_columns(self, clocks: StageClocks) -> tuple[WorkerStep, Step]:
        """Fire the windows that are kept as columns, up to the next timer."""
        state = self._state
        timer_us, until_us = state.timers.next_event_us(), clocks.watermark_us
        if timer_us is not None:
            until_us = min(until_us, timer_us - 1)
        popped, until_us = state.columns.pop_due(until_us)
        noted = merged([state.journal.note_fired(state.ranges[each]) for each in popped])
        state.time.act_in_part(until_us)
        columns = [each for parts in popped.values() for each in parts]
        bundles, outputs = state.columns.bundles(columns), StageOutputs()
        while (step := self._stage.emit_next(bundles, clocks)) is not None:
            outputs.add(step.outputs)
            outputs.dead += step.outputs.dead
        return noted, Step(outputs=outputs)

    def on_signals(self, news: SignalNews, now_us: int) -> Iterator[WorkerStep]:
        """Fire windows by the signals that are due here, one signal after the other, a bounded number of cells at once.

        Commit each step before the next is asked for, and nothing in between.

        Args:
            news: from the master; a signal is due if the news has its number, or a higher one, for this grouping.
            now_us: the processing time, in microseconds since 1970.
        """
        last = news.inputs.get(self._name, 0)
        for signal in news.signals:
            if signal.number <= last and signal.name in self._stage.signals:
                yield from self._signal(signal, now_us)
        for owned in self._state.ranges.values():
            owned.act_on_signals(SignalMark(last))
            # Also where no window has changed: after a crash, one that opens later must not fire by this signal.
            if self._stage.signals and owned.signal_mark > owned.signal_mark_committed:
                yield WorkerStep.touching(owned)

    def _signal(self, signal: Signal, now_us: int) -> Iterator[WorkerStep]:
        state = self._state
        behind = [each for each in state.ranges.values() if each.signal_mark.number < signal.number]
        for owned in behind:
            number, processed_hash = owned.signal_mark
            first_hash = processed_hash if number == signal.number - 1 else 0
            for page, next_hash in state.stored.pages(owned, first_hash, self._steps.cells):
                state.cells.bring_back(page)
                # The signal goes to cells that the store does not have yet too.
                uncommitted = state.uncommitted(owned.range_id, first_hash, next_hash)
                receivers = dict.fromkeys([*page, *uncommitted])
                first_hash = next_hash
                hold_us = state.output_watermark_us
                clocks = state.time.reached(output_watermark_us=hold_us, now_us=now_us)
                step = self._stage.signal(state.cells, receivers, signal.name, clocks)
                is_partial = next_hash > 0
                mark = SignalMark(signal.number - is_partial, next_hash)
                done = self._windows.done([WorkerStep.touching(owned)], step, hold_us)
                owned.act_on_signals(mark)
                if step.effects.touched:
                    yield done
                else:
                    state.cells.trim()
