"""Splits that come and go while a job runs: nothing is lost or read twice, and no watermark goes back, by seed."""

import ast
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.errors import StoreUnreachableError
from runners.millwheel.master.master import Master
from runners.millwheel.master.watermark_authority import WatermarkAuthority
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import Request, Verb
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import RangeRow, SplitsChange
from runners.millwheel.worker.worker import Worker
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from runners.testing.simulator.errors import SimulationError
from runners.testing.simulator.fault import ALL_FAULTS, NO_FAULTS, Fault
from windowing.timestamps import MIN_TIMESTAMP_US

SECOND_US = 1_000_000
ROW = {"numbers": str}
#: What goes back or loses a part of the store takes the splits with it that were added since.
FAULTS = ALL_FAULTS - {Fault.LOST_COMMITS, Fault.LOST_PART}


@attrs.define
class Script:
    """A split: (number, second) pairs, when it comes, and whether it goes: never, or when so much was asked."""

    records: list[tuple[int, int]]
    comes: int = 0
    goes: int | None = None


class Topic(df.Source):
    """Splits that come and go by how often the source was asked; all drivers ask the same one."""

    is_bounded = False
    discover_every_ms = 200

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts, self.asked = list(scripts), 0

    def splits(self, desired: int) -> list[tuple[str, int]]:
        return self._there(0)

    def _there(self, asked: int) -> list[tuple[str, int]]:
        return [("topic", n) for n, each in enumerate(self.scripts) if each.comes <= asked]

    def discover(self, known: Sequence[Any]) -> df.SplitChanges:
        self.asked += 1
        if self.asked % 5 == 0:
            raise ConnectionError("the broker does not answer")
        return df.SplitChanges(
            added=[each for each in self._there(self.asked) if each not in known],
            removed=[
                ("topic", n)
                for n, each in enumerate(self.scripts)
                if each.goes is not None and each.goes <= self.asked
            ],
        )

    def open(self, split: tuple[str, int], position: int | None, *, fence: int) -> df.SourceReader:
        return _TopicReader(self.scripts[split[1]], position or 0)


class _TopicReader(df.SourceReader):
    def __init__(self, script: Script, position: int) -> None:
        self._script, self._next = script, position

    def read(self, max_records: int) -> df.SourceBatch:
        found = self._script.records[self._next : self._next + min(2, max_records)]
        self._next += len(found)
        is_over = self._next == len(self._script.records)
        newest = max((second for _, second in self._script.records[: self._next]), default=0)
        end = df.SplitStatus.FINISHED if self._script.goes is None else df.SplitStatus.IDLE
        return df.SourceBatch(
            values=[number for number, _ in found],
            timestamps_us=[second * SECOND_US for _, second in found],
            position=self._next,
            watermark_us=(newest - 5) * SECOND_US,
            status=end if is_over and not found else df.SplitStatus.ACTIVE,
            backlog=df.Backlog(records=len(self._script.records) - self._next),
        )


def topic(random: Random) -> Topic:
    scripts, number = [], 0
    for index in range(random.choice([2, 4, 6])):
        size = random.randint(0, 12)
        records = [(number + each, 20 * each + random.randint(0, 9)) for each in range(size)]
        number += size
        comes = 0 if index == 0 else random.choice([0, 1, 2, 4])
        goes = comes + random.choice([1, 2, 4]) if random.random() < 0.3 else None
        scripts.append(Script(records, comes, goes))
    return Topic(scripts)


def run(
    seed: int, faults: Any = FAULTS, store: MemoryStore | None = None, workers: int = 2
) -> tuple[Topic, list[int], SimulatedCluster]:
    source = topic(Random(f"topic {seed}"))
    p = df.Pipeline(DirectRunner())
    (
        p
        | "read" >> df.Read(source)
        | "key" >> df.Map(lambda number: (number % 3, number))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterWatermark(late=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=timedelta(hours=2),
        )
        | "group" >> df.GroupByKey()
        | "row" >> df.Map(lambda pair: {"numbers": repr(sorted(pair[1]))})
        | "log" >> df.WriteToPostgres("log", columns=ROW)
    )
    graph = p.graph()
    cluster = SimulatedCluster(graph, seed, faults=faults, store=store, workers=workers)
    cluster.run_until(lambda: all_ended(cluster, source))
    assert not cluster.is_over, "the source may get splits, so the job does not end by itself"
    cluster.send_request(Request(Verb.DRAIN))
    cluster.run()
    rows = cluster.store.read_table(graph.tables()[0])
    return source, [each for (text,) in rows for each in ast.literal_eval(text)], cluster


