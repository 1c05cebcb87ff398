"""A source split that is far ahead of the slowest one waits for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.source import SplitStatus
from runners.direct import DirectRunner
from runners.millwheel.model.production import Production
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator.store import SharedStore
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, build_counts
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

pytestmark = pytest.mark.slow

LIMIT_US = 30_000_000
STEP_US = 10_000_000
STEPS = 40


class Race(df.Source):
    """Two splits of one length; one hands over much at a time, the other little."""

    def __init__(self) -> None:
        steps = range(STEPS)
        self.scripts = [ScriptedSource([Batch([1], [n * STEP_US], n * STEP_US) for n in steps])] * 2

    def splits(self, desired: int) -> list[Any]:
        return [0, 1]

    def open(self, split: Any, position: Any, *, fence: int) -> Any:
        script = self.scripts[split]
        return script.open(script.splits(1)[0], position, fence=0)


class Watched(SharedStore):
    """Compares the splits after every commit."""

    ahead_us = 0

    def commit(self, who: str, production: Production) -> Any:
        outcome = super().commit(who, production)
        job = self.inner.read_job("sim")
        assert job is not None
        sources_us = [
            MIN_TIMESTAMP_US if row.watermark_us is None else row.watermark_us
            for row in job.ranges.values()
            if row.split is not None
        ]
        # What a split has that has not begun nobody knows, and of one that has ended it does not matter.
        if min(sources_us) > MIN_TIMESTAMP_US and max(sources_us) < MAX_TIMESTAMP_US:
            self.ahead_us = max(self.ahead_us, max(sources_us) - min(sources_us))
        return outcome


def race(seed: int, crash_rate: float, limit_us: int | None) -> tuple[Watched, Cluster]:
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, Race())
    options = WorkerOptions(skew_limit_us=limit_us)
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=options)
    shared: Any = cluster.shared
    shared.__class__ = Watched
    cluster.run()
    return shared, cluster


@pytest.mark.parametrize("crash_rate", [0.0, 0.05])
@costly(cells=2)
@given(seed=st.integers(0, 2**32))
def test_no_split_is_further_ahead_than_the_limit(crash_rate: float, seed: int) -> None:
    """But by the batch with which it passes it; and all of it arrives."""
    shared, cluster = race(seed, crash_rate, LIMIT_US)

    assert shared.ahead_us <= LIMIT_US + STEP_US, f"seed={seed}"
    counted = sum(int(each[3]) for each in cluster.store.read_table(cluster.spec.tables[0]))
    late = sum(each["count"] for each in cluster.store.read_late("sim"))
    assert counted + late == 2 * STEPS, f"seed={seed}"


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_split_that_waits_for_the_others_is_not_taken_for_idle(seed: int) -> None:
    """It was, when it was polled last; whether it has something by now nobody knows, so time waits for it too."""
    nothing = Batch([], [], 9 * STEP_US, SplitStatus.IDLE)
    ahead = [Batch([1], [0], 0), nothing, Batch([1], [10 * STEP_US], 11 * STEP_US)]
    slow = [Batch([1], [n * STEP_US], n * STEP_US) for n in (0, 1, 2, 3, 4, 5, 30)]
    source = ScriptedSource(ahead, slow)
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, source)
    # One record in five seconds: before the slow one has caught up, the lease of whoever has the other is over.
    options = WorkerOptions(skew_limit_us=LIMIT_US, records_per_second=0.2)
    cluster = Cluster(pipeline.graph(), seed, 0.0, options=options)
    cluster.run()

    assert cluster.store.read_late("sim") == []


def test_without_a_limit_one_runs_ahead() -> None:
    """So the test above can fail."""
    ahead_us = max(race(seed, 0.0, None)[0].ahead_us for seed in range(20))

    assert ahead_us > LIMIT_US + STEP_US


@pytest.mark.parametrize("seed", range(3))
def test_with_a_limit_of_nothing_the_slowest_split_goes_on(seed: int) -> None:
    """A split that is exactly as far ahead as it may be reads on, and the slowest is always."""
    _, cluster = race(seed, 0.0, 0)

    counted = sum(int(each[3]) for each in cluster.store.read_table(cluster.spec.tables[0]))
    assert counted == 2 * STEPS
