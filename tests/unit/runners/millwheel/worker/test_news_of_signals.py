"""A worker acts on the news of signals that comes with a range before it does anything else.

A step of several of its ranges is sent by one of them.  If that one has passed a signal on, and another one is still
before it, the receiver can get the signal before what the other one has emitted
(`tests/property/test_signals_on_their_way.py`).
"""

from typing import Any

import pytest

import dataflow as df
from runners.core.ground.bundle import Bundle
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.model.signals import Signal, SignalNews
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome
from runners.millwheel.wire.messages import Assign, Deliver, Failed, decode, encode
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource
from windowing.timestamps import MIN_TIMESTAMP_US

READ, BEHIND, AHEAD = RangeId("read", 0), RangeId("group", 0), RangeId("group", 1)
FLUSH = SignalNews(inputs={"group": 1}, signals=(Signal(1, "flush"),))
Patch = pytest.MonkeyPatch


class WatchedStore(MemoryStore):
    """Remembers, of each production that sends anything, the signals that ranges of the grouping had processed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[RangeId, dict[RangeId, int]]] = []

    def commit(self, production: Production) -> CommitOutcome:
        outcome = super().commit(production)
        for checkpoint in production.checkpoints:
            rows = self._jobs["job"].ranges
            marks = {each: rows[each].signal_mark.number for each in (BEHIND, AHEAD)}
            self.sent.append((checkpoint.channel.sender, marks))
        return outcome


class Job:
    """Two ranges of a grouping, each with a worker of its own, for which the test is master, source and receiver."""

    def __init__(self) -> None:
        p = df.Pipeline(DirectRunner())
        trigger = df.Repeatedly(df.AfterAny(df.AfterSignal("flush"), df.AfterCount(1)))
        (
            p
            | "read" >> df.Read(ScriptedSource([]))
            | df.WindowInto(
                df.GlobalWindows(),
                trigger=trigger,
                accumulation_mode=df.AccumulationMode.DISCARDING,
            )
            | "group" >> df.GroupByKey()
            | "again" >> df.GroupByKey()
        )
        self.plan, self.store, self.network = plan(p.graph()), WatchedStore(), LocalNetwork()
        spec = job_spec("job", "streaming", self.plan, splits_desired=1, ranges_per_grouping=2)
        self.store.open_job(spec)
        ranges = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self.routing = Routing(number=1, keys=ranges)
        self.clock, self.master = ManualClock(), self.network.endpoint("master")
        self.workers = {name: self._worker(name) for name in ("here", "there")}

    def _worker(self, name: str) -> Worker:
        spec = WorkerSpec(job="job", slot=0, worker=name, master="master")
        worker = Worker(spec, self.plan, self.store, self.network.endpoint(name), self.clock)
        worker.start()
        return worker

    def assign(self, name: str, range_id: RangeId, signals: SignalNews) -> None:
        assign = Assign(
            ranges=(range_id,),
            inputs_us={"group": 10, "again": MIN_TIMESTAMP_US},
            percentiles_us={},
            signals=signals,
            routing=self.routing,
            sent_ms=0,
            suspects=(),
        )
        self.master.send(name, encode(assign))

    def deliver(self, name: str) -> None:
        """A record of a key for each of the ranges."""
        (root,) = self.plan.sources()
        router = Router(self.plan)
        router.follow(self.routing)
        outputs = StageExecutor(self.plan, root).process(
            Bundle([(key, key) for key in range(50)], [20] * 50),
            StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0),
        )
        for range_id, payload in router.payloads(outputs.groups):
            delivery = Deliver(Channel(READ, range_id), 1, payload, is_oldest=True)
            self.master.send(name, encode(delivery))

    def step(self, name: str) -> list[Any]:
        """A round of a worker; returns what it sends to the master."""
        self.clock.advance(1_000)
        self.workers[name].step()
        news = [decode(blob) for blob in self.master.receive(0)]
        assert not [each for each in news if isinstance(each, Failed)]
        return news


def check_no_production_is_before_the_news() -> None:
    """A range that has a signal behind it comes to a worker that has not, together with records for both."""
    job = Job()
    job.assign("here", BEHIND, SignalNews())
    job.step("here")
    # It has reported more than the other one, which therefore sends for both.
    assert job.step("here")
    job.assign("there", AHEAD, FLUSH)
    job.step("there")
    assert not job.store.sent

    job.assign("here", AHEAD, FLUSH)
    job.deliver("here")
    job.step("here")

    assert {sender for sender, _ in job.store.sent} == {AHEAD}
    for _, marks in job.store.sent:
        assert marks == {BEHIND: 1, AHEAD: 1}, "sent before a signal that its sender has passed on"


def test_no_production_is_before_the_news_that_comes_with_a_range() -> None:
    check_no_production_is_before_the_news()


def act_on_news_last(patch: Patch) -> None:
    act, work = Worker._act_on_signals, Worker._work

    def worked(worker: Worker) -> bool:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Worker, "_act_on_signals", lambda _: False)
            has_worked = work(worker)
        return has_worked | act(worker)

    patch.setattr(Worker, "_work", worked)


def test_a_worker_that_acts_on_news_last_is_found(monkeypatch: Patch) -> None:
    act_on_news_last(monkeypatch)

    with pytest.raises(AssertionError, match="sent before a signal"):
        check_no_production_is_before_the_news()
