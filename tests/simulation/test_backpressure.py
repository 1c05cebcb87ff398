"""A slow computation slows the source down: what is on the way is bounded, and nothing is lost or done twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.worker import reading_pace
from runners.millwheel.worker.worker import Worker
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import cluster as cluster_module
from runners.testing.simulator.process import WorkerProcess
from tests.effort import lengthy
from tests.simulation.test_worker_crashes import SLOTS, Cluster

LIMIT_BYTES = 2_000
#: What one step can add to what is open: all that has come in meanwhile, emitted with its padding.
SLACK_BYTES = 28_000
RECORDS = 2_000
#: What is emitted is larger than what came in, so that the computation in the middle has the most to send.
PADDING = "x" * 100


def flood(on_one_key: float, hot_key: int) -> ScriptedSource:
    """Records as fast as they are read, so many of them on one key."""
    hot = int(on_one_key * 20)
    values = [(hot_key if number % 20 < hot else number % 97, number) for number in range(RECORDS)]
    return ScriptedSource(
        [
            Batch(
                values[start : start + 20], [each[1] * 1_000 for each in values[start : start + 20]]
            )
            for start in range(0, RECORDS, 20)
        ]
    )


class WatchedCluster(Cluster):
    """Remembers the most that was ever on the way, and lets the worker of one slot be slow."""

    #: Slow is not stuck.
    live_ms = 1 << 40
    most_bytes = most_waiting = most_source_bytes = 0
    slowness, slow_slot = 0.0, 1

    def start_worker(self, slot: int) -> Any:
        worker: Any = super().start_worker(slot)
        return Watched(worker, self)

    def _step(self, process: WorkerProcess) -> None:
        if process.slot == self.slow_slot and self.random.random() < self.slowness:
            # It takes its time, which is none that it has worked.
            self._lull = 0
            return
        super()._step(process)


class Watched:
    """A worker that is looked at between its steps."""

    def __init__(self, worker: Worker, cluster: WatchedCluster) -> None:
        self.worker, self.cluster = worker, cluster

    def step(self) -> bool:
        worked = self.worker.step()
        sent = [owned.outbox.open_bytes for owned in self.worker._ranges.values()]
        self.cluster.most_bytes = max(self.cluster.most_bytes, *sent, 0)
        from_sources = [
            owned.outbox.open_bytes
            for owned in self.worker._ranges.values()
            if owned.range_id.computation == "read"
        ]
        self.cluster.most_source_bytes = max(self.cluster.most_source_bytes, sum(from_sources))
        self.cluster.most_waiting = max(self.cluster.most_waiting, len(self.worker._courier.inbox))
        return worked


@lengthy(cells=SLOTS)
@given(
    seed=st.integers(0, 2**32),
    slowness=st.sampled_from([0.0, 0.9, 0.97]),
    on_one_key=st.sampled_from([0.0, 0.9, 1.0]),
    hot_key=st.integers(0, 9),
)
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("slow_slot", range(SLOTS))
def test_what_is_on_the_way_is_bounded(
    slow_slot: int, seed: int, slowness: float, on_one_key: float, hot_key: int
) -> None:
    """Whoever is slow, and however many records are on one key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_pace, "UNACKNOWLEDGED_BYTES_MAX", LIMIT_BYTES)
        patch.setattr(cluster_module, "ROUNDS_MAX", 1 << 20)
        pipeline = df.Pipeline(DirectRunner())
        (
            pipeline
            | "read" >> df.Read(flood(on_one_key, hot_key))
            | "global"
            >> df.WindowInto(
                df.GlobalWindows(),
                trigger=df.Repeatedly(df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode.DISCARDING,
            )
            | "first" >> df.GroupByKey()
            | "spread" >> df.FlatMap(lambda pair: [(v % 7, (v, PADDING + str(v))) for v in pair[1]])
            | "second" >> df.GroupByKey()
            | "row" >> df.Map(lambda pair: {"key": pair[0], "total": sum(v for v, _ in pair[1])})
            | "write" >> df.WriteToPostgres("totals", columns={"key": int, "total": int})
        )
        patch.setattr(WatchedCluster, "slow_slot", slow_slot)
        patch.setattr(WatchedCluster, "slowness", slowness)
        cluster = WatchedCluster(pipeline.graph(), seed, 0.0)
        cluster.run()
    (table,) = pipeline.graph().tables()

    assert sum(total for _, total in cluster.store.read_table(table)) == sum(range(RECORDS))
    assert cluster.most_bytes <= LIMIT_BYTES + SLACK_BYTES, f"seed={seed}"
    assert cluster.most_waiting <= 200, f"seed={seed}"


@pytest.mark.nightly
@lengthy(cells=1)
@given(seed=st.integers(0, 2**32), slowness=st.sampled_from([0.9, 0.97]))
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_splits_together_are_bounded_and_each_has_its_turn(seed: int, slowness: float) -> None:
    """A receiver of a thousand splits would otherwise have a thousand times the bound of one."""
    splits = 24
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(ScriptedSource(*(_script(split) for split in range(splits))))
        | "group" >> df.GroupByKey()
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": len(set(pair[1]))})
        | "write" >> df.WriteToPostgres("totals", columns={"key": int, "total": int})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_pace, "SOURCES_UNACKNOWLEDGED_BYTES_MAX", LIMIT_BYTES)
        patch.setattr(cluster_module, "ROUNDS_MAX", 1 << 20)
        patch.setattr(WatchedCluster, "slow_slot", 1)
        patch.setattr(WatchedCluster, "slowness", slowness)
        cluster = WatchedCluster(pipeline.graph(), seed, 0.0)
        cluster.run()
    (table,) = pipeline.graph().tables()

    assert sum(total for _, total in cluster.store.read_table(table)) == splits * 40, f"seed={seed}"
    # What one split reads in a step may go over the bound, and what a split brings that comes from another worker.
    assert cluster.most_source_bytes <= LIMIT_BYTES + 8_000, f"seed={seed}"


def _script(split: int) -> list[Batch]:
    values = [(number % 5, (split, number, PADDING)) for number in range(40)]
    return [Batch(values[start : start + 5], [start] * 5) for start in range(0, 40, 5)]
