"""A sender that waits for who receives from it, and a split that is too far ahead, are reported if it lasts."""

from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.master.master import Master
from runners.millwheel.model.long_waits import OVER
from runners.millwheel.model.troubles import TroubleKind
from runners.millwheel.worker import reading_pace
from runners.millwheel.worker.reading_pace import HELD_UP_REPORTED_AFTER_MS
from runners.millwheel.worker.worker import Worker
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.simulation.test_worker_crashes import Cluster

SHORT_MS, LONG_MS = HELD_UP_REPORTED_AFTER_MS // 2, 3 * HELD_UP_REPORTED_AFTER_MS
SECOND_US = 1_000_000


class WaitingCluster(Cluster):
    """The grouping ``deaf`` takes nothing in before some time has passed; remembers what the master has noted."""

    deaf, deaf_ms = "", 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.noted: list[tuple[TroubleKind, str, str]] = []

    def run(self) -> None:
        super().run()
        self.noted += noted(self.master)

    def start_worker(self, slot: int) -> Any:
        worker: Any = super().start_worker(slot)
        take_deliveries, clock = worker._take_deliveries, self.clock

        def take(name: str, computation: Any) -> bool:
            is_deaf = name == self.deaf and clock.monotonic_ms() < self.deaf_ms
            return False if is_deaf else bool(take_deliveries(name, computation))

        worker._take_deliveries = take
        return worker


def noted(master: Master) -> list[tuple[TroubleKind, str, str]]:
    return [(each.kind, each.place, each.headline) for each in master.troubles.take()]


def two_groupings(p: df.Pipeline) -> None:
    """What is emitted is larger than what came in, so that the first of them has something to wait with."""
    values = [(number % 7, number) for number in range(600)]
    script = [
        Batch(values[start : start + 20], [start * SECOND_US] * 20) for start in range(0, 600, 20)
    ]
    (
        p
        | "read" >> df.Read(ScriptedSource(script))
        | "global"
        >> df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "first" >> df.GroupByKey()
        | "spread" >> df.FlatMap(lambda pair: [(v % 7, "x" * 100) for v in pair[1]])
        | "second" >> df.GroupByKey()
    )


def waited(
    monkeypatch: pytest.MonkeyPatch, deaf: str, deaf_ms: int
) -> list[tuple[TroubleKind, str, str]]:
    monkeypatch.setattr(reading_pace, "UNACKNOWLEDGED_BYTES_MAX", 1_000)
    monkeypatch.setattr(WaitingCluster, "deaf", deaf)
    monkeypatch.setattr(WaitingCluster, "deaf_ms", deaf_ms)
    pipeline = df.Pipeline(DirectRunner())
    two_groupings(pipeline)
    cluster = WaitingCluster(pipeline.graph(), 1, 0.0)
    cluster.run()
    return cluster.noted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deaf", "waits"), [("first", {"read[0]"}), ("second", {"first in slot 0", "first in slot 1"})]
)
def test_a_sender_that_waits_for_long_is_reported_and_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, deaf: str, waits: set[str]
) -> None:
    """With whoever does not take in what it was sent, and once, however often it looks."""
    reported = waited(monkeypatch, deaf, LONG_MS)

    assert {(place, kind) for kind, place, _ in reported} >= {
        (place, kind) for place in waits for kind in (TroubleKind.WAIT, TroubleKind.RESUMED)
    }
    assert len(reported) == len({(kind, place) for kind, place, _ in reported})
    for kind, place, headline in reported:
        if kind is TroubleKind.RESUMED:
            assert headline == OVER
        elif place in waits:
            assert f"most of it by {deaf}[" in headline


@pytest.mark.slow
def test_short_waits_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is faster than who receives from it waits all the time, for moments."""
    assert waited(monkeypatch, "first", SHORT_MS) == []
    assert waited(monkeypatch, "second", SHORT_MS) == []


class Race(df.Source):
    """A split with much, and one in which nothing comes for long."""

    def splits(self, desired: int) -> list[Any]:
        return [0, 1]

    def open(self, split: Any, position: Any, *, fence: int) -> Any:
        far = [Batch([1], [n * 10 * SECOND_US], n * 10 * SECOND_US) for n in range(40)]
        near = [Batch([1], [0], 0)]
        script = ScriptedSource(far if split == 0 else near)
        return script.open(script.splits(1)[0], position, fence=0)


@pytest.mark.slow
def test_a_split_that_is_too_far_ahead_for_long_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for the slowest one."""
    read = Worker._read
    began: dict[str, int] = {}

    def slow(worker: Worker, computation: Any) -> bool:
        clock: Any = worker._clock
        since_ms = began.setdefault("all", clock.monotonic_ms())
        is_over = clock.monotonic_ms() - since_ms > LONG_MS
        find = computation.unfinished
        computation.unfinished = lambda: [
            each for each in find() if each.range_id.index == 0 or is_over
        ]
        try:
            return read(worker, computation)
        finally:
            computation.unfinished = find

    monkeypatch.setattr(Worker, "_read", slow)
    pipeline = df.Pipeline(DirectRunner())
    pipeline | "read" >> df.Read(Race()) | "key" >> df.Map(lambda n: (n, n)) | df.GroupByKey()
    options = WorkerOptions(skew_limit_us=30 * SECOND_US)
    cluster = WaitingCluster(pipeline.graph(), 1, 0.0, options=options)
    cluster.run()

    place, why = "read[0]", "it is further ahead of the slowest split than skew_limit allows"
    assert cluster.noted == [
        (TroubleKind.WAIT, place, why),
        (TroubleKind.RESUMED, place, OVER),
    ]
