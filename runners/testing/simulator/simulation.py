"""Simulation: one pipeline under one seed, with all checks of it.

Three oracles: the `Ledger` and the `PaneLog` look at every commit; the direct runner defines the result, on which
nothing that the simulator does may have an influence; and a seed without faults is one of the seeds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from inspect import signature
from random import Random
from typing import Any

import attrs

from dataflow.graph import PipelineGraph
from dataflow.metrics import MetricResults
from dataflow.pipeline import Pipeline
from dataflow.runner import PipelineResult, PipelineState, WindowLike
from dataflow.table import TableSpec
from dataflow.transforms.changelog import Change
from runners.core.ground.lineage import Lineage
from runners.core.panes.late import count_by_transform
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.direct.result import DirectResult
from runners.millwheel.model.guarantees import Guarantees, check_guarantees
from runners.millwheel.model.requests import Request, Verb
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.versions.job_versions import Update, plan_version
from runners.millwheel.versions.update import Fate
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.tracing import SpanMaker
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.observability.drawing.pane_plot import PanePlot
from runners.observability.lineage.explained_rows import RowExplanation
from runners.observability.lineage.stored_lineage import explain_stored_row, plot_stored_key
from runners.observability.why.asking import question
from runners.observability.why.explain import explain
from runners.observability.why.explanation import WhyExplanation
from runners.observability.why.from_store import evidence_from_store
from runners.stored.framing import Format, writing
from runners.stored.letters import stored_dead_mapping, stored_late_mapping
from runners.stored.metrics import metrics_of
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from runners.testing.simulator.dice import tiny_steps
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.fault import NO_FAULTS, Fault
from runners.testing.simulator.panes import Tap, changes_of, check_same, check_same_fold, tap
from runners.testing.simulator.read_so_far import read_so_far
from runners.testing.simulator.sources import Promise, with_sources
from windowing.timestamps import DurationLike
from windowing.window_fn import FrozenWindows

#: A pipeline as a function that builds it, with or without a source of chance to draw from.
BuildLike = Callable[[Pipeline], Any] | Callable[[Pipeline, Random], Any]
#: One seed in so many is a run without faults.
_CALM_SEEDS = 10
_BUNDLE_RECORDS = 3
#: Rounds after which something is asked of a job; one of them by seed.
_MOMENTS = (0, 5, 20, 60, 200)


@attrs.frozen(kw_only=True)
class Scenario:
    """How a job is run, and what is asked of it meanwhile.

    Attributes:
        tries: of a record that makes user code fail.
        guarantees: of computations that do without some.
        steps: how much a worker does in one step.
        update: the pipeline that it goes over to.
        drain: whether it is to end where it is.
        upgrade: the format of stored bytes of the code that goes on with it, after everybody has been killed.
    """

    tries: int | None = None
    guarantees: Mapping[str, Guarantees] = attrs.field(factory=dict)
    steps: int | None = None
    update: BuildLike | None = None
    drain: bool = False
    upgrade: Format | None = None

    @property
    def asks(self) -> bool:
        """Whether anything is asked of it."""
        return self.drain or self.update is not None or self.upgrade is not None


class Simulation:
    """One run.

    Args:
        build: the pipeline.
        seed: decides everything.
        faults: the kinds that can strike, or how often each does.
        tables: whose rows must be those of the direct runner; None for all that have a key.
        whole: a grouping into lists in which, or among its late records, each value must be exactly once.
        workers: of the cluster.
        is_detailed: whether the story of the run is recorded.
        store: makes the store of a pipeline, which may have a part of the job already; new by default.
        scenario: how the job is run, and what is asked of it.
        lineage: how much of the lineage of panes is recorded; None: nothing.
        spans: makes spans of what workers do; None: nothing is traced.
    """

    def __init__(
        self,
        build: BuildLike,
        seed: int,
        *,
        faults: Collection[Fault],
        tables: Collection[str] | None = None,
        whole: str | None = None,
        workers: int = 2,
        is_detailed: bool = False,
        store: Callable[[PipelineGraph], MemoryStore] | None = None,
        scenario: Scenario = Scenario(),
        lineage: Lineage | None = None,
        spans: SpanMaker | None = None,
    ) -> None:
        self._tables, self._whole, self._seed = tables, whole, seed
        self._scenario = scenario
        self.pipeline = Pipeline(_Runner(self))
        self._taps = _built(self.pipeline, build, seed)
        graph = self.pipeline.graph()
        check_guarantees(plan(graph), scenario.guarantees)
        self._promise = Promise.of(graph)
        self.cluster = SimulatedCluster(
            graph,
            seed,
            faults=NO_FAULTS if _is_calm(seed, faults) else faults,
            taps=self._taps,
            workers=workers,
            options=WorkerOptions(
                tries=scenario.tries,
                guarantees=scenario.guarantees,
                steps=STEP_LIMITS if scenario.steps is None else tiny_steps(scenario.steps),
            ),
            is_shipped=True,
            signals_max=5,
            is_detailed=is_detailed,
            lineage=lineage,
            spans=spans,
            store=None if store is None else store(graph),
        )

    def run(self) -> None:
        """Run to the end, and check all of it.

        Raises:
            AssertionError: an invariant was violated, or an assertion of the pipeline's own failed.
            InvariantError: an invariant was violated, as the simulator found.
        """
        with ExitStack() as self._versions:
            self.pipeline.run().wait_until_finish()

    def execute(self, graph: PipelineGraph) -> "SimulatedResult":
        """Run the pipeline, as its runner."""
        direct = self._directly(with_sources(graph, self._promise.watch))
        self.cluster.can_be_late = not self._promise.is_kept
        self.cluster.must_live = not self._scenario.asks
        kept = None
        if self._scenario.asks:
            left = Random(f"moment {self._seed}").choice(_MOMENTS)  # noqa: S311 - a seed that can be used again is the point
            rounds = iter(range(left))
            self.cluster.run_until(lambda: next(rounds, None) is None)
            if self._scenario.update is not None and not self.cluster.is_over:
                graph, kept = self._update(self._scenario.update)
                direct = self._directly(graph)
            if self._scenario.upgrade is not None and not self.cluster.is_over:
                self._versions.enter_context(writing(self._scenario.upgrade))
                self.cluster.upgrade()
            if self._scenario.drain:
                self.cluster.send_request(Request(Verb.DRAIN))
        self.cluster.run()
        if self._scenario.drain:
            job = self.cluster.store.read_job(JOB)
            assert job is not None
            direct = self._directly(read_so_far(graph, job.ranges))
        result = SimulatedResult(self.cluster, graph)
        self._check(graph, result, direct, kept)
        return result

    def _directly(self, graph: PipelineGraph) -> DirectResult:
        runner = DirectRunner(bundle_records=_BUNDLE_RECORDS, tries_per_record=self._scenario.tries)
        return runner.run(graph)

    def _update(self, build: BuildLike) -> tuple[PipelineGraph, Collection[str]]:
        """Go over to another pipeline; it, and the computations that are kept."""
        updated = Pipeline(_Runner(self))
        taps = _built(updated, build, self._seed)
        graph = updated.graph()
        store, spec = self.cluster.store, self.cluster.spec_of(graph)
        planned = plan_version(store, spec, plan(graph), Update())
        if planned is None:
            return self.pipeline.graph(), [*self.cluster.plan.stages]
        lost = [each.name for each in planned.losing]
        planned = self.cluster.update(graph, Update(allow_loss=lost), taps)
        kept = [each.name for each in planned.computations if each.fate is Fate.KEPT]
        self._taps = [each for each in taps if each.label in kept]
        return graph, kept

    def _check(
        self,
        graph: PipelineGraph,
        result: "SimulatedResult",
        direct: DirectResult,
        kept: Collection[str] | None,
    ) -> None:
        """The checks at the end; ``kept``: the computations that an update has kept, if there was one."""
        self.cluster.notifications.check_end()
        expected = {each.label: _recorded(direct, each) for each in self._taps}
        self._check_late(result, kept)
        if self._promise.is_kept and not direct.late_records():
            changes = self.cluster.panes.changes
            check_same_fold(self._taps, changes, expected, "the direct runner")
            if kept is None or self._tables is not None:
                self._check_tables(graph, result, direct)
        if self._scenario.tries is not None:
            self._check_dead(result, direct)
        if self._whole is not None:
            self._check_whole(self._whole, expected, direct, result)

    def _check_dead(self, result: "SimulatedResult", direct: DirectResult) -> None:
        """What fails as it is read is a dead letter, once; what fails behind a grouping depends on its panes."""
        ours, theirs = (
            Counter(
                (repr(letter["element"].value), f"{letter['stage']}: {letter['element'].value!r}")
                for letter in each.dead_letters()
                if self.cluster.plan.stages[letter["stage"]].is_source
            )
            for each in (result, direct)
        )
        check_same("the dead letters", ours, theirs, "the direct runner")

    def _check_late(self, result: "SimulatedResult", kept: Collection[str] | None) -> None:
        """Only what a source gave too late can be late, and only where it comes to a grouping first."""
        execution = self.cluster.plan
        for each in result.late_records():
            name = each["transform"]
            if kept is not None and name not in kept:
                continue  # what was read before the update is older than it
            if not all(each.strong_productions for each in self._scenario.guarantees.values()):
                continue  # what is emitted again, and had counted, can be behind the watermark
            if not self._promise.is_kept and _is_near_a_source(execution, name):
                continue
            raise InvariantError(
                f"I5: {name!r} drops {each['element'] or each['payload']} of key {each['key']} as late, at watermark "
                f"{each['watermark_us']} us, and no watermark was ever ahead of it",
                [each["key"]],
            )

    def _check_tables(
        self, graph: PipelineGraph, result: "SimulatedResult", direct: DirectResult
    ) -> None:
        taps = {each.table for each in self._taps}
        for table in graph.tables():
            chosen = table.key if self._tables is None else table.name in self._tables
            if chosen and table.name not in taps:
                ours, theirs = (
                    Counter(map(_row_text, each.read_table(table.name)))
                    for each in (result, direct)
                )
                check_same(f"the rows of {table.name}", ours, theirs, "the direct runner")

    def _check_whole(
        self,
        whole: str,
        expected: Mapping[str, Sequence[Change[Any]]],
        direct: DirectResult,
        result: "SimulatedResult",
    ) -> None:
        """Each value of the input is in a pane or among the late, once; what the input was, the direct runner knows."""
        (tapped,) = [each for each in self._taps if each.label == whole]
        theirs = _values(tapped, expected[whole], direct.late_records())
        ours = _values(tapped, self.cluster.panes.changes[whole], result.late_records())
        check_same(f"panes and late records of {whole!r}", ours, theirs, "the input")


@attrs.frozen
class _Runner:
    """The simulation as the pipeline's runner, so that `assert_that` works as on any other."""

    simulation: Simulation

    def run(self, graph: PipelineGraph) -> PipelineResult:
        return self.simulation.execute(graph)


