"""SplitDiscovery between a source, a store and a master: what is asked when, and what an answer that is none does."""

from collections.abc import Sequence
from typing import Any

import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.control.discovery import SplitDiscovery
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import RangeRow
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

EVERY_MS = 1_000


class Topic(ScriptedSource):
    """Answers what it is set to."""

    is_bounded = False
    discover_every_ms = EVERY_MS

    def __init__(self) -> None:
        super().__init__([], [])
        self.asked = 0
        self.answer: Any = df.SplitChanges()

    def discover(self, known: Sequence[Any]) -> df.SplitChanges:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: df.SplitChanges = self.answer
        return answer


class _Master:
    """Remembers what it was asked to do."""

    def __init__(self, watermark_us: int | None) -> None:
        self.watermark_us = watermark_us
        self.adopted: list[RangeId] = []
        self.ended: list[RangeId] = []

    def takes_splits(self) -> bool:
        return True

    def hold_splits(self, source: str) -> int | None:
        return self.watermark_us

    def adopt_splits(self, source: str, rows: Sequence[RangeRow]) -> None:
        self.adopted += [each.range_id for each in rows]

    def open_splits(self, ranges: Sequence[RangeId]) -> list[RangeId]:
        return [each for each in ranges if each not in self.ended]

    def end_splits(self, ranges: Sequence[RangeId]) -> None:
        self.ended += ranges

    def last_poll(self, range_id: RangeId) -> SplitPoll | None:
        return None


class _World:
    def __init__(self, watermark_us: int | None = 70) -> None:
        self.source, self.clock = Topic(), ManualClock()
        p = df.Pipeline(DirectRunner())
        p | "read" >> df.Read(self.source)
        execution = plan(p.graph())
        self.store, self.master = MemoryStore(self.clock), _Master(watermark_us)
        spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        self.discovery = SplitDiscovery(self.store.open_job(spec), execution, self.clock)

    def turn(self, after_ms: int = EVERY_MS) -> None:
        """Both threads have a turn, and time goes on."""
        self.discovery.ask(self.store)
        self.discovery.pass_on(self.master)
        self.clock.advance(after_ms)


def test_a_source_is_asked_at_once_and_then_at_its_interval() -> None:
    world = _World()
    for _ in range(4):
        world.turn(EVERY_MS // 2)
    assert world.source.asked == 2


def test_an_answer_is_followed_once() -> None:
    """However often it is given; what is known, and what it removes that has ended, changes nothing."""
    world = _World()
    world.source.answer = df.SplitChanges(added=[0, 5, 5], removed=[1, 7])
    for _ in range(6):
        world.turn()
    assert world.master.adopted == [RangeId("read", 2)]
    assert world.master.ended == [RangeId("read", 1)]
    job = world.store.read_job("job")
    assert job is not None
    row = job.ranges[RangeId("read", 2)]
    assert (row.watermark_us, len(job.ranges)) == (70, 3)


def test_a_job_that_is_coming_to_its_end_gets_no_splits() -> None:
    world = _World(watermark_us=None)
    world.source.answer = df.SplitChanges(added=[5])
    for _ in range(3):
        world.turn()
    job = world.store.read_job("job")
    assert job is not None
    assert (world.source.asked, len(job.ranges), world.master.adopted) == (3, 2, [])


def test_what_a_source_raises_is_logged_and_what_is_no_answer_ends_the_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Logged once for as long as it fails."""
    world = _World()
    world.source.answer = ConnectionError("no broker")
    for _ in range(3):
        world.turn()
    assert caplog.text.count("is asked again: ConnectionError: no broker") == 1
    world.source.answer = [5]
    with pytest.raises(df.InputError, match=r"Topic\.discover has returned no SplitChanges"):
        world.turn()
