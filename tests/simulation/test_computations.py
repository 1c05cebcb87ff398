"""Topologies over the real master and workers, some of which die: every record counts once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.computations import Topology
from runners.direct import DirectRunner
from tests.effort import costly
from tests.property.test_computations import VISITS, never_late
from tests.simulation.test_worker_crashes import Cluster, batches, scripted
from tests.visit_topology import COLUMNS, Flush, Visit, build, expected, row


@pytest.mark.slow
@costly(cells=2)
@given(script=VISITS, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_rows_are_those_of_a_sorted_list(
    crash_rate: float, script: list[list[tuple[Visit, int]]], seed: int
) -> None:
    """State, event-time timers of any tags, and streams between computations, whatever dies."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, never_late(script))
    cluster = Cluster(pipeline.graph(), seed, crash_rate)
    cluster.run()

    tables = {
        spec.name: sorted(cluster.store.read_table(spec)) for spec in pipeline.graph().tables()
    }
    assert expected(visit for batch in script for visit in batch) == tables, f"seed={seed}"
    assert [] == cluster.store.read_late("sim")
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


@costly()
@given(batches=batches, seed=st.integers(0, 2**32), disorder=st.integers(0, 300))
def test_what_waits_for_the_clock_is_emitted_once(
    batches: list[list[tuple[int, int]]], seed: int, disorder: int
) -> None:
    """Late records too: nothing is dropped before a computation."""
    pipeline = df.Pipeline(DirectRunner())
    streams = pipeline | Topology().injector("in", scripted(batches, disorder)).computation(
        "flush", Flush(), inputs={"in": lambda value: value % 3}, outputs=["sums"]
    )
    sums: Any = streams["sums"] | "sum" >> df.Map(lambda total: total[1])
    rows: Any = sums | "row" >> df.Map(row)
    rows | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    cluster = Cluster(pipeline.graph(), seed, crash_rate=0.1)
    cluster.run()
    (table,) = pipeline.graph().tables()
    total = sum(int(each[2]) for each in cluster.store.read_table(table))

    assert sum(value for each in batches for value, _ in each) == total, f"seed={seed}"
    assert [] == cluster.store.read_late("sim")
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))
