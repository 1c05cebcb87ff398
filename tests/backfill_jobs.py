"""Backfills in one process: the tasks of the batch engine, level by level, over any store; with crashes, by a seed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import attrs

from dataflow.graph import PipelineGraph
from runners.batch.backfill.settings import backfill_settings
from runners.batch.range_task import RangeTask, TaskSettings
from runners.core.stages.plan import ExecutionPlan, plan
from runners.errors import BackfillError, StoreError
from runners.millwheel.control.backfill_progress import (
    BackfillState,
    backfill_state,
    begun,
    go_live,
)
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Indeterminate, Store
from runners.stored.places import SplitMark
from runners.testing.simulator.unanswered import Unanswered


class CrashError(Exception):
    """Raised where the whole backfill dies."""


class FragileStore:
    """A store whose user may die before and after every commit, or not learn what became of it."""

    def __init__(
        self, inner: Store, random: Random, crash_rate: float, unanswered: Unanswered
    ) -> None:
        self._inner, self._random, self._crash_rate = inner, random, crash_rate
        self._unanswered = unanswered

    def commit(self, production: Production) -> CommitOutcome:
        self._unanswered.check(production)
        self._maybe_die()
        if self._random.random() < self._crash_rate:
            self._unanswered.note(production)
            if self._random.random() < 0.5:
                self._inner.commit(production)
            return Indeterminate("the reply is lost")
        outcome = self._inner.commit(production)
        self._maybe_die()
        return outcome

    def _maybe_die(self) -> None:
        if self._random.random() < self._crash_rate:
            raise CrashError

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)


class LocalBackfill:
    """A backfill of the job that the simulator runs.

    Args:
        graph: the pipeline.
        store: where the job is, or is to be.
        seed: decides in which order things arrive, what dies, and what is run twice.
        until_us: the point.
        crash_rate: of everything that can.
        spill_bytes: what tasks may keep in memory, of which each attempt draws.
    """

    def __init__(
        self,
        graph: PipelineGraph,
        store: MemoryStore,
        seed: object,
        *,
        until_us: int | None,
        crash_rate: float = 0.0,
        tries: int | None = None,
        spill_bytes: Sequence[int] = (0, 300, 1 << 30),
    ) -> None:
        self._graph, self._store, self._until_us, self._tries = graph, store, until_us, tries
        self._random = Random(f"history {seed}")
        self._crash_rate, self._spill_bytes = crash_rate, spill_bytes
        self._batch_records = self._random.choice([1, 2, 5, 10_000])
        self._in_pages_bytes = self._random.choice([0, 1 << 30])
        self._unanswered = Unanswered()
        self.crashes = 0

    def run(self, crashes_max: int | None = None) -> MemoryStore:
        """Run until the backfill has come to its end, however often it dies; or until it has died so often."""
        while crashes_max is None or self.crashes < crashes_max:
            try:
                self.run_once()
            except (CrashError, StoreError, BackfillError):
                if not self._crash_rate:
                    raise
                self.crashes += 1
            else:
                break
        return self._store

    def run_once(self) -> None:
        """Run once; the run may die."""
        execution = plan(self._graph)
        spec = job_spec("sim", "streaming", execution, splits_desired=2, ranges_per_grouping=3)
        job = self._store.open_job(spec)
        if backfill_state(job) is BackfillState.LOADED:
            return
        mark = begun(job) or SplitMark(until_us=self._until_us, now_us=self.crashes)
        backfill = backfill_settings(
            execution, job, until_us=mark.until_us, now_us=mark.now_us, tries=self._tries
        )
        waiting: dict[int, list[Any]] = defaultdict(list)
        end: Any = backfill.end
        end = attrs.evolve(
            end, batch_records=self._batch_records, in_pages_bytes=self._in_pages_bytes
        )
        backfill = attrs.evolve(backfill, end=end)
        layout = backfill.layout
        for name in sorted(layout.wanted.keys() - layout.counts.keys()):
            for index in self._shuffled(layout.wanted[name]):
                range_id = RangeId(name, index)
                split = job.ranges[range_id].split
                assert split is not None
                for target, each in self._outputs(backfill, execution, range_id, split):
                    waiting[target].append(each)
        for level in range(1, layout.level_max + 1):
            targets = [
                target
                for target in layout.wanted_targets(level)
                if layout.levels[layout.range_of(target).computation] == level
            ]
            for target in self._shuffled(targets):
                found = self._shuffled(waiting.pop(target, ()))
                range_id = layout.range_of(target)
                for later, each in self._outputs(backfill, execution, range_id, found):
                    waiting[later].append(each)
        assert not waiting
        go_live(self._fragile(), "sim")

    def _outputs(
        self, backfill: TaskSettings, execution: ExecutionPlan, range_id: RangeId, given: Any
    ) -> list[Any]:
        """The outputs of a task; now and then it is run again, as if they were lost, and must return the same."""
        outputs_of_all: list[list[Any]] = []
        for attempt in range(self._random.choice([1, 1, 2])):
            owner = f"{range_id} {attempt} {self._random.random()}"
            spill_bytes = self._random.choice(self._spill_bytes)
            settings = attrs.evolve(backfill, spill_bytes=spill_bytes)
            task = RangeTask(settings, execution, range_id, self._fragile, owner)
            is_split = isinstance(given, bytes)
            outputs = task.read_split(given) if is_split else task.group(self._shuffled(given))
            outputs_of_all.append(list(outputs))
        assert all(each == outputs_of_all[0] for each in outputs_of_all), (
            f"{range_id} returns something else"
        )
        return outputs_of_all[-1]

    def _fragile(self) -> Any:
        return FragileStore(self._store, self._random, self._crash_rate, self._unanswered)

    def _shuffled(self, several: Iterable[Any]) -> list[Any]:
        found = sorted(several, key=repr)
        self._random.shuffle(found)
        return found


def left_behind(store: Store, name: str) -> dict[RangeId, Any]:
    """All that a stream begins with, by range; the caller owns the ranges of the store afterwards."""
    job = store.read_job(name)
    assert job is not None
    found = {}
    for range_id, taken in store.acquire(name, list(job.ranges), "a stream").items():
        row = taken.row
        cells = store.read_cell_page(name, range_id, row.token, 0, 1 << 30)
        ids = store.read_record_ids(name, range_id, b"", 1 << 30)
        timers = sorted(map(attrs.astuple, taken.timers))
        found[range_id] = (row.watermark_us, row.percentile_us, cells, timers, ids)
    return found
