"""GroupingComputation: the key ranges of one grouping, one step at a time.

It has three parts: the ranges with their state (`OwnedState`), what comes for them (`Deliveries`), and what fires
(`Firing`).  The last two run the windows of the grouping over the first (`WindowSteps`).

MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Iterator

from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.user_code.poison import Trial
from runners.millwheel.control.shapes import MergeKeys, SplitKeys
from runners.millwheel.model.guarantees import BOTH, Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import LoadMeter
from runners.millwheel.model.signals import SignalNews
from runners.millwheel.store.port import TakenRange
from runners.millwheel.worker.deliveries import Deliveries
from runners.millwheel.worker.firing import Firing
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.reshaping import merge, split
from runners.millwheel.worker.retraction import StandingRetraction
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX
from runners.millwheel.worker.state.entry_pieces import EntryPieces
from runners.millwheel.worker.state.stored_cells import CellTable
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.millwheel.worker.window_steps import WindowSteps
from runners.millwheel.worker.worker_step import WorkerStep


class GroupingComputation:
    """The key ranges of one grouping that this worker owns.

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
        value_bytes_max: of what is kept of a key and window, and of an entry of a journal.
        shows_keys: whether frequent keys are remembered as text.
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
        shows_keys: bool = False,
    ) -> None:
        self.stage = GroupingStage(plan, stage, tries=tries)
        self.state = OwnedState(
            job,
            stage.name,
            self.stage,
            table,
            EntryPieces(str(stage.root), value_bytes_max, steps),
            can_hold=self.stage.machine.can_hold,
            guarantees=guarantees,
            cache_bytes=cache_bytes,
            steps=steps,
            shows_keys=shows_keys,
        )
        self.window_steps = WindowSteps(stage.name, self.state, router)
        self.deliveries = Deliveries(self.stage, self.state, self.window_steps, guarantees, steps)
        self.firing = Firing(stage.name, self.stage, self.state, self.window_steps, steps)
        #: What it does first on the way to another pipeline; None where its cells stay as they are.
        self.retraction: StandingRetraction | None = None
        if plan.retirement is not None and self.stage.goes_over_cells:
            version = plan.retirement.version
            self.retraction = StandingRetraction(self.state, self.window_steps, steps, version)

    def setup(self) -> None:
        """Set up the user's code on this worker."""
        self.stage.setup()

    def close(self) -> None:
        """Tear the user's code down."""
        self.stage.teardown()

    def try_first(self, trial: Trial | None) -> None:
        """Run user code in the trial process before it is run here; None: at once."""
        self.stage.try_first(trial)

    def take(self, taken: TakenRange) -> OwnedRange:
        """Own a range just acquired; let `firing` advance before it takes in deliveries.

        Raises:
            StoreError: another worker owns the range already.
        """
        if self.retraction is not None:
            self.retraction.take(taken.row)
        return self.state.take(taken)

    def release(self, range_id: RangeId) -> None:
        """Forget a range, and everything that is kept of it in memory."""
        if self.retraction is not None:
            self.retraction.release(range_id)
        self.state.release(range_id)

    def split(self, asked: SplitKeys) -> WorkerStep:
        """Give the upper keys of a range to a new one; acquire both again when that is committed."""
        return split(self.state.ranges, asked, self.state.key_hashes())

    def merge(self, asked: MergeKeys) -> WorkerStep:
        """Give all keys of a range to its neighbour; acquire both again when that is committed."""
        return merge(self.state.ranges, asked)

    def on_signals(self, news: SignalNews, now_us: int) -> Iterator[WorkerStep]:
        """Fire windows by the signals that are due here; see `Firing.on_signals`."""
        return self.firing.on_signals(news, now_us)

    @property
    def is_retracting(self) -> bool:
        """Whether a range that is owned has cells to go over, before which it does nothing else."""
        return self.retraction is not None and not self.retraction.is_over

    @property
    def meter(self) -> LoadMeter:
        """The load of the ranges."""
        return self.state.meter

    @property
    def open_bytes(self) -> int:
        """Bytes that it has sent and that are not acknowledged."""
        return sum(owned.outbox.open_bytes for owned in self.state.ranges.values())
