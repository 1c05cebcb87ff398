"""What is pruned of a job is missed by nobody, whatever splits, merges and dies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.simulator import ALL_FAULTS
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from tests.effort import lengthy
from tests.simulation.bad_seeds import known_first
from tests.simulation.test_worker_crashes import build_counts, scripted

pytestmark = pytest.mark.slow


#: Longer than a message can be on its way here, or a worker asleep.
AGE_MS = 25_000


class PruningCluster(SimulatedCluster):
    """Somebody prunes all the time what was done with long enough ago."""

    pruned, live_ms = 0, 300_000

    def start_driver(self) -> None:
        self.store._clock = self.clock
        super().start_driver()

    def _round(self) -> None:
        if self.random.random() < 0.02:
            counts = self.store.prune(JOB, older_than_s=AGE_MS / 1_000, retired=self.master.retired)
            self.pruned += counts["ranges"]
        super()._round()


def run(seed: int) -> tuple[int, int]:
    """How many records the table counts, and how many ranges were pruned."""
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, scripted([[(n, 7 * n), (n + 1, 7 * n)] for n in range(200)], 0))
    # Slow, so that there is something left to do when what was merged is old enough.
    options = WorkerOptions(records_per_second=3.0)
    cluster = PruningCluster(
        pipeline.graph(), seed, faults=ALL_FAULTS, store=MemoryStore(), options=options
    )
    cluster.run()
    (table,) = pipeline.graph().tables()
    return sum(int(row[3]) for row in cluster.store.read_table(table)), cluster.pruned


@lengthy(cells=1)
@given(seed=st.integers(0, 2**32))
def test_the_counts_are_right_although_ranges_are_pruned(seed: int) -> None:
    counted, _ = run(seed)
    assert counted == 400, f"seed={seed}"


@pytest.mark.timeout(600)
def test_seeds_prune_something() -> None:
    """Or the test above would show nothing."""
    assert any(run(seed)[1] for seed in known_first(26, 100))
