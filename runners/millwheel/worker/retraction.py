"""StandingRetraction: key ranges of a grouping that retract their standing panes before they do anything else.

In a version of a job on its way to another pipeline (`runners.core.stages.plan.Retirement`) each key range goes over
its cells once, in the order of key hashes, and retracts what they have emitted over retired edges; in the one after it,
it converts them (`GroupingStage.go_over`).  How far it has come is its position, which is part of the production that
retracts: whoever owns the range next goes on from there, so every pane is retracted once, and every cell converted.

**Invariant:** a range takes no delivery and fires no timer before it has come to its end, so no cell changes meanwhile.

ADR 0066 and 0069; MillWheel, section 5.1.
"""

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import RangeRow
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.window_steps import WindowSteps
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.places import RetractionMark, decode_retraction_mark, encode_retraction_mark


class StandingRetraction:
    """Retracts the standing panes of the ranges that a worker owns, a page of cells in each step.

    Args:
        state: of the ranges that the worker owns.
        window_steps: makes steps of a worker of what the windows do.
        steps: how much is retracted in one step.
        version: of the job; a mark of another one is of another retraction.
    """

    def __init__(
        self,
        state: OwnedState,
        window_steps: WindowSteps,
        steps: StepLimits,
        version: int,
    ) -> None:
        self._state, self._window_steps = state, window_steps
        self._steps, self._version = steps, version
        #: The hash of the next cells of each range that has not come to its end.
        self._next: dict[RangeId, int] = {}

    def take(self, row: RangeRow) -> None:
        """Begin a range just acquired, or go on with it."""
        mark = decode_retraction_mark(row.position, self._version)
        self._next.pop(row.range_id, None)
        if row.keys is not None and not mark.is_end:
            self._next[row.range_id] = mark.next_hash

    def release(self, range_id: RangeId) -> None:
        """Forget a range."""
        self._next.pop(range_id, None)

    @property
    def is_over(self) -> bool:
        """Whether all ranges that are owned have come to their end."""
        return not self._next

    def step(self, now_us: int) -> WorkerStep:
        """Go over the next cells of a range; it is not over.

        Args:
            now_us: the processing time, in microseconds.
        """
        range_id, first_hash = next(iter(self._next.items()))
        state, owned = self._state, self._state.ranges[range_id]
        page, next_hash = next(state.stored.pages(owned, first_hash, self._steps.cells))
        state.cells.bring_back(page)
        uncommitted = state.uncommitted(range_id, first_hash, next_hash)
        clocks = state.time.reached(now_us)
        step = state.windows.go_over(dict.fromkeys([*page, *uncommitted]), clocks)
        is_end = next_hash == 0
        if is_end:
            del self._next[range_id]
        else:
            self._next[range_id] = next_hash
        mark = RetractionMark(version=self._version, next_hash=next_hash, is_end=is_end)
        marked = WorkerStep(
            ranges={range_id: owned}, positions={range_id: encode_retraction_mark(mark)}
        )
        done = self._window_steps.done(step, clocks.output_watermark_us, marked)
        state.cells.trim()
        return done
