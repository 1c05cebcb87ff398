"""A worker's round compacts little, as what else its commit has waits for that; and enough, or journals would grow.

A journal that is full is compacted while more is noted in it, so what each round brings up to date decides for how long
a round is held up, and how long the journal becomes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.bundle import Bundle
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.state import journal as journals
from runners.millwheel.worker.state.journal import COMPACTED_WITH_ROUND
from runners.millwheel.worker.worker_step import WorkerStep, merged
from runners.testing.scripted_source import ScriptedSource
from windowing.timestamps import MIN_TIMESTAMP_US

JOB = "job"
SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())
#: What a new cell takes of the journal, at least, and how long a full journal is.
CELL_BYTES, FULL_BYTES = 40, 20_000


class Count(df.DoFn):
    """A cell for each key."""

    def process(self, element: Any, seen: Any = df.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        seen.add(1)
        yield from ()


class Counting:
    """The worker's side of a stateful function, whose steps are committed."""

    def __init__(self, cache_bytes: int | None = None) -> None:
        pipeline = df.Pipeline(DirectRunner())
        pipeline | df.Read(ScriptedSource([])) | "count" >> df.ParDo(Count())
        execution = plan(pipeline.graph())
        (root,) = execution.sources()
        self._root, self._executor = RangeId(root.name, 0), StageExecutor(execution, root)
        self._store, self._router, self._sent = MemoryStore(), Router(execution), 0
        spec = job_spec(JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        self._store.open_job(spec)
        keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self._router.follow(Routing(number=1, keys=keys))
        (self._range_id,) = keys
        self._owner = GroupingComputation(
            JOB,
            execution,
            execution.stages["count"],
            self._router,
            self._store,
            cache_bytes=cache_bytes,
        )
        for each in self._store.acquire(JOB, [self._range_id], "somebody").values():
            self._owner.take(each)
        self.journal = self._owner.state.journal

    def do_round(self, keys: Sequence[int]) -> int:
        """Change the cells of some keys, in one commit with what is compacted; returns how many cells that is."""
        bundle = Bundle([(key, 1) for key in keys], [0] * len(keys))
        outputs = self._executor.process(
            bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
        )
        steps = list[WorkerStep]()
        for _, payload in self._router.payloads(outputs.groups):
            self._sent += 1
            delivery = Deliver(Channel(self._root, self._range_id), self._sent, payload)
            taken = self._owner.deliveries.take_in([delivery], 0)
            assert taken is not None
            steps.append(taken.seal())
        if self.journal.is_compacting:
            compacted = self.journal.compact(is_with_round=True)
            assert compacted is not None
            steps.append(compacted.seal())
        step = merged(steps)
        assert isinstance(self._store.commit(production_of(JOB, step, {})), Committed)
        note_submitted(step)
        note_durable(step)
        return len(step.cells)

    def relieve(self) -> None:
        """Evict cells that the store has, and begin to compact a full journal, as a worker does between two rounds."""
        self.journal.evict()
        if self.journal.is_full:
            self.journal.begin()

    @property
    def behind(self) -> int:
        """How many cells only the journal has as they are."""
        return len(self._owner.state.cells.uncommitted)

    @property
    def in_memory(self) -> set[int]:
        """The keys whose cells are in memory."""
        return {cell_id[0] for cell_id in self._owner.state.cells}


@given(st.lists(st.integers(1, 700), min_size=1, max_size=30))
def test_a_round_compacts_little_or_a_quarter_more_than_was_changed_since_the_last(
    rounds: list[int],
) -> None:
    first = before = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "JOURNAL_BYTES_MAX", FULL_BYTES)
        job = Counting()
        for count in rounds:
            compacted = job.do_round(range(first, first + count))
            job.relieve()
            first += count
            assert compacted <= max(COMPACTED_WITH_ROUND, (before + count) * 5 / 4)
            before = 0 if compacted else count


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, COMPACTED_WITH_ROUND, 3 * COMPACTED_WITH_ROUND])
def test_a_journal_does_not_grow_though_each_round_changes_other_cells(count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "JOURNAL_BYTES_MAX", FULL_BYTES)
        job, seen = Counting(), list[int]()
        for number in range(40 + 4 * FULL_BYTES // (CELL_BYTES * count)):
            job.do_round(range(number * count, (number + 1) * count))
            job.relieve()
            seen.append(job.behind)

    # While a full one is compacted four fifths of it come again, and what the first of these rounds has changed.
    assert max(seen) <= 2 * FULL_BYTES // CELL_BYTES + 6 * count
    assert max(seen[len(seen) // 2 :]) <= max(seen[: len(seen) // 2])


@pytest.mark.slow
def test_no_cell_goes_before_the_end_of_a_step_that_waits_for_the_commit() -> None:
    """A step that reads other cells waits for the commit that is under way, and may need those that it has written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "JOURNAL_BYTES_MAX", 0)
        patch.setattr(journals, "COMPACTED_WITH_ROUND", 2)
        job = Counting(cache_bytes=0)
        job.do_round(range(10))
        job.relieve()

        assert job.do_round([10]) == 2
        assert job.in_memory == set(range(11))
        job.relieve()
        assert len(job.in_memory) == 9
