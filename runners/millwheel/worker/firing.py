"""Firing: which windows of a grouping fire, by its clocks and by signals, a bounded number in each step."""

from collections.abc import Iterator

from runners.core.stages.grouping import GroupingStage
from runners.millwheel.model.accounts import OVERDUE_MAX, OverdueTimers
from runners.millwheel.model.signals import Signal, SignalMark, SignalNews
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.sizes import StepSize
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.window_steps import WindowSteps
from runners.millwheel.worker.worker_step import WorkerStep
from triggers.clocks import Clocks


class Firing:
    """Fires the windows of one grouping.

    Args:
        name: of the grouping.
        stage: the grouping.
        state: of the ranges that the worker owns.
        window_steps: makes steps of a worker of what the windows do.
        steps: how much fires in one step.
    """

    def __init__(
        self,
        name: str,
        stage: GroupingStage,
        state: OwnedState,
        window_steps: WindowSteps,
        steps: StepLimits,
    ) -> None:
        self._name, self._stage, self._state = name, stage, state
        self._window_steps = window_steps
        self._steps = steps
        #: How many timers, and rows without a timer, fire in one step.
        self._timers_size = StepSize(steps)

    def has_due(self, clocks: Clocks) -> bool:
        """Whether `advance` has something to do."""
        next_us = self._state.windows.next_processing_us
        is_due = next_us is not None and next_us <= clocks.now_us
        return is_due or self._state.time.is_before(clocks)

    @property
    def next_event_us(self) -> int | None:
        """The event time at which something is due first, in microseconds; None: at none."""
        return self._state.windows.next_event_us

    def overdue(self, clocks: Clocks) -> OverdueTimers | None:
        """Timers that are due and have not fired; None: there are none.

        Args:
            clocks: those of the master.
        """
        windows, known = self._state.windows, self._state.time.known(clocks)
        count = windows.count_overdue(known, OVERDUE_MAX)
        if not count:
            return None
        next_us = windows.next_processing_us
        is_due = next_us is not None and next_us <= known.now_us
        return OverdueTimers(count=count, processing_us=next_us if is_due else None)

    def advance(self, clocks: Clocks) -> WorkerStep | None:
        """Fire what is due, a bounded number of timers at a time; returns None when all have fired."""
        state = self._state
        known = state.time.known(clocks)
        step = state.windows.advance(
            known,
            timers_max=self._timers_size.allowed(self._steps.timers),
            panes_max=self._steps.panes,
        )
        if step is None or step.reached_us == known.watermark_us:
            state.time.act_on(known)
        else:
            state.time.act_in_part(known, step.reached_us)
        if step is None:
            return None
        done = self._window_steps.done(step, known.output_watermark_us)
        self._timers_size.caused(len(step.fired) + step.fired_rows, done.nbytes)
        return done

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
                clocks = state.time.reached(now_us)
                step = state.windows.signal(signal.name, clocks, receivers)
                is_partial = next_hash > 0
                mark = SignalMark(signal.number - is_partial, next_hash)
                touching = WorkerStep.touching(owned)
                done = self._window_steps.done(step, clocks.output_watermark_us, touching)
                owned.act_on_signals(mark)
                if step.effects.touched:
                    yield done
                else:
                    state.cells.trim()
