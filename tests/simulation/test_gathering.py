"""A job that is gathered in one slot and spread again, on a simulated cluster: the rows are what they were."""

from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.direct import DirectRunner
from runners.millwheel.master.balancer import Balancer
from runners.millwheel.master.load_policy import Change
from runners.millwheel.master.master import Master
from runners.millwheel.master.placement_policy import Placement, PlacementOptions
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing import simulator
from tests.effort import lengthy
from tests.simulation.test_balancing import build, hot

pytestmark = pytest.mark.slow

SLOTS, RANGES = 3, 4
OPTIONS = PlacementOptions(
    state_bytes_max=1 << 40,
    calm_patience=2,
    hot_patience=1,
    slow_patience=1,
    less=1.0,
    warm_up=1,
    measured=1,
)


class MoodyBalancer(Balancer):
    """What it takes for load is chance: the clock of a simulation does not move while a worker works."""

    chance: Random

    def _long_share(self, *_: object) -> float:
        return self.chance.choice([0.0, 0.0, 0.0, 1.0])

    def _long_round_ms(self, *_: object) -> float:
        return self.chance.choice([1.0, 1.0, 1_000.0])


class GatheringCluster(simulator.SimulatedCluster):
    """Each driver has a balancer, which looks often."""

    balanced: Master | None = None
    limits = WorkerOptions()

    def __init__(self, graph: PipelineGraph, seed: int, faults: Any) -> None:
        self.changes: list[Change | Placement] = []
        super().__init__(
            graph,
            seed,
            faults=faults,
            workers=SLOTS,
            ranges_per_grouping=RANGES,
            options=self.limits,
        )

    def _step_master(self) -> None:
        super()._step_master()
        if self._is_driver_dead or self._is_over:
            return
        if self.balanced is not self.master:
            self.balanced = self.master
            self.balancer = MoodyBalancer(
                self.master, SLOTS, self._driver_clock, placement=OPTIONS, interval_ms=100
            )
            self.balancer.chance = Random(len(self.changes))
            self.balancer.changes = self.changes
        self._in_driver(self.balancer.step)

    def kill_who_has_everything(self) -> bool:
        """Kill the worker of the slot that has all ranges, if there is one; returns whether there was."""
        slots = {*self.master.ranges.values()}
        process = self.workers[slots.pop()] if len(slots) == 1 else None
        if process is None or process.is_dead or not self.master.is_at_rest:
            return False
        process.die()
        return True


class FullStepsCluster(GatheringCluster):
    """Its workers do as much in a step as those of a running job, so that many records do not take long."""

    # Others than the default, in whose place the seed decides.
    limits = WorkerOptions(steps=attrs.evolve(STEP_LIMITS, deliveries=STEP_LIMITS.deliveries + 1))


def expected_of(source: df.Source) -> tuple[PipelineGraph, set[tuple[Any, ...]]]:
    direct = df.Pipeline(DirectRunner())
    build(direct, source)
    (table,) = direct.graph().tables()
    rows = direct.run().read_table(table.name)
    return direct.graph(), {tuple(each.values()) for each in rows}


def check_rows(cluster: GatheringCluster, rows: set[tuple[Any, ...]], seed: int) -> None:
    (table,) = cluster.plan.graph.tables()
    assert rows == set(cluster.store.read_table(table)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []


@lengthy(cells=2)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("faults", [simulator.NO_FAULTS, simulator.ALL_FAULTS])
def test_rows_equal_the_direct_runner(faults: Any, seed: int) -> None:
    graph, rows = expected_of(hot(Random(seed), 30))
    cluster = GatheringCluster(graph, seed, faults)
    cluster.run()

    check_rows(cluster, rows, seed)


# In which the job is gathered twice.
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_who_has_everything_dies(seed: int) -> None:
    """Twice, and the job goes on from what is committed; it is gathered and spread meanwhile."""
    graph, rows = expected_of(hot(Random(seed), 150))
    cluster = FullStepsCluster(graph, seed, simulator.NO_FAULTS)
    for _ in range(2):
        cluster.run_until(cluster.kill_who_has_everything)
        assert not cluster.is_over
    cluster.run()

    check_rows(cluster, rows, seed)
    assert len(cluster.changes) >= 2, cluster.changes
