"""A worker that takes ranges over goes on from the percentile watermark that the former owner had as input.

What a master sends after a restart may be older, as it is worked out anew from what workers report; no pane is another
for it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
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
from runners.millwheel.store.port import Committed, TakenRange
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.input_watermark import InputWatermark
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.scripted_source import ScriptedSource
from tests.oracle.laws import microseconds
from triggers.clocks import Clocks
from windowing.timestamps import MIN_TIMESTAMP_US

JOB = "job"
TRIGGERS = [
    df.DefaultTrigger(),
    df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
    df.AfterWatermark(late=df.AfterCount(2)),
]
#: The time of a record, how far the percentile comes then, and whether the owner is replaced afterwards.
Step = tuple[int, int, bool]
STEPS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 50), st.booleans()), min_size=1, max_size=8
)


class Recorded(df.DoFn):
    """Writes panes down."""

    def __init__(self) -> None:
        self.panes: list[Any] = []

    def process(
        self,
        element: Any,
        /,
        window: df.Window = df.DoFn.WindowParam,
        pane: df.PaneInfo = df.DoFn.PaneParam,
    ) -> None:
        key, values = element
        self.panes.append((key, sorted(values), window, pane))


class Owners:
    """A grouping that follows a percentile, and whoever owns its ranges."""

    def __init__(self, window_fn: df.WindowFn, trigger: df.Trigger) -> None:
        pipeline, self.recorded = df.Pipeline(DirectRunner()), Recorded()
        (
            pipeline
            | df.Read(ScriptedSource([]))
            | df.WindowInto(
                window_fn,
                trigger=trigger,
                accumulation_mode=df.AccumulationMode.ACCUMULATING,
                allowed_lateness=microseconds(100),
                watermark_percentile=50,
            )
            | df.GroupByKey()
            | df.ParDo(self.recorded)
        )
        self._plan = plan(pipeline.graph())
        (root,), (self._stage,) = self._plan.sources(), self._plan.groupings()
        self._root, self._executor = RangeId(root.name, 0), StageExecutor(self._plan, root)
        self._store, self._router = MemoryStore(), Router(self._plan)
        spec = job_spec(JOB, "streaming", self._plan, splits_desired=1, ranges_per_grouping=1)
        self._store.open_job(spec)
        ((self._range, self._keys),) = (
            (each.range_id, each.keys) for each in spec.ranges if each.keys is not None
        )
        self._router.follow(Routing(number=1, keys={self._range: self._keys}))
        self._sent = 0
        self.take_over()

    def take_over(self) -> None:
        """Somebody else, to whom the master has sent nothing yet, goes on from what is in the store."""
        self._owner = GroupingComputation(JOB, self._plan, self._stage, self._router, self._store)
        executor = self._owner.stage.executor
        executor.setup()
        for each in self._store.acquire(JOB, [self._range], "somebody").values():
            self._owner.take(each)
        self.advance(MIN_TIMESTAMP_US, MIN_TIMESTAMP_US)

    def add(self, value: int, at_us: int) -> None:
        outputs = self._executor.process(
            Bundle([("k", value)], [at_us]),
            StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0),
        )
        for _, payload in self._router.payloads(outputs.groups):
            self._sent += 1
            delivery = Deliver(Channel(self._root, self._range), self._sent, payload)
            self._commit(self._owner.deliveries.take_in([delivery], 0))

    def advance(self, watermark_us: int, percentile_us: int) -> None:
        while self._owner.firing.has_due(
            df.Clocks(watermark_us=watermark_us, now_us=0, percentile_us=percentile_us)
        ):
            step = self._owner.firing.advance(
                df.Clocks(watermark_us=watermark_us, now_us=0, percentile_us=percentile_us)
            )
            if step is None:
                # The input watermark of a range is committed with its next production.
                step = WorkerStep.touching(next(iter(self._owner.state.ranges.values())))
            self._commit(step)

    def _commit(self, step: WorkerStep | None) -> None:
        if step is not None:
            sealed = step.seal()
            assert isinstance(self._store.commit(production_of(JOB, sealed, {})), Committed)
            note_submitted(sealed)
            note_durable(sealed)


@given(
    steps=STEPS,
    window_fn=st.sampled_from([df.FixedWindows(microseconds(10)), df.Sessions(microseconds(8))]),
    trigger=st.sampled_from(TRIGGERS),
)
def test_a_takeover_changes_no_pane(
    steps: Sequence[Step], window_fn: df.WindowFn, trigger: df.Trigger
) -> None:
    """What was late by the percentile is late for the next owner too, and emitted as soon."""
    check_takeovers(steps, window_fn, trigger)


def check_takeovers(steps: Sequence[Step], window_fn: df.WindowFn, trigger: df.Trigger) -> None:
    """The panes are those of one owner that is never replaced."""
    alone, several = Owners(window_fn, trigger), Owners(window_fn, trigger)
    percentile_us = 0
    for number, (at_us, ahead_us, is_taken_over) in enumerate(steps):
        percentile_us = max(percentile_us, ahead_us)
        for each in (alone, several):
            each.add(number, at_us)
            each.advance(0, percentile_us)
        if is_taken_over:
            several.take_over()

        assert alone.recorded.panes == several.recorded.panes


def forget_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A range that is taken has processed no percentile yet."""
    taken = OwnedRange.taken

    def broken(row: TakenRange, **options: Any) -> OwnedRange:
        owned = taken(row, **options)
        owned.percentile_us = None
        return owned

    patch.setattr(OwnedRange, "taken", broken)


def go_by_what_the_master_sends(patch: pytest.MonkeyPatch) -> None:
    """The new owner does not look at how far the range had come."""
    known = InputWatermark.known

    def broken(taken_over: InputWatermark, clocks: Clocks, **options: Any) -> StageClocks:
        percentile_us = max(clocks.percentile_us, taken_over.percentile_us)
        return attrs.evolve(known(taken_over, clocks, **options), percentile_us=percentile_us)

    patch.setattr(InputWatermark, "known", broken)


@pytest.mark.parametrize("mutate", [forget_what_is_stored, go_by_what_the_master_sends])
def test_a_takeover_that_forgets_the_percentile_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law above is broken by it."""
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check_takeovers(
            [(5, 0, False), (5, 20, True), (6, 20, False)],
            df.FixedWindows(microseconds(10)),
            df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
        )
