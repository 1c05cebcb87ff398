"""Windows hold back the watermark behind their grouping, whoever owns their range.

What they are still to emit has the event time of a record (`TimestampCombiner`); behind a watermark that did not wait
for it, the next grouping drops it.
"""

from collections.abc import Sequence

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
from runners.millwheel.worker.productions import note_committed, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.scripted_source import ScriptedSource
from tests.oracle.laws import microseconds
from windowing.timestamps import MIN_TIMESTAMP_US

JOB = "job"
#: A key, the time of its record, how far the watermark is then, and whether the journal is compacted.
STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(0, 40), st.booleans()),
    min_size=1,
    max_size=8,
)
#: By range; None: nothing.
Holds = dict[RangeId, int | None]


class Job:
    """A grouping of two key ranges."""

    def __init__(self, window_fn: df.WindowFn, combiner: df.TimestampCombiner) -> None:
        pipeline = df.Pipeline(DirectRunner())
        (
            pipeline
            | df.Read(ScriptedSource([]))
            | df.WindowInto(
                window_fn,
                accumulation_mode=df.AccumulationMode.DISCARDING,
                timestamp_combiner=combiner,
            )
            | df.GroupByKey()
        )
        self._plan = plan(pipeline.graph())
        (root,), (self._stage,) = self._plan.sources(), self._plan.groupings()
        self._root, self._executor = RangeId(root.name, 0), StageExecutor(self._plan, root)
        self._store, self._router = MemoryStore(), Router(self._plan)
        spec = job_spec(JOB, "streaming", self._plan, splits_desired=1, ranges_per_grouping=2)
        self._store.open_job(spec)
        self.ranges = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self._router.follow(Routing(number=1, keys=self.ranges))
        self._sent = dict.fromkeys(self.ranges, 0)

    def owner(
        self, ranges: Sequence[RangeId], cache_bytes: int | None = None
    ) -> GroupingComputation:
        """Whoever takes ranges over, and has done nothing else yet."""
        found = GroupingComputation(
            JOB, self._plan, self._stage, self._router, self._store, cache_bytes=cache_bytes
        )
        for each in self._store.acquire(JOB, ranges, "somebody").values():
            found.take(each)
        return found

    def add(self, owner: GroupingComputation, key: int, at_us: int) -> None:
        bundle = Bundle([(key, 1)], [at_us])
        outputs = self._executor.process(
            bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
        )
        for range_id, payload in self._router.payloads(outputs.groups):
            self._sent[range_id] += 1
            delivery = Deliver(Channel(self._root, range_id), self._sent[range_id], payload)
            self._commit(owner.deliveries.take_in([delivery], 0))

    def advance(self, owner: GroupingComputation, watermark_us: int) -> None:
        while owner.firing.has_due(df.Clocks(watermark_us=watermark_us, now_us=0)):
            self._commit(owner.firing.advance(df.Clocks(watermark_us=watermark_us, now_us=0)))

    def compact(self, owner: GroupingComputation) -> None:
        while (step := owner.state.journal.compact()) is not None:
            self._commit(step)

    def _commit(self, step: WorkerStep | None) -> None:
        if step is not None:
            sealed = step.sealed()
            assert isinstance(self._store.commit(production_of(JOB, sealed)), Committed)
            note_committed(sealed)


def holds(owner: GroupingComputation) -> Holds:
    return {range_id: owned.window_hold_us for range_id, owned in owner.state.ranges.items()}


@pytest.mark.parametrize("cache_bytes", [None, 0])
@pytest.mark.parametrize("combiner", [df.TimestampCombiner.EARLIEST, df.TimestampCombiner.LATEST])
@given(
    steps=STEPS,
    window_fn=st.sampled_from([df.FixedWindows(microseconds(20)), df.Sessions(microseconds(10))]),
)
def test_holds_do_not_depend_on_who_has_a_range(
    combiner: df.TimestampCombiner,
    cache_bytes: int | None,
    steps: Sequence[tuple[int, int, int, bool]],
    window_fn: df.WindowFn,
) -> None:
    """Who takes ranges over knows what he finds in journals and tables, and who lets go of one forgets it, at once."""
    job = Job(window_fn, combiner)
    owner = job.owner(list(job.ranges), cache_bytes)
    watermark_us = MIN_TIMESTAMP_US
    for key, at_us, then_us, is_compacted in steps:
        job.add(owner, key, at_us)
        watermark_us = max(watermark_us, then_us)
        job.advance(owner, watermark_us)
        if is_compacted:
            job.compact(owner)
    kept, (gone, left) = holds(owner), job.ranges
    owner.release(gone)
    holds_alone = holds(owner)

    assert holds(job.owner([left], cache_bytes)) == holds_alone
    assert holds(job.owner([gone, left], cache_bytes)) == kept