class SimulatedResult:
    """The result of a simulated run; see `dataflow.runner.PipelineResult`.

    Args:
        cluster: whose run has ended.
        graph: of the pipeline; has the result tables.
    """

    def __init__(self, cluster: SimulatedCluster, graph: PipelineGraph) -> None:
        self._cluster = cluster
        self._tables: dict[str, TableSpec] = {each.name: each for each in graph.tables()}

    @property
    def state(self) -> PipelineState:
        """Finished."""
        return PipelineState.FINISHED

    def wait_until_finish(self, timeout: DurationLike | None = None) -> PipelineState:
        """Return at once: the run has come to its end."""
        return PipelineState.FINISHED

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table."""
        spec = self._tables[name]
        rows = self._cluster.store.read_table(spec)
        return [dict(zip(spec.columns, each, strict=True)) for each in rows]

    def send_signal(self, name: str) -> None:
        """Refuse a signal, as after any run.  Raises `SignalError`."""
        self._cluster.store.send_signal(JOB, name)

    def drain(self) -> None:
        """Refuse to drain, as after any run.  Raises `RequestError`."""
        self._cluster.store.send_request(JOB, Request(Verb.DRAIN))

    def cancel(self) -> None:
        """Do nothing: the run has ended."""

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records that came after their window was gone."""
        return [stored_late_mapping(each) for each in self._cluster.store.read_late(JOB)]

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records that made user code fail."""
        return [stored_dead_mapping(each) for each in self._cluster.store.read_dead_letters(JOB)]

    def why(
        self,
        *,
        key: Any = None,
        window: WindowLike | None = None,
        transform: str | None = None,
    ) -> WhyExplanation:
        """Why nothing of a key has come out; the run has ended."""
        asked = question(key, window, transform)
        clock, plan = self._cluster.clock, self._cluster.plan
        evidence = evidence_from_store(self._cluster.store, JOB, clock, key=asked.key, plan=plan)
        return explain(evidence, asked)

    def metrics(self) -> MetricResults:
        """What user code has counted, as far as it is committed."""
        return MetricResults(metrics_of(self._cluster.store.read_metrics(JOB)))

    def explain_row(self, table: str, key: str) -> RowExplanation:
        """Explain where a row comes from, as far as the scenario has it recorded."""
        return explain_stored_row(self._cluster.store, JOB, table, key)

    def plot(self, key: Any, *, transform: str | None = None) -> PanePlot:
        """Draw the panes of a key, as far as the simulation records lineage."""
        return plot_stored_key(self._cluster.store, JOB, key, transform=transform)

    def late_counts(self) -> Mapping[str, int]:
        """How many late records each transform dropped."""
        return count_by_transform(
            (each["transform"], each["count"]) for each in self._cluster.store.read_late(JOB)
        )


def _built(pipeline: Pipeline, build: BuildLike, seed: int) -> list[Tap]:
    """Build a pipeline, the input of which is always the same for a seed; the taps of its groupings."""
    takes_chance = len(signature(build).parameters) > 1
    build(pipeline, *([Random(f"input {seed}")] if takes_chance else []))  # noqa: S311 - a seed that can be used again is the point
    return tap(pipeline)


def _is_calm(seed: int, faults: Collection[Fault]) -> bool:
    return seed % _CALM_SEEDS == 0 and not isinstance(faults, Mapping)


def _is_near_a_source(execution: ExecutionPlan, name: str) -> bool:
    """Whether a transform can have records as a source gave them."""
    if execution.stages[name].is_source:
        return True
    strategy = execution.graph.pcollections[execution.stages[name].root.inputs[0]].strategy
    is_first = any(execution.stages[sender].is_source for sender in execution.senders(name))
    return is_first or not isinstance(strategy.window_fn, FrozenWindows)


def _recorded(direct: DirectResult, tapped: Tap) -> list[Change[Any]]:
    return changes_of(tapped, [tuple(each.values()) for each in direct.read_table(tapped.table)])


def _row_text(row: Mapping[str, Any]) -> tuple[str, str]:
    # The simulator cannot know the key of a row; the first column often is it.
    return str(next(iter(row.values()))), repr(tuple(row.values()))


def _values(
    tapped: Tap, changes: Sequence[Change[Any]], late: Iterable[Mapping[str, Any]]
) -> Counter[tuple[str, str]]:
    assert tapped.folding is not None
    found: Counter[tuple[str, str]] = Counter()
    for change in tapped.folding.fold(changes):
        key, values = change.value
        found.update((repr(key), repr((key, value))) for value in values)
    for record in late:
        if record["transform"] == tapped.label:
            element = record["element"]
            values = record["payload"] if element is None else [element.value[1]]
            found.update((record["key"], f"({record['key']}, {value!r})") for value in values)
    return found
