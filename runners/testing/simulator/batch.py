"""A batch run in one thread, over a store in memory, with attempts that die, by seed.

What strikes, where it can:

* an attempt dies between any two of the things that it sends, and before and after its commit;
* the answer to a commit is lost;
* what an attempt has sent is lost when a part of its receivers have had it, and it is run again for the others (an
  executor that is lost in mid-shuffle);
* two attempts at one task go on side by side, and the one whose output is not used ends later (speculation, zombies);
* the driver dies; its attempts may go on while the next run is under way.

`tests/simulation/test_batch.py` defines what the outcome must be.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import attrs

from dataflow.graph import PipelineGraph
from dataflow.pipeline import Pipeline
from dataflow.serialization import dumps_code, loads_code
from runners.batch.batch_end import BatchEnd
from runners.batch.failures import Failure
from runners.batch.layout import Layout, layout
from runners.batch.range_task import Shipment, TaskSettings
from runners.batch.repeating import begin_run, binding_ranges, check_continuable, nondeterministic
from runners.batch.tasks import Attempt, Work
from runners.core.ground.lineage import Lineage
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.errors import StoreError
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Indeterminate, JobRow, Store
from runners.stored.errors import decode_error, is_error
from runners.testing.simulator.simulation import BuildLike
from runners.testing.simulator.unanswered import Unanswered

JOB = "batch"
#: Runs of one job until it must come to its end.
RUNS_MAX = 30
_ATTEMPTS_MAX = 4
_SPLITS, _RANGES = 3, 3
#: Bytes that an attempt may keep in memory.
_SPILL_BYTES = (0, 300, 1 << 30)


class DriverDiedError(Exception):
    """The driver has died: the run is over, but for attempts that do not know."""


class AttemptDiedError(OSError):
    """An attempt has died; another one may have more luck."""


@attrs.frozen
class _ShippedPlan:
    code: Mapping[str, bytes]
    log_level: str = "WARNING"
    log_format: str = "text"

    @classmethod
    def of(cls, execution: ExecutionPlan) -> "_ShippedPlan":
        alone = {name: execution.of_stage(name) for name in execution.stages}
        return cls({name: dumps_code(plan, "the pipeline") for name, plan in alone.items()})

    @property
    def value(self) -> "_ShippedPlan":
        return self

    def load(self, stage: str) -> ExecutionPlan:
        plan: ExecutionPlan = loads_code(self.code[stage])
        return plan


class _Failures(list[Failure]):
    def add(self, failures: list[Failure]) -> None:
        self.extend(failures)


class _FragileStore:
    """A connection of an attempt, which may die before and after a commit, or not learn the outcome of one."""

    def __init__(self, inner: Store, strikes: Callable[[], bool], unanswered: Unanswered) -> None:
        self._inner, self._strikes, self._unanswered = inner, strikes, unanswered

    def commit(self, production: Production) -> CommitOutcome:
        self._unanswered.check(production)
        if self._strikes():
            raise AttemptDiedError("before its commit")
        if self._strikes():
            self._unanswered.note(production)
            if self._strikes():
                self._inner.commit(production)
            return Indeterminate("the reply is lost")
        outcome = self._inner.commit(production)
        if self._strikes():
            raise AttemptDiedError("after its commit")
        return outcome

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)


class SimulatedBatch:
    """A batch job over bounded input, run until it is finished or refused.

    Args:
        build: the pipeline; may take a `random.Random`, the same for the same seed.
        seed: decides what strikes, and when.
        rate: how often it does, where it can.
        tries: how often a record that makes user code fail is tried; None: the first failure ends the run.
        lineage: how much of the lineage of rows is recorded; None: nothing.
    """

    def __init__(
        self,
        build: BuildLike,
        seed: int,
        *,
        rate: float = 0.03,
        tries: int | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        self._lineage = lineage
        self._build, self._seed, self._rate, self._tries = build, seed, rate, tries
        self._random = Random(f"batch {seed}")  # noqa: S311 - must be reproducible
        self.store, self._unanswered = MemoryStore(), Unanswered()
        self._numbers = itertools.count()
        #: Attempts whose output is not awaited any more.
        self._zombies: list[Iterator[Shipment]] = []
        #: How often each kind of fault struck.
        self.struck: Counter[str] = Counter()
        self.runs = 0

    def graph(self) -> PipelineGraph:
        """The pipeline, built anew."""
        pipeline = Pipeline(DirectRunner())
        code: Any = self._build
        if code.__code__.co_argcount > 1:
            code(pipeline, Random(f"input {self._seed}"))  # noqa: S311 - a seed that can be used again is the point
        else:
            code(pipeline)
        return pipeline.graph()

    def run(self) -> None:
        """Run to the end, however often the driver dies.

        Raises:
            DataflowError: a run was refused, or has failed.
        """
        while True:
            self.runs += 1
            if self.runs > RUNS_MAX:
                self._rate = 0.0
            try:
                return self.run_once()
            except DriverDiedError:
                continue

    def run_once(self) -> None:
        """One run, whose driver may die.  Raises as `run`, and `DriverDiedError`."""
        graph = self.graph()
        execution = plan(graph, slices=True, lineage=self._lineage)
        spec = job_spec(
            JOB, "batch", execution, splits_desired=_SPLITS, ranges_per_grouping=_RANGES
        )
        job = begin_run(self.store, self.store.open_job(spec))
        bound = binding_ranges(execution, job.ranges)
        check_continuable(execution, job, bound)
        _Run(self, execution, job, bound).run()
        self.store.finish_job(JOB)

    def rows(self, table: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table."""
        (spec,) = [each for each in self.graph().tables() if each.name == table]
        return [dict(zip(spec.columns, row, strict=True)) for row in self.store.read_table(spec)]

    def strikes(self, what: str) -> bool:
        """Whether a fault strikes, this time."""
        if self._random.random() >= self._rate:
            return False
        self.struck[what] += 1
        return True

    def work(
        self, execution: ExecutionPlan, job: JobRow, bound: frozenset[RangeId], found: Layout
    ) -> Work:
        """Make the settings of the attempts of a run.

        Args:
            execution: the pipeline.
            job: as this run has found it.
            bound: the ranges that must send what they have sent before (`binding_ranges`).
            found: which ranges the tasks of the run have.
        """
        shipped: Any = _ShippedPlan.of(execution)
        failures: Any = _Failures()
        settings = TaskSettings(
            job=JOB,
            layout=found,
            # There is one thread: an attempt that is waited for does nothing meanwhile.
            end=BatchEnd(run=job.version, bound=bound, fenced_wait_s=0.0),
            tries=self._tries,
            nondeterministic=nondeterministic(execution.graph),
            spill_bytes=self._random.choice(_SPILL_BYTES),
        )
        return Work(
            settings=settings,
            dsn="",
            plan=shipped,
            failures=failures,
            attempts_max=_ATTEMPTS_MAX,
            connect=lambda _: _fragile(
                self.store, lambda: self.strikes("commit"), self._unanswered
            ),
        )

    def number(self) -> int:
        """A number that no other attempt has."""
        return next(self._numbers)

    def shuffled(self, several: Sequence[Any]) -> list[Any]:
        """The items, in any order."""
        found = list(several)
        self._random.shuffle(found)
        return found

    def is_heads(self) -> bool:
        """One of two outcomes, by chance."""
        return self._random.random() < 0.5

    def abandon(self, attempt: Iterator[Shipment]) -> None:
        """Keep an attempt as a zombie: its output is not awaited any more, and it may not know."""
        self.struck["zombie"] += 1
        self._zombies.append(attempt)

    def let_zombies_go_on(self) -> None:
        """Let some zombies run, for a while or to their end; then they find that they were given up."""
        for zombie in self.shuffled(self._zombies):
            if self._random.random() < 0.3:
                with suppress(Exception):
                    for _ in zombie:
                        if self._random.random() < 0.1:
                            break
                    else:
                        self._zombies.remove(zombie)


