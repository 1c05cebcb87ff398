"""GroupingStage: a grouping and all transforms up to the next one, as every engine runs it.

Joins the state machine (`GroupAlsoByWindow`; `StatefulDoFnMachine` for a stateful DoFn, `SideInputsMachine` for side
inputs) and the fused transforms after it into one step, which takes partials, due timers or a signal, and returns
effects and stage outputs.  It keeps no state: `runners.core.open_windows` does, and is what engines drive.

The five parts of the paper's GroupByKeyAndWindow, in the order in which a record meets them:

1. *DropTimestamps*: `Lifter.lift`, at the sender; from there on the window stands for the event time (unless
   a timestamp combiner needs the earliest or the latest one, which then is part of the accumulator).
2. *GroupByKey*: the engine's own: a dict, the shuffle of Spark, the key ranges of `runners.millwheel`.
3. *MergeWindows*: `Merger`, or `Regrouper` where a merge may have to be undone; `MergingDoFnMachine` merges state.
4. *GroupAlsoByWindow*: the accumulators of `Accumulation`, and when windows fire (`WindowLifecycle`, `Panes`).
5. *ExpandToElements*: `Effects.bundle`, with the new timestamps; windows do not change behind it.

Dataflow Model, section 2.2.2.
"""

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import attrs

from dataflow.combine_fn import PassingCombineFn
from dataflow.errors import TransformError, WindowError
from dataflow.graph import Group, SideInputs, StatefulParDo
from dataflow.metric_updates import RunningAs
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import Cell, CellId, Effects, TimerId
from runners.core.ground.conversion import Conversion
from runners.core.ground.key_codec import KeyCodec
from runners.core.ground.lineage import Expiry, FiringCause, LineageEntry
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.panes.signal_delivery import on_signal, trigger_of
from runners.core.partials.folding import Accumulation, combiners_of, is_remembered
from runners.core.partials.partial import Partial
from runners.core.side_inputs.side_inputs_machine import SideInputsMachine
from runners.core.stages.entries import Noted
from runners.core.stages.percentile_watermark import percentile_of
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.retirement import divided
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor, StageOutputs
from runners.core.stages.tracing import Firings, Tracing, all_expired
from runners.core.stateful.cell_pages import (
    LetGo,
    NeedPages,
    PagesUnreadError,
    ReadingTrial,
    raising_unread,
)
from runners.core.stateful.merging_do_fn import MergingDoFnMachine
from runners.core.stateful.stateful_do_fn import StatefulDoFnMachine
from runners.core.user_code.poison import Trial
from triggers.awaited import END_REACHED
from windowing.errors import what_was_raised

T = TypeVar("T")
#: Why windows fire that all fire once; how many records are in them is not counted.
_AT_END = FiringCause(END_REACHED, 0)


@attrs.frozen
class Step:
    """The effects of one step on the cells, and its outputs for the stages downstream.

    Attributes:
        fired: the timers that have fired; one that is not set again in ``effects`` is gone.
        reached_us: the event time up to which everything that was due has fired, in microseconds; None: more may be
            due at the same instant, and at any after it.
        noted: changes of what is kept beside cells.
        fired_rows: how many partials have fired that were rows, without a timer.
    """

    effects: Effects = attrs.field(factory=Effects)
    outputs: StageOutputs = attrs.field(factory=StageOutputs)
    fired: Sequence[TimerId] = ()
    reached_us: int | None = None
    noted: Sequence[Noted] = ()
    fired_rows: int = 0


