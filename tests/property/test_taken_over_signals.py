"""Every window gets every signal once, whoever has its range: also where a signal takes several commits."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import WindowState
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.signals import Signal, SignalNews
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.scripted_source import ScriptedSource
from tests.simulation.test_signals import EverySecond
from windowing.timestamps import MIN_TIMESTAMP_US

JOB = "job"


class CountedSignals(EverySecond):
    """A trigger whose state is the number of its signals, and that never fires."""

    def should_fire(self, state: int, window: df.Window, clocks: df.Clocks) -> bool:
        return False


class Job:
    """A grouping of one key range, whose windows count the signals of which they are notified, in pages."""

    def __init__(self, keys: int) -> None:
        pipeline = df.Pipeline(DirectRunner())
        windows = df.WindowInto(
            df.GlobalWindows(),
            trigger=CountedSignals(),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        (
            pipeline
            | df.Read(ScriptedSource([]))
            | "windows" >> windows
            | "sum" >> df.CombinePerKey(sum)
            | "again" >> df.GroupByKey()
        )
        self._plan = plan(pipeline.graph())
        (root,), self._stage = self._plan.sources(), self._plan.stages["sum"]
        self._store, self._router = MemoryStore(), Router(self._plan)
        spec = job_spec(JOB, "streaming", self._plan, splits_desired=1, ranges_per_grouping=1)
        self._store.open_job(spec)
        ranges = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        (self._range,) = (each for each in ranges if each.computation == "sum")
        self._router.follow(Routing(number=1, keys=ranges))
        self.owner = self._taken()
        outputs = StageExecutor(self._plan, root).process(
            Bundle([(key, 1) for key in range(keys)], [0] * keys),
            StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0),
        )
        (payload,) = (each for _, each in self._router.payloads(outputs.groups))
        delivery = Deliver(Channel(RangeId(root.name, 0), self._range), 1, payload)
        step = self.owner.deliveries.take_in([delivery], 0)
        assert step is not None
        self._commit(step)

    def _taken(self) -> GroupingComputation:
        found = GroupingComputation(
            JOB, self._plan, self._stage, self._router, self._store, steps=StepLimits(cells=2)
        )
        for each in self._store.acquire(JOB, [self._range], "somebody").values():
            found.take(each)
        return found

    def send(self, number: int, dies_after: int) -> bool:
        """Send all signals up to a number; returns whether the owner has died, and another one has the range.

        Args:
            number: of the last signal.
            dies_after: so many commits.
        """
        signals = tuple(Signal(each, "flush") for each in range(1, number + 1))
        for count, step in enumerate(
            self.owner.on_signals(SignalNews(inputs={"sum": number}, signals=signals), 0)
        ):
            if count == dies_after:
                self.owner = self._taken()
                return True
            self._commit(step)
        return False

    def counted(self) -> dict[int, int]:
        """How many signals each key's window has counted, as whoever takes the range over finds it."""
        state = self._taken().state
        (owned,), found = state.ranges.values(), dict[int, int]()
        for page, _ in state.stored.pages(owned, 0, 1_000):
            state.cells.bring_back(page)
            for cell_id in dict.fromkeys([*page, *state.uncommitted(owned.range_id, 0, 0)]):
                cell = state.cells[cell_id]
                assert isinstance(cell, WindowState)
                found[cell_id[0]] = cell.trigger.state
        # What was taken from the owner is given back.
        self.owner = self._taken()
        return found

    def compact(self) -> None:
        while (step := self.owner.state.journal.compact()) is not None:
            self._commit(step)
            self.owner.state.journal.evict()

    def _commit(self, step: WorkerStep) -> None:
        sealed = step.seal()
        assert isinstance(self._store.commit(production_of(JOB, sealed, {})), Committed)
        note_submitted(sealed)
        note_durable(sealed)


@given(
    keys=st.integers(1, 9),
    is_compacted=st.booleans(),
    sent=st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 8), max_size=4)),
        min_size=1,
        max_size=4,
    ),
)
# A signal of which a part was processed, and then several more at once.
@example(keys=9, is_compacted=True, sent=[(1, [1]), (3, [2, 1])])
@example(keys=9, is_compacted=True, sent=[(2, [3, 1, 0, 2])])
def test_every_window_gets_every_signal_once(
    keys: int, sent: Sequence[tuple[int, list[int]]], *, is_compacted: bool
) -> None:
    job, number = Job(keys), 0
    if is_compacted:
        job.compact()
    for more, deaths in sent:
        number += more
        for dies_after in deaths:
            job.send(number, dies_after)
        job.send(number, 1 << 30)
        assert job.counted() == dict.fromkeys(range(keys), number)
