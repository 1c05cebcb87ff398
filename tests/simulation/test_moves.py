"""Ranges that move while the job runs, by hand and because their worker sends nothing; and zombies that go on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.master.slots import LEASE_TTL_MS
from runners.millwheel.worker.worker import Worker
from tests.effort import costly
from tests.simulation.test_worker_crashes import (
    SLOTS,
    Cluster,
    batches,
    build,
    build_counts,
    scripted,
)

TRIGGER = df.AfterWatermark(early=df.AfterProcessingTime(0.2), late=df.AfterCount(1))


class Sleepy:
    """A worker that is stopped now and then, for shorter or longer than its lease, and goes on as if nothing was."""

    def __init__(self, worker: Worker, cluster: "RestlessCluster") -> None:
        self.worker, self.cluster = worker, cluster
        self.until_ms = 0

    def step(self) -> bool:
        """While it is stopped it is as one that is busy: it does not find out that nobody sends to it."""
        now_ms = self.cluster.clock.monotonic_ms()
        if now_ms < self.until_ms:
            # It is down as after a fault: who is not served meanwhile waits for that.
            self.cluster._waits.begin_again()
            self.cluster._resends.begin_again()
            return True
        if self.cluster.random.random() < self.cluster.sleep_rate:
            self.until_ms = now_ms + self.cluster.random.choice([500, 2 * LEASE_TTL_MS])
            self.cluster.sleeps += 1
            return True
        return self.worker.step()


class RestlessCluster(Cluster):
    """Moves ranges at random, and stops workers."""

    sleep_rate = move_rate = 0.0
    sleeps = moves = 0

    def start_worker(self, slot: int) -> Any:
        worker: Any = super().start_worker(slot)
        return Sleepy(worker, self)

    def run(self) -> None:
        def is_done() -> bool:
            if self.random.random() < self.move_rate:
                ranges = self.random.sample(sorted(self.ranges), k=2)
                self.master.move(ranges, self.random.randrange(SLOTS))
                self.moves += 1
                # They move until the job could end, not for ever.
                self.move_rate *= 0.98
                self.sleep_rate *= 0.98
            return self.master.is_done

        self.ranges = [each.range_id for each in self.spec.ranges]
        self.run_until(is_done)
        super().run()


def restless(graph: Any, seed: int, crash_rate: float) -> RestlessCluster:
    cluster = RestlessCluster(graph, seed, crash_rate)
    cluster.sleep_rate, cluster.move_rate = 0.02, 0.2
    return cluster


@pytest.mark.slow
@costly(cells=2)
@given(batches=batches, disorder=st.integers(0, 300), seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.05])
def test_rows_equal_the_direct_runner(
    crash_rate: float, batches: list[list[tuple[int, int]]], disorder: int, seed: int
) -> None:
    """Wherever the ranges are and whoever sleeps, the tables end up as without any of it; nothing is left open."""
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct, scripted(batches, disorder), TRIGGER)
    expected = direct.run()
    cluster = restless(direct.graph(), seed, crash_rate)
    cluster.run()

    for spec in direct.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == set(cluster.store.read_table(spec)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


@costly()
@given(batches=batches, seed=st.integers(0, 2**32))
def test_a_record_is_in_the_result_or_among_the_late(
    batches: list[list[tuple[int, int]]], seed: int
) -> None:
    """Exactly once, with a watermark that is often wrong."""
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, scripted(batches, 0))
    cluster = restless(pipeline.graph(), seed, 0.05)
    cluster.run()
    (table,) = pipeline.graph().tables()
    counted = sum(int(each[3]) for each in cluster.store.read_table(table))
    late = sum(each["count"] for each in cluster.store.read_late("sim"))

    assert sum(map(len, batches)) == counted + late, f"seed={seed}"


@pytest.mark.slow
def test_a_worker_that_sends_nothing_loses_its_ranges() -> None:
    """The others end the job without it."""
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, scripted([[(1, second), (2, second)] for second in range(0, 600, 5)], 0))
    cluster = RestlessCluster(pipeline.graph(), 7, 0.0)
    process: Any = cluster.workers[0]
    process.stepper.until_ms = 1 << 60
    cluster.run()
    (table,) = pipeline.graph().tables()

    assert sum(int(each[3]) for each in cluster.store.read_table(table)) == 240
    assert cluster.master.statistics().workers_replaced >= 1
