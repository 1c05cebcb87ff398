"""A worker that has all ranges computes the watermarks itself (ADR 0111): when windows fire, and what is late."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.direct import DirectRunner
from runners.millwheel.worker import worker as workers
from runners.millwheel.worker.own_watermarks import OwnWatermarks
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.worker import OWN_WATERMARK_INTERVAL_MS, Worker
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import NO_FAULTS, SimulationError
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from runners.testing.simulator.fault import Fault
from tests.effort import each_third
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

WINDOW_S, BATCHES = 10, 30
FIRST = "first"
SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())
COLUMNS = {"key": int, "end": float, "total": int}
#: Others than the default, in whose place the seed decides.
FULL_STEPS = WorkerOptions(steps=attrs.evolve(STEP_LIMITS, deliveries=STEP_LIMITS.deliveries + 1))
CRASHES = {Fault.CRASH: 0.05}
FAULTS: Sequence[tuple[Mapping[Fault, float], int]] = [
    (CRASHES, 1),
    ({Fault.CRASH: 0.05, Fault.DRIVER_CRASH: 0.05}, 1),
    ({Fault.MOVE: 0.05, Fault.DELAY: 0.5}, 2),
    ({Fault.MOVE: 0.1, Fault.CRASH: 0.05, Fault.ZOMBIE: 0.05, Fault.DELAY: 1.0}, 2),
]


def chain(seed: int) -> tuple[PipelineGraph, int]:
    """Three groupings in the same windows over a source that is often late, and how many records it has."""
    random = Random(f"chain {seed}")
    script = []
    for index in range(BATCHES):
        pairs, timestamps_us = [], []
        for _ in range(random.randint(0, 3)):
            window = index - random.choice([0, 0, 0, 1, 1, 2])
            pairs.append((random.randrange(12), 1))
            second = max(0, window * WINDOW_S + random.randrange(WINDOW_S))
            timestamps_us.append(second * 1_000_000)
        script.append(Batch(pairs, timestamps_us, index * WINDOW_S * 1_000_000))
    p = df.Pipeline(DirectRunner())
    windows = df.WindowInto(
        df.FixedWindows(WINDOW_S), accumulation_mode=df.AccumulationMode.DISCARDING
    )
    sums = p | "read" >> df.Read(ScriptedSource(script)) | windows | FIRST >> df.CombinePerKey(sum)
    for name, keys in (("second", 5), ("third", 2)):
        few = sums | f"to {name}" >> df.MapTuple(lambda key, total, n=keys: (key % n, total))
        sums = few | name >> df.CombinePerKey(sum)
    sums | "row" >> df.Map(_row) | "log" >> df.WriteToPostgres("log", columns=COLUMNS)
    return p.graph(), sum(len(each.values) for each in script)


def _row(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"key": pair[0], "end": window.end.timestamp(), "total": pair[1]}


def check(seed: int, faults: Mapping[Fault, float], workers: int) -> None:
    graph, records = chain(seed)
    cluster = SimulatedCluster(graph, seed, faults=faults, workers=workers)
    cluster.run()
    late = cluster.store.read_late(JOB)
    rows = cluster.store.read_table(graph.tables()[0])
    where = f"seed={seed}, faults={faults}, workers={workers}"
    assert {each["transform"] for each in late} <= {FIRST}, where
    assert sum(each["count"] for each in late) + sum(row[2] for row in rows) == records, where
    assert set(Counter(row[:2] for row in rows).values()) <= {1}, where


@pytest.mark.slow
@pytest.mark.parametrize("seed", each_third(range(3), 0))
@pytest.mark.parametrize(("faults", "workers"), FAULTS)
def test_only_the_first_grouping_has_late_records(
    faults: Mapping[Fault, float], workers: int, seed: int
) -> None:
    """A record that is in time for it is in time for those behind it, whoever dies, and each pane is emitted once."""
    check(seed, faults, workers)


def test_without_its_senders_in_the_store_it_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their next owner takes records to be in time whose output is late for a grouping that has fired."""
    monkeypatch.setattr(OwnWatermarks, "behind_in_store", lambda *_: [])
    with pytest.raises(SimulationError, match=r"I4: .*no master has sent"):
        check(0, CRASHES, workers=1)


