"""WindowSteps: what the windows of a grouping do, as steps of a worker."""

from collections.abc import Iterable, Iterator, Sequence

from runners.core.open_windows.open_windows import Arrival
from runners.core.stages.grouping import Step
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import LateRecord, StoredDeadLetter
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.worker_step import WorkerStep, merged


class WindowSteps:
    """Makes steps of a worker of what the windows of one grouping do.

    Args:
        name: of the grouping.
        state: of the ranges that the worker owns.
        router: divides what it sends.
    """

    def __init__(self, name: str, state: OwnedState, router: Router) -> None:
        self._name, self._state, self._router = name, state, router

    def take(self, before: WorkerStep, arrivals: Sequence[Arrival], now_us: int) -> WorkerStep:
        """Have the windows take partials in.

        Args:
            before: what was done before, as a part of the same step.
            arrivals: the partials.
            now_us: the processing time, in microseconds.
        """
        clocks = self._state.time.reached(now_us)
        step = self._state.windows.take(arrivals, clocks)
        return self.done(step, clocks.output_watermark_us, before)

    def relieve(self, range_ids: Iterable[RangeId], now_us: int) -> Iterator[WorkerStep]:
        """Bring everything into cells that windows keep beside them.

        Commit each step before the next is asked for, and nothing in between.

        Args:
            range_ids: of which something is kept so.
            now_us: the processing time, in microseconds.
        """
        windows = self._state.windows
        for range_id in range_ids:
            clocks = self._state.time.reached(now_us)
            yield self.done(windows.relieve(range_id, clocks), clocks.output_watermark_us)

    def done(self, step: Step, hold_us: int, before: WorkerStep | None = None) -> WorkerStep:
        """What a step of the windows has done, together with what was done before as a part of it.

        Args:
            step: that of the windows.
            hold_us: a bound on the output watermarks before it, in microseconds.
            before: what was done before; None: nothing.
        """
        outputs, late = step.outputs, step.effects.late
        steps = [] if before is None else [before]
        steps += self._state.journal.note(step)
        if step.effects.holds:
            self._state.hold_back()
        if late or outputs.dead or outputs.tables or outputs.groups or outputs.lineage:
            touched = {range_id: owned for each in steps for range_id, owned in each.ranges.items()}
            checkpoints, handed_on = self._router.outgoing(
                _sender_of(touched.values()), outputs.groups, hold_us=hold_us
            )
            steps.append(
                WorkerStep(
                    late=[LateRecord.of(self._name, arrival) for arrival in late],
                    dead=[StoredDeadLetter.of(each) for each in outputs.dead],
                    tables=outputs.tables,
                    lineage=outputs.lineage,
                    checkpoints=checkpoints,
                    handed_on=handed_on,
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
