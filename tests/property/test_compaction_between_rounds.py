"""Between two rounds of a worker little is compacted, as the next one waits for it; and enough, or journals would grow.

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
from runners.millwheel.worker.state.journal import COMPACTED_BETWEEN_ROUNDS
from runners.millwheel.worker.worker_step import WorkerStep
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

    def __init__(self) -> None:
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
            JOB, execution, execution.stages["count"], self._router, self._store
        )
        for each in self._store.acquire(JOB, [self._range_id], "somebody").values():
            self._owner.take(each)
        self.journal = self._owner.state.journal

    def process(self, keys: Sequence[int]) -> None:
        """Change the cells of some keys, in one step."""
        bundle = Bundle([(key, 1) for key in keys], [0] * len(keys))
        outputs = self._executor.process(
            bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
        )
        for _, payload in self._router.payloads(outputs.groups):
            self._sent += 1
            delivery = Deliver(Channel(self._root, self._range_id), self._sent, payload)
            self._commit(self._owner.deliveries.take_in([delivery], 0))

    def compact(self) -> int:
        """Compact as a worker does between two rounds; returns how many cells were brought up to date."""
        if not self.journal.is_full:
            return 0
        step = self.journal.compact(is_between_rounds=True)
        self._commit(step)
        return 0 if step is None else len(step.cells)

    def _commit(self, step: WorkerStep | None) -> None:
        if step is not None:
            sealed = step.seal()
            assert isinstance(self._store.commit(production_of(JOB, sealed, {})), Committed)
            note_submitted(sealed)
            note_durable(sealed)

    @property
    def behind(self) -> int:
        """How many cells only the journal has as they are."""
        return len(self._owner.state.cells.uncommitted)


@given(st.lists(st.integers(1, 700), min_size=1, max_size=30))
def test_a_round_waits_for_little_or_for_a_quarter_more_than_it_has_changed(
    rounds: list[int],
) -> None:
    first = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "JOURNAL_BYTES_MAX", FULL_BYTES)
        job = Counting()
        for count in rounds:
            job.process(range(first, first + count))
            first += count
            assert job.compact() <= max(COMPACTED_BETWEEN_ROUNDS, count * 5 / 4)


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, COMPACTED_BETWEEN_ROUNDS, 3 * COMPACTED_BETWEEN_ROUNDS])
def test_a_journal_does_not_grow_though_each_round_changes_other_cells(count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "JOURNAL_BYTES_MAX", FULL_BYTES)
        job, seen = Counting(), list[int]()
        for number in range(40 + 4 * FULL_BYTES // (CELL_BYTES * count)):
            job.process(range(number * count, (number + 1) * count))
            job.compact()
            seen.append(job.behind)

    # While a full one is compacted four fifths of it come again, and what the first of these rounds has changed.
    assert max(seen) <= 2 * FULL_BYTES // CELL_BYTES + 6 * count
    assert max(seen[len(seen) // 2 :]) <= max(seen[: len(seen) // 2])