def _fragile(store: Store, strikes: Callable[[], bool], unanswered: Unanswered) -> Any:
    return _FragileStore(store, strikes, unanswered)


class _Run:
    """One driver, as long as it lives, and what attempts have sent to it."""

    def __init__(
        self,
        batch: SimulatedBatch,
        execution: ExecutionPlan,
        job: JobRow,
        bound: frozenset[RangeId],
    ) -> None:
        self._batch, self._job = batch, job
        self._layout = layout(execution, job.ranges)
        self._work = batch.work(execution, job, bound, self._layout)
        #: The shipments of the tasks that are done, as they are on their executors.
        self._sent: dict[RangeId, list[Shipment]] = {}

    def run(self) -> None:
        levels = self._layout.levels
        for level in range(self._layout.level_max + 1):
            names = [name for name in levels if levels[name] == level]
            tasks = [RangeId(name, index) for name in names for index in self._layout.wanted[name]]
            for range_id in self._batch.shuffled(sorted(tasks)):
                self._maybe_die()
                self._lose_something(level)
                self._sent[range_id] = self._done(range_id)
                self._batch.let_zombies_go_on()
        for _, content in [each for sent in self._sent.values() for each in sent]:
            if is_error(content):
                raise decode_error(content)

    def _maybe_die(self) -> None:
        if self._batch.strikes("driver"):
            raise DriverDiedError

    def _lose_something(self, level: int) -> None:
        """Lose the input of the next task with an executor, so that it is sent again for it and those after it."""
        levels = self._layout.levels
        while self._batch.strikes("lost output"):
            there = sorted(each for each in self._sent if levels[each.computation] < level)
            for range_id in self._batch.shuffled(there)[:2]:
                self._sent[range_id] = self._done(range_id)

    def _done(self, range_id: RangeId) -> list[Shipment]:
        """The shipments of a task, after as many attempts as it takes."""
        for _ in range(_ATTEMPTS_MAX):
            attempt = self._attempt(range_id)
            if self._batch.strikes("speculation"):
                self._batch.abandon(self._attempt(range_id))
            try:
                return list(self._surviving(attempt))
            except AttemptDiedError:
                if self._batch.is_heads():
                    self._batch.abandon(attempt)
            except StoreError:
                # Another attempt has the range, or its answer was lost.
                continue
        raise DriverDiedError

    def _surviving(self, attempt: Iterator[Shipment]) -> Iterator[Shipment]:
        for each in attempt:
            yield each
            if self._batch.strikes("attempt"):
                raise AttemptDiedError("while it was sending")

    def _attempt(self, range_id: RangeId) -> Iterator[Shipment]:
        # Always as the first attempt of a task: `_done` tries again what may pass.
        attempt = Attempt(self._work, range_id, (0, self._batch.number()))
        split = self._job.ranges[range_id].split
        if split is not None:
            return attempt.read_split(split)
        target = self._layout.offsets[range_id.computation] + range_id.index
        given = [each for sent in self._sent.values() for each in sent if each[0] == target]
        return attempt.group(iter(self._batch.shuffled(given)))
