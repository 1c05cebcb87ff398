"""Firing: what is due is due at its instant, not before and not after it."""

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
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.router import Router
from runners.testing.scripted_source import ScriptedSource
from windowing.timestamps import MIN_TIMESTAMP_US, US_PER_SECOND

RANGE, DELAY_US = RangeId("group", 0), 5 * US_PER_SECOND


def with_a_record() -> GroupingComputation:
    """A grouping that has taken in one record at the time 0, and emits it after a delay."""
    p = df.Pipeline(DirectRunner())
    (
        p
        | "read" >> df.Read(ScriptedSource([]))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterProcessingTime(5)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "group" >> df.GroupByKey()
    )
    execution, store = plan(p.graph()), MemoryStore()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    store.open_job(spec)
    router = Router(execution)
    router.follow(
        Routing(number=1, keys={each.range_id: each.keys for each in spec.ranges if each.keys})
    )
    computation = GroupingComputation("job", execution, execution.stages["group"], router, store)
    (taken,) = store.acquire("job", [RANGE], "somebody").values()
    computation.take(taken)
    computation.firing.advance(df.Clocks(watermark_us=MIN_TIMESTAMP_US, now_us=0))
    executor = StageExecutor(execution, execution.stages["read"])
    clocks = StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
    outputs = executor.process(Bundle([("key", 1)], [0]), clocks)
    ((range_id, payload),) = router.payloads(outputs.groups)
    delivery = Deliver(Channel(RangeId("read", 0), range_id), 1, payload)
    assert computation.deliveries.take_in([delivery], 0) is not None
    return computation


def test_a_window_is_due_at_exactly_its_processing_time() -> None:
    firing = with_a_record().firing
    before, then = (
        df.Clocks(watermark_us=MIN_TIMESTAMP_US, now_us=now_us)
        for now_us in (DELAY_US - 1, DELAY_US)
    )

    assert not firing.has_due(before)
    assert firing.has_due(then)
    step = firing.advance(then)
    assert step is not None
    assert step.cells or step.journal or step.checkpoints
    assert not firing.has_due(then)
