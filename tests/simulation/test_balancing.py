"""The balancer on a simulated cluster: a hot range is split and its half moves, and the rows are what they were."""

from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.core.ground.key_codec import KeyCodec
from runners.direct import DirectRunner
from runners.millwheel.master.balancer import Balancer
from runners.millwheel.master.load_policy import Change, MoveRange, PolicyOptions, SplitRange
from runners.millwheel.master.master import Master
from runners.millwheel.master.placement_policy import Placement
from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing import simulator
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import lengthy
from tests.simulation.test_worker_crashes import COLUMNS, row

pytestmark = pytest.mark.slow

SLOTS, RANGES = 3, 3
#: As many keys as these are hot: all of the first range.
KEYS = [
    key for key in range(600) if KeyCodec("sum").encode(key).hash < KEY_SPACE_END // RANGES
]  # fmt: skip
OPTIONS = PolicyOptions(
    records_min=50, hashes_min=8, patience=2, merge_patience=6, pause=2, ranges_min=2
)


def hot(chance: Random, batches: int) -> ScriptedSource:
    """Nearly all records are of keys in one range."""
    script = []
    for number in range(batches):
        keys = [*chance.sample(KEYS, 40), chance.randrange(600)]
        times_us = [(number + chance.randrange(30)) * 1_000_000 for _ in keys]
        script.append(Batch([(key, 1) for key in keys], times_us, number * 1_000_000))
    return ScriptedSource(script)


def build(p: df.Pipeline, source: df.Source) -> None:
    (
        p
        | "read" >> df.Read(source)
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start"])
    )


class BalancedCluster(simulator.SimulatedCluster):
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
            self.balancer = Balancer(
                self.master, SLOTS, self._driver_clock, load=OPTIONS, interval_ms=250
            )
            self.balancer.changes = self.changes
        self._in_driver(self.balancer.step)


@lengthy(cells=2)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("faults", [simulator.NO_FAULTS, simulator.ALL_FAULTS])
def test_rows_equal_the_direct_runner(faults: Any, seed: int) -> None:
    source = hot(Random(seed), 30)
    direct = df.Pipeline(DirectRunner())
    build(direct, source)
    expected = direct.run()
    cluster = BalancedCluster(direct.graph(), seed, faults)
    cluster.run()
    (table,) = direct.graph().tables()

    rows = {tuple(each.values()) for each in expected.read_table(table.name)}
    assert rows == set(cluster.store.read_table(table)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []


class FullStepsCluster(BalancedCluster):
    """Its workers do as much in a step as those of a running job, whatever the seed."""

    # Others than the default, in whose place the seed decides.
    limits = WorkerOptions(steps=attrs.evolve(STEP_LIMITS, deliveries=STEP_LIMITS.deliveries + 1))


def test_a_hot_range_is_split_and_its_half_moves() -> None:
    """Of more records than workers that take them one by one get through before a simulated run must be over."""
    source = hot(Random(1), 400)
    direct = df.Pipeline(DirectRunner())
    build(direct, source)
    cluster = FullStepsCluster(direct.graph(), 1, simulator.NO_FAULTS)
    cluster.run_until(lambda: {SplitRange, MoveRange} <= {type(each) for each in cluster.changes})
    assert not cluster.master.is_done
    (split,) = [each for each in cluster.changes if isinstance(each, SplitRange)]
    assert split.range_id.index == 0
    cluster.run()
    (table,) = direct.graph().tables()

    rows = {tuple(each.values()) for each in direct.run().read_table(table.name)}
    assert rows == set(cluster.store.read_table(table))
    # A policy that cannot make up its mind changes something at every look.
    assert len(cluster.changes) <= 12, cluster.changes
