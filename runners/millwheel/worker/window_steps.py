"""WindowSteps: what the windows of a grouping do with partials and timers, as steps of a worker."""

from collections.abc import Iterable, Iterator, Sequence

from runners.core.ground.cells import TimerId
from runners.core.partials.partial import Partial
from runners.core.stages.grouping import GroupingStage, Step
from runners.millwheel.model.production import LateRecord, StoredDeadLetter
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.state.column_state import Release
from runners.millwheel.worker.worker_step import WorkerStep, merged
from runners.stored.journal import encode_released


class WindowSteps:
    """Runs the windows of one grouping over the state of its ranges.

    Args:
        name: of the grouping.
        stage: the grouping.
        state: of the ranges that the worker owns.
        router: divides what it sends.
    """

    def __init__(self, name: str, stage: GroupingStage, state: OwnedState, router: Router) -> None:
        self._name, self._stage, self._state, self._router = name, stage, state, router

    def add(
        self,
        before: Sequence[WorkerStep],
        released: Iterable[Release],
        partials: list[Partial],
        now_us: int,
    ) -> WorkerStep:
        """Add partials to their windows, together with what was kept as columns for these.

        Args:
            before: what was done before, as a part of the same step.
            released: the columns.
            partials: those that came otherwise.
            now_us: the processing time, in microseconds.
        """
        state, steps = self._state, [*before]
        for range_id, entry, parts in released:
            blob = encode_released(entry)
            steps.append(state.journal.note_entry(state.ranges[range_id], 0, blob))
            for part in parts:
                partials.extend(part)
        hold_us, is_merging = state.output_watermark_us, self._stage.machine.is_merging
        state.cells.need((key, None if is_merging else window) for key, window, _, _ in partials)
        clocks = state.time.reached(output_watermark_us=hold_us, now_us=now_us)
        return self.done(steps, self._stage.add(state.cells, partials, clocks), hold_us)

    def release_columns(self, now_us: int) -> Iterator[WorkerStep]:
        """Turn all that is kept as columns into cells.

        Commit each step before the next is asked for, and nothing in between.
        """
        columns = self._state.columns
        for range_id in columns.range_ids:
            yield self.add([], columns.release(None, range_id), [], now_us)

    def done(
        self,
        before: Sequence[WorkerStep],
        step: Step,
        hold_us: int,
        fired: Iterable[TimerId] = (),
    ) -> WorkerStep:
        """What a step of the windows has done, together with what was done before as a part of it.

        Args:
            before: what was done before.
            step: that of the windows.
            hold_us: a bound on the output watermarks before it, in microseconds.
            fired: the timers that have fired.
        """
        outputs = step.outputs
        steps = [*before, self._state.apply(step.effects, fired)]
        touched = {range_id: owned for each in steps for range_id, owned in each.ranges.items()}
        sender = _sender_of(touched.values())
        steps.append(
            WorkerStep(
                late=[LateRecord.of(self._name, arrival) for arrival in step.effects.late],
                dead=[StoredDeadLetter.of(each) for each in outputs.dead],
                tables=outputs.tables,
                checkpoints=sender.send(self._router.payloads(outputs.groups), hold_us=hold_us),
            )
        )
        return merged(steps)


def _sender_of(touched: Iterable[OwnedRange]) -> OwnedRange:
    """The range that sends what several of them have emitted: the one that has reported least.

    What another one has emitted may be behind the output watermark that this one has reported, as where it has come
    here later, and then nothing would hold back whoever is to receive it (ADR 0050).
    """
    return min(
        touched, key=lambda owned: (owned.output_watermark_us, owned.signal_mark, owned.range_id)
    )
