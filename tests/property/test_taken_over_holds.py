"""Windows hold back the watermark behind their grouping, whoever owns their range.

What they are still to emit has the event time of a record (`TimestampCombiner`); behind a watermark that did not wait
for it, the next grouping drops it.
"""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.bundle import Bundle
from runners.core.partials.folding import combiners_of
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.partials import decode_partials
from runners.testing.scripted_source import ScriptedSource
from tests.oracle.laws import microseconds
from windowing.timestamps import MIN_TIMESTAMP_US

JOB = "job"
#: Keys of the one range, and of the other.
KEYS = ((1, 2), (0, 3))
#: A key, the time of its record, how far the watermark is then, and whether the journal is compacted.
STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(0, 40), st.booleans()),
    min_size=1,
    max_size=8,
)
#: By range; None: nothing.
Holds = dict[RangeId, int | None]


class Job:
    """A grouping of two key ranges, and one of its panes by their event times."""

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
            | "group" >> df.GroupByKey()
            | "by time" >> df.WindowInto(df.FixedWindows(microseconds(1)))
            | "again" >> df.GroupByKey()
        )
        self._plan = plan(pipeline.graph())
        (root,), self._stage = self._plan.sources(), self._plan.stages["group"]
        self._root, self._executor = RangeId(root.name, 0), StageExecutor(self._plan, root)
        self._store, self._router = MemoryStore(), Router(self._plan)
        spec = job_spec(JOB, "streaming", self._plan, splits_desired=1, ranges_per_grouping=2)
        self._store.open_job(spec)
        keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self.ranges = [each for each in keys if each.computation == "group"]
        self._router.follow(Routing(number=1, keys=keys))
        self._sent = dict.fromkeys(self.ranges, 0)
        #: The productions of each step that is committed, with the output watermarks that had been reported before.
        self.made: list[tuple[Checkpoint, Mapping[RangeId, int]]] = []
        self._reported_us: dict[RangeId, int] = {}

    def owner(
        self, ranges: Sequence[RangeId], cache_bytes: int | None = None
    ) -> GroupingComputation:
        """Whoever takes ranges over, and has done nothing else yet."""
        found = GroupingComputation(
            JOB,
            self._plan,
            self._stage,
            self._router,
            self._store,
            cache_bytes=cache_bytes,
            # Cells are read one by one, so that a few are many pages.
            steps=StepLimits(first=1, nbytes=1),
        )
        for each in self._store.acquire(JOB, ranges, "somebody").values():
            found.take(each)
        return found

    def take(self, owner: GroupingComputation, range_id: RangeId) -> None:
        """Have an owner take a range over from another."""
        for each in self._store.acquire(JOB, [range_id], "somebody else").values():
            owner.take(each)
            # The master counts nothing that the other one has reported.
            self._reported_us.pop(range_id, None)

    def report(self, owner: GroupingComputation) -> None:
        for range_id, owned in owner.state.ranges.items():
            self._reported_us[range_id] = owned.advance_output()

    def times_of(self, checkpoint: Checkpoint) -> list[int]:
        """The event times of the panes in a production."""
        combiners = combiners_of(self._plan.graph, self._plan.stages["again"].root)
        partials = decode_partials(checkpoint.payload, combiners)
        return [window.start_us for _, window, *_ in partials]

    def add(self, owner: GroupingComputation, key: int, at_us: int) -> None:
        bundle = Bundle([(key, 1)], [at_us])
        outputs = self._executor.process(
            bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
        )
        for range_id, payload in self._router.payloads(outputs.groups):
            if range_id not in owner.state.ranges:
                continue
            self._sent[range_id] += 1
            delivery = Deliver(Channel(self._root, range_id), self._sent[range_id], payload)
            self._commit(owner.deliveries.take_in([delivery], 0))

    def advance(self, owner: GroupingComputation, watermark_us: int) -> None:
        while owner.firing.has_due(df.Clocks(watermark_us=watermark_us, now_us=0)):
            self._commit(owner.firing.advance(df.Clocks(watermark_us=watermark_us, now_us=0)))

    def compact(self, owner: GroupingComputation) -> None:
        while (step := owner.state.journal.compact()) is not None:
            self._commit(step)
            owner.state.journal.evict()

    def _commit(self, step: WorkerStep | None) -> None:
        if step is not None:
            sealed = step.seal()
            reported_us = dict(self._reported_us)
            self.made += [(each, reported_us) for each in sealed.checkpoints]
            assert isinstance(self._store.commit(production_of(JOB, sealed, {})), Committed)
            note_submitted(sealed)
            note_durable(sealed)


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
    owner = job.owner(job.ranges, cache_bytes)
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


@given(
    ranges=st.permutations([0, 1]),
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 30), st.integers(0, 30)),
        min_size=4,
        max_size=8,
    ),
    combiner=st.sampled_from(df.TimestampCombiner),
    window_fn=st.sampled_from([df.FixedWindows(microseconds(20)), df.Sessions(microseconds(10))]),
    until_us=st.sampled_from([0, 40, 90]),
)
def test_no_pane_is_behind_what_was_reported_of_the_range_that_sends_it(
    ranges: Sequence[int],
    steps: Sequence[tuple[int, int, int, int]],
    combiner: df.TimestampCombiner,
    window_fn: df.WindowFn,
    until_us: int,
) -> None:
    """Where two ranges come together, of which one is further, panes of both are sent by one of them."""
    job = Job(window_fn, combiner)
    here, taken = (job.ranges[each] for each in ranges)
    owners = [job.owner([here]), job.owner([taken])]
    watermarks_us = [MIN_TIMESTAMP_US, MIN_TIMESTAMP_US]
    for index, number, at_us, then_us in steps:
        # What is late has no place in a law of what is not.
        job.add(owners[index], KEYS[ranges[index]][number], max(at_us, watermarks_us[index]))
        watermarks_us[index] = max(watermarks_us[index], then_us)
        job.advance(owners[index], watermarks_us[index])
        job.report(owners[index])
    job.take(owners[0], taken)
    job.advance(owners[0], max(*watermarks_us, until_us))

    for checkpoint, reported_us in job.made:
        sender_us = reported_us.get(checkpoint.channel.sender, MIN_TIMESTAMP_US)
        earliest_us = min(job.times_of(checkpoint))
        assert sender_us <= earliest_us, (checkpoint, sender_us)
        assert checkpoint.min_timestamp_us <= earliest_us
