"""A pause is quiet: nothing is read, all that was on its way arrives; and afterwards the job goes on."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.simulator.cluster import JOB
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, batches, build, scripted

pytestmark = pytest.mark.slow


@costly(cells=2)
@given(
    script=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 60),
)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_when_a_job_is_paused_nothing_is_in_flight(
    crash_rate: float, script: list[list[tuple[int, int]]], disorder: int, seed: int, rounds: int
) -> None:
    """Whatever dies meanwhile; and the rows at the end are those of the direct runner."""
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct, scripted(script, disorder))
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate)
    left = iter(range(rounds))
    cluster.run_until(lambda: next(left, None) is None)
    assume(not cluster.master.is_done)

    def is_paused() -> bool:
        # Of the driver that there is: another one does not know it.
        cluster.master.is_pausing = True
        return cluster.master.is_paused

    cluster.run_until(is_paused)
    if not cluster.master.is_done:
        assert cluster.master.is_paused
        assert {} == cluster.store.count_state(JOB).in_flight
    cluster.master.is_pausing = False
    cluster.run()
    for spec in direct.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == set(cluster.store.read_table(spec)), f"seed={seed}"


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_paused_job_reads_no_further(seed: int) -> None:
    """However long it takes; when it goes on it reads on from there."""
    script = [[(value, second) for value in range(5)] for second in range(0, 900, 5)]
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted(script, 0))
    cluster = Cluster(pipeline.graph(), seed, 0.0)
    cluster.run_until(lambda: cluster.master.statistics().records_read > 100)
    cluster.master.is_pausing = True
    cluster.run_until(lambda: cluster.master.is_paused)
    assert not cluster.master.is_done
    assert {} == cluster.store.count_state(JOB).in_flight
    read = cluster.master.statistics().records_read
    left = iter(range(100))
    cluster.run_until(lambda: next(left, None) is None)

    assert read == cluster.master.statistics().records_read < 900
    cluster.master.is_pausing = False
    cluster.run()
    assert cluster.master.statistics().records_read == 900