class GroupingStage:
    """One grouping stage, ready to run; the caller owns the cells.

    Args:
        plan: of the whole pipeline.
        stage: the stage of the plan to run.
        is_time_sorted: whether a stateful DoFn gets the elements of a key in the order of their event times, which is
            possible where the watermark moves once, when all input is there (Dataflow Model, section 2.4).
        tries: of a record on which user code after the grouping fails; see `StageExecutor`.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        stage: Stage,
        *,
        is_time_sorted: bool = False,
        tries: int | None = None,
    ) -> None:
        self.graph, self.root = plan.graph, stage.root
        #: Whether its partials are those of slices of its windows.
        self.is_of_slices = stage.name in plan.slices.groupings
        self.machine = _machine(plan, stage, is_time_sorted=is_time_sorted, tries=tries)
        #: Fold columns of inputs; partials that were sent as columns are read with them.
        self.combiners = combiners_of(plan.graph, stage.root)
        self._trigger = trigger_of(plan.graph, stage.root)
        self._percentile = percentile_of(plan.graph, stage.root)
        self.executor = StageExecutor(plan, stage, tries=tries)
        #: Runs what is retired of the stage; None where nothing is.
        self._retired: StageExecutor | None = None
        #: Leads state over whose input will not be retracted any more; None where nothing is to be led.
        self._plain_input: Conversion | None = None
        self._is_converting = False
        if plan.retirement is not None:
            edges, ends = plan.retirement.edges, plan.retirement.ends
            parts = divided(plan.graph, stage, edges, ends)
            both = attrs.evolve(plan, graph=parts.graph)
            self.executor = StageExecutor(both, parts.going_on, tries=tries)
            if parts.retired is not None and _keeps_what_it_emits(self.machine):
                self._retired = StageExecutor(both, parts.retired, tries=tries)
            if stage.name in plan.retirement.converted:
                self._plain_input = self.machine.plain_input
            self._is_converting = plan.retirement.is_converting
        self._trial: Trial | None = None
        self._tries = tries
        self._where = str(stage.root)
        #: Records lineage.
        self._tracing: Tracing | None = None
        if plan.lineage is not None:
            self._tracing = Tracing(plan.lineage)
            self.machine.trace()
        self.codec = KeyCodec(self._where)

    def try_first(self, trial: Trial | None) -> None:
        """Run user code on trial before it is run; None: run it at once."""
        self._trial = trial
        for each in self._executors():
            each.trial = None if trial is None else ReadingTrial(trial)

    def keep_in_pages(
        self, page_bytes: int, need_pages: NeedPages, let_go: LetGo | None = None
    ) -> None:
        """Have state that is large, and is not a grouping's, kept in pages, which are among the cells.

        Args:
            page_bytes: how large a page should be.
            need_pages: brings pages that are not among the cells there.
            let_go: takes pages that have changed before a step has ended, where that is no commit; None: it is one.
        """
        if isinstance(self.machine, SideInputsMachine):
            self.machine.keep_in_pages(page_bytes, need_pages, let_go)
        elif isinstance(self.machine, StatefulDoFnMachine):
            self.machine.keep_in_pages(page_bytes, need_pages)

    def keep_in_memory(self) -> None:
        """Have nothing kept in pages from here on, whose cells are new."""
        assert isinstance(self.machine, SideInputsMachine)
        self.machine.keep_in_memory()

    @property
    def grows_in_pages(self) -> bool:
        """Whether what is kept of its input can be in pages as soon as it comes.

        A stateful DoFn may keep elements until they are in order, and these have no pages.
        """
        return isinstance(self.machine, SideInputsMachine)

    @property
    def passes_on(self) -> bool:
        """Whether what comes goes on at once, and need never be in memory as a whole."""
        operation = self.root.operation
        return isinstance(operation, Group) and isinstance(operation.combine_fn, PassingCombineFn)

    def setup(self) -> None:
        """Call the setup of the user's code on this worker."""
        if isinstance(self.machine, StatefulDoFnMachine):
            self.machine.setup()
        for each in self._executors():
            each.setup()

    def teardown(self) -> None:
        """Call the teardown of the user's code, in the opposite order."""
        for each in self._executors():
            each.teardown()
        if isinstance(self.machine, StatefulDoFnMachine):
            self.machine.teardown()

    def add(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        clocks: StageClocks,
    ) -> Step:
        """Add partials, whose keys were encoded by their sender, and fire the windows that are due.

        Args:
            cells: of the grouping; changed in place.
            partials: what has arrived.
            clocks: the clocks.
        """
        with self._naming_failures():
            act: Callable[[], Effects] = partial(self.machine.add, cells, partials, clocks)
            effects = self.tried(self._firing_changed(act, cells, clocks))
        return self._followed(effects, clocks)

    def emit_next(self, bundles: Iterator[Bundle], clocks: StageClocks) -> Step | None:
        """Emit the next bundle of panes that were made without the state machine; None: there is none.

        Args:
            bundles: the panes; user code that makes them is called here.
            clocks: the clocks.
        """
        with self._naming_failures():
            bundle = self.tried(lambda: next(bundles, None))
        if bundle is None:
            return None
        causes: dict[int, FiringCause] = {}
        expired: list[Expiry] = []
        if self._tracing is not None:
            causes, expired = dict.fromkeys(range(len(bundle)), _AT_END), all_expired(bundle)
        effects = Effects(causes=causes, expired=expired)
        return Step(outputs=self._processed(bundle, effects, clocks))

    def fire_timers(
        self,
        cells: MutableMapping[CellId, Cell],
        due: Iterable[TimerId],
        clocks: StageClocks,
    ) -> Step:
        """Fire due timers.

        Args:
            cells: of the grouping; changed in place.
            due: the timers, in the order of time.
            clocks: the clocks.
        """
        with self._naming_failures():
            act: Callable[[], Effects] = partial(self.machine.fire_timers, cells, due, clocks)
            effects = self.tried(act)
        return self._followed(effects, clocks)

    @property
    def percentile(self) -> float | None:
        """The percentile of the watermark that its triggers follow; None where they follow the watermark itself."""
        return self._percentile

    @property
    def signals(self) -> frozenset[str]:
        """The names of the signals that its windows listen to."""
        return frozenset() if self._trigger is None else self._trigger.signals

    def signal(
        self,
        cells: MutableMapping[CellId, Cell],
        listening: Iterable[CellId],
        name: str,
        clocks: StageClocks,
    ) -> Step:
        """Notify every window of some cells of a signal.

        Args:
            cells: of the grouping; changed in place.
            listening: the cells that receive the signal.
            name: of the signal, one of `signals`.
            clocks: the clocks.
        """
        assert self._trigger is not None
        assert isinstance(self.machine, GroupAlsoByWindow)
        fire_if_due = self.machine.lifecycle.fire_if_due
        with self._naming_failures(), RunningAs(self.root.label):
            effects = on_signal(self._trigger, fire_if_due, cells, listening, name, clocks)
        return self._followed(effects, clocks)

    @property
    def goes_over_cells(self) -> bool:
        """Whether all of its cells have to be gone over once, on the way to another pipeline."""
        if self._is_converting:
            return self._plain_input is not None
        return self._retired is not None or self._plain_input is not None

    def go_over(
        self,
        cells: MutableMapping[CellId, Cell],
        cell_ids: Collection[CellId],
        clocks: StageClocks,
    ) -> Step:
        """Do with some cells what is to be done with each once, on the way to another pipeline.

        Their standing panes are retracted over the retired edges, and windows whose input will not be retracted any
        more correct what they have emitted; or, when all that is done, the state of these windows is converted.

        Args:
            cells: of the grouping; changed in place.
            cell_ids: the cells.
            clocks: the clocks.
        """
        plain_input = self._plain_input
        if self._is_converting:
            assert plain_input is not None
            with self._naming_failures(), RunningAs(self.root.label):
                return Step(plain_input.convert(cells, cell_ids, clocks))
        step = Step()
        if self._retired is not None:
            step = self._retract_standing(self._retired, cells, cell_ids, clocks)
        if plain_input is not None:
            fired = self._firing_changed(
                lambda: Effects(touched=dict.fromkeys(cell_ids)), cells, clocks
            )
            with self._naming_failures():
                effects = self.tried(fired)
            changed = self._followed(effects, clocks)
            step.outputs.add(changed.outputs)
            step.outputs.dead.extend(changed.outputs.dead)
            step = Step(effects, step.outputs)
        return step

    def _firing_changed(
        self,
        act: Callable[[], Effects],
        cells: MutableMapping[CellId, Cell],
        clocks: StageClocks,
    ) -> Callable[[], Effects]:
        """An act, after which windows whose input will not be retracted any more have corrected what they emitted."""
        plain_input = self._plain_input
        if plain_input is None:
            return act

        def acting() -> Effects:
            effects = act()
            plain_input.fire_changed(cells, [*effects.touched], effects, clocks)
            return effects

        return acting

    def _retract_standing(
        self,
        retired: StageExecutor,
        cells: MutableMapping[CellId, Cell],
        retracted: Iterable[CellId],
        clocks: StageClocks,
    ) -> Step:
        with self._naming_failures(), RunningAs(self.root.label):
            effects = self.machine.retract_standing(cells, retracted, clocks)
        outputs = raising_unread(lambda: retired.process(effects.bundle(), clocks))
        return Step(outputs=outputs)

    def _executors(self) -> list[StageExecutor]:
        return [each for each in (self.executor, self._retired) if each is not None]

    def tried(self, act: Callable[[], T]) -> T:
        """Run code that merges or fires, on trial first: all of it, and if the trial fails, each element by itself.

        Args:
            act: the code; has effects on what is in memory here only.
        """
        is_stateful = isinstance(self.machine, StatefulDoFnMachine)
        if self._trial is None or not (is_stateful or self._tries is None):
            return self._run(act)
        try:
            self._trial(partial(raising_unread, act))
        except TransformError:
            if self._tries is None or not isinstance(self.machine, StatefulDoFnMachine):
                raise
            self.machine.invoker.trial = self._trial
        try:
            return self._run(act)
        finally:
            if isinstance(self.machine, StatefulDoFnMachine):
                self.machine.invoker.trial = None

    def _run(self, act: Callable[[], T]) -> T:
        with RunningAs(self.root.label):
            return act()

    @contextmanager
    def _naming_failures(self) -> Iterator[None]:
        try:
            yield
        except PagesUnreadError as unread:
            raise unread.error from unread
        except TransformError:
            raise
        except WindowError as error:
            raise error.located(self._where) from error
        except Exception as error:
            raise TransformError(
                f"{self._where} raised {what_was_raised(error)}",
                detail="while combining what had come so far",
                hint="correct the CombineFn",
            ) from error

    def _followed(self, effects: Effects, clocks: StageClocks) -> Step:
        # User code may look views up.
        outputs = raising_unread(lambda: self._processed(effects.bundle(), effects, clocks))
        outputs.dead[:0] = effects.dead
        if self._tracing is not None and isinstance(self.machine, GroupAlsoByWindow):
            # A pane of the same step covers the window of what came too late, and does not have it.
            late = self._tracing.late(self.root, self.codec, effects.late, clocks)
            outputs.lineage[:0] = late
        return Step(effects, outputs)

    def _processed(
        self,
        bundle: Bundle,
        effects: Effects,
        clocks: StageClocks,
    ) -> StageOutputs:
        """What the transforms behind the grouping make of what it has emitted."""
        bundle, entries = self._traced(bundle, effects, clocks)
        outputs = self.executor.process(bundle, clocks)
        outputs.lineage[:0] = entries
        return outputs

    def _traced(
        self, bundle: Bundle, effects: Effects, clocks: StageClocks
    ) -> tuple[Bundle, Sequence[LineageEntry]]:
        """What was emitted, with its origins, and the entries about it; side inputs have given theirs themselves."""
        if self._tracing is None or isinstance(self.machine, SideInputsMachine):
            return bundle, ()
        if isinstance(self.machine, StatefulDoFnMachine):
            return self._tracing.emitted(self.root, self.codec, bundle, effects.calls, clocks)
        mode = self.graph.pcollections[self.root.inputs[0]].strategy.accumulation_mode
        firings = Firings(effects.causes, effects.expired, mode)
        return self._tracing.fired(self.root, self.codec, bundle, firings, clocks)


def _machine(
    plan: ExecutionPlan, stage: Stage, *, is_time_sorted: bool, tries: int | None
) -> GroupAlsoByWindow | StatefulDoFnMachine | SideInputsMachine:
    if isinstance(stage.root.operation, SideInputs):
        return SideInputsMachine(plan.graph, stage.root, is_replay=is_time_sorted)
    if not isinstance(stage.root.operation, StatefulParDo):
        return GroupAlsoByWindow(Accumulation.of(plan.graph, stage.root))
    pcollection = plan.graph.pcollections[stage.root.inputs[0]]
    made_by = MergingDoFnMachine if pcollection.strategy.is_merging else StatefulDoFnMachine
    return made_by(
        stage.root,
        pcollection.strategy,
        is_time_sorted=is_time_sorted,
        is_retracted=pcollection.retracted_by is not None,
        is_remembered=is_remembered(plan.graph, stage.root),
        tries=tries,
    )


def _keeps_what_it_emits(
    machine: GroupAlsoByWindow | StatefulDoFnMachine | SideInputsMachine,
) -> bool:
    return not isinstance(machine, StatefulDoFnMachine) or machine.keeps_outputs
