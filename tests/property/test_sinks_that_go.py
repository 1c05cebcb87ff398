"""What waits for a sink that an update removes, renames or divides otherwise is sent before, or named as lost."""

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import SinkError
from dataflow.serialization import dumps
from dataflow.table import TableWrite
from dataflow.testing.model_sink import ModelSink, Outcome
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import UpdateRefusedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.versions import job_versions
from runners.millwheel.versions.job_versions import Sinks, Update, open_version
from runners.relay.job_outboxes import with_outboxes_of
from runners.relay.relays import Relays
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

JOB = "job"
SOURCE = ScriptedSource([])
#: The label and the number of lanes of the sink in the new version; None: it is removed.
NEW = st.sampled_from([None, ("other", 2), ("sink", 1), ("sink", 3), ("sink", 2)])


class World:
    """A job with a sink of two lanes, for which some rows wait."""

    def __init__(self, rows: list[int], sent: int, fate: Callable[[Any], Outcome]) -> None:
        self.store, self.clock = MemoryStore(), ManualClock()
        self.sink, self.rows = ModelSink(lanes=2, fate=fate), rows
        self.former = self.graph("sink", self.sink)
        self.open(self.former, None)
        ((self.table, _),) = self.former.sinks().values()
        read = RangeId("read", 0)
        taken = self.store.acquire(JOB, [read], "worker")
        writes = [(number % 2, 1, dumps(value)) for number, value in enumerate(rows)]
        for number, row in enumerate(writes):
            fence = Fence(range_id=read, token=taken[read].row.token, bundle=1 + number)
            tables = [TableWrite(table=self.table, inserts=[row])]
            production = Production(job=JOB, fences=[fence], tables=tables)
            assert self.store.commit(production) == Committed()
        with closing(self.relays(self.former.sinks())) as relays, suppress(SinkError):
            for _ in range(sent):
                relays.step()

    def graph(self, label: str | None, sink: ModelSink | None) -> Any:
        pipeline = df.Pipeline(DirectRunner())
        read = pipeline | "read" >> df.Read(SOURCE)
        if label is not None and sink is not None:
            read | label >> df.Write(sink)
        return with_outboxes_of(pipeline.graph(), JOB)

    def relays(self, sinks: Sinks) -> Relays:
        return Relays(self.store, JOB, sinks, self.clock)

    def send(self, sinks: Sinks) -> None:
        with closing(self.relays(sinks)) as relays:
            relays.flush(60.0, lambda delay_s: self.clock.advance(round(1_000 * delay_s)))

    def open(self, graph: Any, update: Update | None) -> None:
        execution = plan(graph)
        spec = job_spec(JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        open_version(self.store, spec, execution, update, lambda _: None, self.send)

    def waiting(self) -> int:
        return sum(lane.waiting for lane in self.store.read_lanes(JOB))

    def has(self) -> list[list[int]]:
        """The values that the sink has, by lane."""
        found: list[list[int]] = [[], []]
        for lane in self.sink.state.values():
            assert lane.numbers == list(range(1, len(lane.numbers) + 1))
            values = [change.value for change in lane.changes]
            if values:
                found[self.rows.index(values[0]) % 2] = values
        return found


def run_world(data: st.DataObject) -> None:
    is_calm = False
    outcomes = [each for each in Outcome if each is not Outcome.DELAYED]

    def fate(_: Any) -> Outcome:
        return Outcome.DONE if is_calm else data.draw(st.sampled_from(outcomes))

    rows = list(range(data.draw(st.integers(0, 6))))
    world = World(rows, data.draw(st.integers(0, 2)), fate)
    expected, waiting = [rows[0::2], rows[1::2]], world.waiting()
    new = data.draw(NEW)
    label, lanes = new or (None, 0)
    graph = world.graph(label, None if label is None else ModelSink(lanes=lanes))
    is_known, may_lose = data.draw(st.booleans()), data.draw(st.booleans())
    goes = label != "sink" or lanes != 2
    update = Update(
        former=world.former if is_known else None,
        allow_loss=["sink"] if may_lose and waiting else [],
    )
    if graph.fingerprint() == world.former.fingerprint():
        return
    before = world.has()
    is_away = data.draw(st.booleans())
    world.sink.fate = (lambda _: Outcome.FAILED) if is_away else fate
    is_calm = True
    left = [lane.number for lane in world.store.read_lanes(JOB) if lane.waiting]
    is_stuck = bool(left) if label != "sink" else bool(left) and max(left) >= lanes
    try:
        world.open(graph, update)
    except UpdateRefusedError:
        assert not may_lose, "what may be lost is in the way"
        assert is_away or not is_known, "what could be sent is in the way"
        # Fewer may wait: those that the sink was found to have.
        assert world.waiting() <= waiting
        job = world.store.read_job(JOB)
        assert job is not None
        assert job.version == 0
        world.sink.fate = fate
        world.send(world.former.sinks())
        assert world.has() == expected
        return
    if may_lose and waiting:
        assert world.has() == before, "what need not be sent is sent"
    elif is_known and goes:
        assert world.has() == expected, "rows were not sent before"
    else:
        assert not is_stuck, "rows are left that nobody sends"
    if label != "sink":
        assert world.waiting() == 0


@given(data=st.data())
def test_nothing_that_waits_is_lost_unless_it_is_named(data: st.DataObject) -> None:
    run_world(data)


def test_an_update_that_does_not_send_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_versions, "_send", lambda *_: None)

    @settings(max_examples=1_000, phases=[Phase.generate])
    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        run_world(data)

    with pytest.raises(AssertionError):
        law()


def test_an_update_that_looks_at_no_outbox_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_versions, "left_outboxes", lambda *_: [])

    @settings(max_examples=1_000, phases=[Phase.generate])
    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        run_world(data)

    with pytest.raises(AssertionError):
        law()


def test_the_plan_shows_what_waits() -> None:
    """And the hint names what need not be sent."""
    world = World([1, 2, 3], 0, lambda _: Outcome.DONE)
    with pytest.raises(UpdateRefusedError) as caught:
        world.open(world.graph(None, None), Update())
    assert "allow_loss=['sink']" in str(caught.value)
    assert "3 rows wait for it, and would never be sent" in str(caught.value)
