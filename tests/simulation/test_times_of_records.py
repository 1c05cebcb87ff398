"""Event times that are set on the way, or by the clock, over the real master and workers, some of which die."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import PipelineGraph
from dataflow.io.arrival import ArrivalTime
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, batches, row, scripted

Batches = list[list[tuple[int, int]]]
SKEW_S = 100


def build_counts(source: Any, set_times: Any, p: df.Pipeline) -> PipelineGraph:
    """Records per key and minute, with no allowance for lateness."""
    (
        p
        | "read" >> source
        | "times" >> set_times
        | "pair" >> df.Map(lambda v: (v % 5, 1))
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
        | "count" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("counts", columns=COLUMNS, key=["key", "start"])
    )
    return p.graph()


def counted(graph: PipelineGraph, cluster: Cluster) -> int:
    (table,) = graph.tables()
    return sum(int(each[3]) for each in cluster.store.read_table(table))


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@costly()
@given(batches=batches, seed=st.integers(0, 2**32), backwards=st.booleans())
def test_a_record_set_behind_the_watermark_is_in_the_result_or_among_the_late(
    batches: Batches, seed: int, backwards: bool
) -> None:
    """It waits for nothing, and is lost nowhere."""
    shift_s = -SKEW_S if backwards else SKEW_S
    graph = build_counts(
        df.Read(scripted(batches, 0)),
        df.WithTimestamps(
            lambda v, at=df.DoFn.TimestampParam: at.timestamp() + shift_s,
            allowed_timestamp_skew=SKEW_S,
        ),
        df.Pipeline(DirectRunner()),
    )
    cluster = Cluster(graph, seed, crash_rate=0.1)
    cluster.run()
    late = sum(each["count"] for each in cluster.store.read_late("sim"))

    assert sum(map(len, batches)) == counted(graph, cluster) + late, f"seed={seed}"


@costly()
@given(batches=batches, seed=st.integers(0, 2**32))
def test_a_record_set_forward_is_never_late(batches: Batches, seed: int) -> None:
    """It holds the watermark back until it is delivered, as if its source had given it that time."""
    latest_s = 1 + max((at for batch in batches for _, at in batch), default=0)
    graph = build_counts(
        df.Read(scripted(batches, 0)),
        df.WithTimestamps(lambda v: latest_s),
        df.Pipeline(DirectRunner()),
    )
    cluster = Cluster(graph, seed, crash_rate=0.1)
    cluster.run()

    assert [] == cluster.store.read_late("sim")
    assert sum(map(len, batches)) == counted(graph, cluster), f"seed={seed}"


class ManyClocks:
    """Clocks of machines: the cluster's, some of them fast, whichever is asked."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None

    def __call__(self) -> int:
        if self.cluster is None:
            return 0
        fast_us = self.cluster.random.choice([0, 30, 90]) * 1_000_000
        return self.cluster.clock.now_us() + fast_us


@costly()
@given(batches=batches, others=batches, seed=st.integers(0, 2**32))
def test_records_by_arrival_count_once_and_are_never_late(
    batches: Batches, others: Batches, seed: int
) -> None:
    """Whoever reads them again after a crash gives them another time, and nobody has seen the first."""
    clocks = ManyClocks()
    scripts = [
        [Batch([value for value, _ in batch], [0] * len(batch)) for batch in each]
        for each in (batches, others)
    ]
    graph = build_counts(
        df.Read(ScriptedSource(*scripts), event_time=ArrivalTime(clocks)),
        df.Map(int),
        df.Pipeline(DirectRunner()),
    )
    cluster = clocks.cluster = Cluster(graph, seed, crash_rate=0.1)
    cluster.run()

    assert [] == cluster.store.read_late("sim")
    assert sum(map(len, batches + others)) == counted(graph, cluster), f"seed={seed}"