ON_NEWS = Worker._on_news


def without_watermarks(worker: Worker, news: Any) -> None:
    """News of the master that has no watermarks."""
    ON_NEWS(worker, attrs.evolve(news, inputs_us={}))


def test_windows_fire_without_an_answer_of_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the commit that has read past their end, in all of three groupings."""
    graph, _ = chain(1)
    cluster = SimulatedCluster(graph, 1, faults=NO_FAULTS, workers=1, options=FULL_STEPS)
    (table,) = graph.tables()
    seen = set[tuple[float, float]]()

    def is_read() -> bool:
        job = cluster.store.read_job(JOB)
        assert job is not None
        (split,) = [row for row in job.ranges.values() if row.split is not None]
        ends = [row[1] for row in cluster.store.read_table(table)]
        if ends and split.watermark_us is not None:
            seen.add((max(ends), split.watermark_us / 1_000_000))
        return split.is_finished

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Worker, "_on_news", without_watermarks)
        cluster.run_until(is_read)
    at_once = [end for end, reached in seen if end == reached]
    cluster.run()

    assert len(at_once) > len(seen) / 2, sorted(seen)


class Seen(df.DoFn):
    """Has state, and neither windows that fire nor timers."""

    def process(
        self, element: tuple[int, int], count: Any = df.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[int, int]]:
        """Count it, and pass it on."""
        count.add(1)
        yield element


def stateful_chain() -> PipelineGraph:
    """Three stages by which nothing is due, over a source that goes on for a second of event time with each batch."""
    script = [
        Batch([(index % 3, index)], [index * 1_000_000], index * 1_000_000)
        for index in range(BATCHES)
    ]
    p = df.Pipeline(DirectRunner())
    passed: Any = p | "read" >> df.Read(ScriptedSource(script))
    for number in range(3):
        passed = passed | f"stage {number}" >> df.ParDo(Seen())
    rows = passed | df.MapTuple(lambda key, number: {"key": key, "number": number})
    rows | "log" >> df.WriteToPostgres("log", columns={"key": int, "number": int})
    return p.graph()


def committed_us(cluster: SimulatedCluster) -> dict[str, int]:
    """The watermark of each stage, as its ranges have committed it, in microseconds."""
    job = cluster.store.read_job(JOB)
    assert job is not None
    found = dict[str, int]()
    for range_id, row in job.ranges.items():
        us = MIN_TIMESTAMP_US if row.watermark_us is None else row.watermark_us
        found[range_id.computation] = max(us, found.get(range_id.computation, us))
    return found


@pytest.mark.parametrize("interval_ms", [OWN_WATERMARK_INTERVAL_MS, 1 << 60])
def test_watermarks_by_which_nothing_is_due_move_without_the_master(
    interval_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a chain in one round, and so they are no further behind, the more stages there are."""
    cluster = SimulatedCluster(stateful_chain(), 1, faults=NO_FAULTS, workers=1, options=FULL_STEPS)
    behind_s = set[float]()

    def is_read() -> bool:
        us = committed_us(cluster)
        if MIN_TIMESTAMP_US < us["read"] < MAX_TIMESTAMP_US:
            behind_s.add((us["read"] - us["stage 2"]) / 1_000_000)
        return us["read"] == MAX_TIMESTAMP_US

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Worker, "_on_news", without_watermarks)
        meanwhile.setattr(workers, "OWN_WATERMARK_INTERVAL_MS", interval_ms)
        cluster.run_until(is_read)
    cluster.run()

    is_moved = interval_ms == OWN_WATERMARK_INTERVAL_MS
    assert (min(behind_s) <= 1.0) is is_moved, sorted(behind_s)
