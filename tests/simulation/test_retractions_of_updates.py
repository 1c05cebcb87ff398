"""An update that retracts what removed branches have emitted, whatever dies, and whenever."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.direct import DirectRunner
from runners.errors import UpdateRefusedError
from runners.millwheel.store.port import RangeRow
from runners.millwheel.versions.job_versions import Update
from runners.testing.simulator.cluster import JOB
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

pytestmark = pytest.mark.slow

COLUMNS = {"branch": str, "key": str, "value": str}
#: Which branches a pipeline has, by its version.
OLD = ("sums", "lows", "doubled", "own")
NEW = ("sums",)


def global_windows() -> df.WindowInto:
    return df.WindowInto(
        df.GlobalWindows(),
        trigger=df.Repeatedly(df.AfterCount(1)),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )


def build(p: df.Pipeline, source: df.Source, branches: Sequence[str]) -> None:
    """Branches that are counted together, and that write to one table, and one with a table of its own.

    "sums" is a grouping; "doubled" is what is made of its panes; "lows" is a grouping of its own.
    """
    pairs = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda value: (value % 5, value))
        | "windows" >> global_windows()
    )
    grouped = {"sums": pairs | "sums" >> df.CombinePerKey(sum)}
    if "lows" in branches:
        grouped["lows"] = pairs | "lows" >> df.CombinePerKey(min)
    if "doubled" in branches:
        grouped["doubled"] = grouped["sums"] | "doubled" >> df.Map(lambda kv: (kv[0], 2 * kv[1]))
    if "own" in branches:
        written(pairs | "own" >> df.CombinePerKey(max), "own", "own")
    for name, each in grouped.items():
        written(each, name, "together")
    flat = [
        each | f"values of {name}" >> df.Map(lambda kv: (kv[0] % 2, kv[1]))
        for name, each in grouped.items()
    ]
    total = flat | "flatten" >> df.Flatten() | "total" >> df.GroupByKey()
    written(total, "total", "total")


def written(rows: Any, name: str, table: str) -> None:
    def row(pair: Any) -> dict[str, Any]:
        key, value = pair
        shown = sorted(value) if isinstance(value, list) else value
        return {"branch": name, "key": str(key), "value": str(shown)}

    (
        rows
        | f"{name} row" >> df.Map(row)
        | f"{name} table" >> df.WriteToPostgres(table, columns=COLUMNS, key=["branch", "key"])
    )


def built(source: df.Source, branches: Sequence[str]) -> df.Pipeline:
    pipeline = df.Pipeline(DirectRunner(bundle_records=3))
    build(pipeline, source, branches)
    return pipeline


def rows_of(cluster: Cluster, graph: PipelineGraph) -> Mapping[str, set[tuple[Any, ...]]]:
    return {spec.name: {*cluster.store.read_table(spec)} for spec in graph.tables()}


def splits_of(cluster: Cluster) -> list[RangeRow]:
    job = cluster.store.read_job(JOB)
    assert job is not None
    return [row for row in job.ranges.values() if row.split is not None]


def go_over(cluster: Cluster, graph: PipelineGraph, update: Update) -> int:
    """Go over to a pipeline; returns in how many steps."""
    steps = 0
    while True:
        steps += 1
        cluster.update(graph, update)
        if not cluster.is_retracting:
            return steps
        cluster.run_until(lambda: cluster.master.is_paused)


@costly(cells=2)
@given(
    script=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 120),
)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_the_rows_are_those_of_the_new_pipeline(
    crash_rate: float,
    script: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    rounds: int,
) -> None:
    """Nothing of what is gone is left: in tables, in groupings that stay, and in those behind them."""
    source = scripted(script, disorder)
    old, new = built(source, OLD), built(source, NEW)
    cluster = Cluster(old.graph(), seed, crash_rate)
    left = iter(range(rounds))
    cluster.run_until(lambda: next(left, None) is None)
    assume(not cluster.master.is_done)
    update = Update(retract_removed=True, former=old.graph())
    if all(row.is_finished for row in splits_of(cluster)):
        with pytest.raises(UpdateRefusedError, match="windows have expired"):
            cluster.update(new.graph(), update)
        return
    go_over(cluster, new.graph(), update)
    cluster.run()

    expected = new.run()
    for spec in new.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == {*cluster.store.read_table(spec)}, f"seed={seed}"
    assert [each.name for each in cluster.store.result_tables(JOB)] == ["together", "total"]