def all_ended(cluster: SimulatedCluster, source: Topic) -> bool:
    job = cluster.store.read_job(JOB)
    assert job is not None
    splits = [row for row in job.ranges.values() if row.split is not None]
    return len(splits) == len(source.scripts) and all(row.is_finished for row in splits)


def check(
    seed: int, faults: Any = FAULTS, store: MemoryStore | None = None, workers: int = 2
) -> Topic:
    source, seen, cluster = run(seed, faults, store, workers)
    counts = Counter(seen)
    assert not cluster.store.read_late(JOB)
    job = cluster.store.read_job(JOB)
    assert job is not None
    for script in source.scripts:
        numbers = [number for number, _ in script.records]
        read = [number for number in numbers if counts[number]]
        # What a removed split has lost is its end.
        assert read == numbers if script.goes is None else read == numbers[: len(read)]
    assert set(counts.values()) <= {1}
    removed = [row for row in job.ranges.values() if row.is_removed]
    assert len(removed) == sum(script.goes is not None for script in source.scripts)
    return source


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_splits_come_and_go(seed: int, workers: int) -> None:
    check(seed, workers=workers)


def test_every_interesting_thing_happens() -> None:
    """Splits that come while others are read, and that go before they have been read to their end."""
    scripts = [each for seed in range(12) for each in topic(Random(f"topic {seed}")).scripts]
    assert sum(each.comes > 0 for each in scripts) > 10
    assert sum(each.goes is not None for each in scripts) > 5


def turns_red(
    faults: Any = FAULTS,
    seeds: int = 25,
    store: type[MemoryStore] = MemoryStore,
    workers: int = 2,
) -> bool:
    for seed in range(seeds):
        try:
            check(seed, faults, store(), workers)
        except (SimulationError, AssertionError):
            return True
    return False


class _TwiceStore(MemoryStore):
    """Adds splits whatever it has."""

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        job = self.read_job(change.job)
        assert job is not None
        known = sum(each.computation == change.computation for each in job.ranges)
        return super().change_splits(attrs.evolve(change, known=known))


class _NoWatermarkStore(MemoryStore):
    """Adds splits without the watermark at which they begin."""

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        rows = super().change_splits(change)
        stored = self._jobs[change.job]
        for each in rows:
            row = stored.ranges[each.range_id]
            if row.bundle == 0:
                stored.ranges[each.range_id] = attrs.evolve(row, watermark_us=None)
        return rows


class _TornStore(MemoryStore):
    """Adds splits by one transaction, and the watermark at which they begin by another, which is cut off."""

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        if change.added and self._has_none_of(change):
            super().change_splits(attrs.evolve(change, watermark_us=MIN_TIMESTAMP_US))
            raise StoreUnreachableError("the connection died between the two")
        return super().change_splits(change)

    def _has_none_of(self, change: SplitsChange) -> bool:
        job = self.read_job(change.job)
        return job is not None and RangeId(change.computation, change.known) not in job.ranges


@pytest.mark.parametrize("store", [_TwiceStore, _NoWatermarkStore, _TornStore])
def test_broken_stores_turn_red(store: type[MemoryStore]) -> None:
    assert turns_red({**dict.fromkeys(FAULTS, 0.0), Fault.LOST_REPLY: 0.3}, store=store)


def test_without_the_hold_it_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = WatermarkAuthority.hold

    def forgotten(self: WatermarkAuthority, source: str) -> int:
        hold_us = hold(self, source)
        self.let_go(source)
        return hold_us

    monkeypatch.setattr(WatermarkAuthority, "hold", forgotten)
    assert turns_red()


def test_a_job_that_does_not_wait_for_splits_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatermarkAuthority, "may_grow", False)
    monkeypatch.setattr(WatermarkAuthority, "_may_get_splits", lambda *_: False)
    assert turns_red()


def test_splits_that_do_not_wait_for_the_sole_owner_turn_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is further than the master knows, and goes on while they are written."""
    monkeypatch.setattr(Master, "takes_splits", lambda _: True)
    assert turns_red(NO_FAULTS, workers=1)


@pytest.mark.slow
def test_a_sole_owner_that_does_not_report_its_watermarks_turns_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The master has it stop, and does not know how far it has come."""
    monkeypatch.setattr(Worker, "_ahead_us", lambda _: {})
    assert turns_red(NO_FAULTS, workers=1)
