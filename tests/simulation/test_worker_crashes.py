"""The real master and workers over the memory store, in one thread, with crashes at random moments."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.direct import DirectRunner
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing import simulator
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly
from windowing.timestamps import MIN_TIMESTAMP_US

SLOTS = 2
TRIGGERS = [
    df.AfterWatermark(early=df.AfterProcessingTime(0.2), late=df.AfterCount(1)),
    df.AfterWatermark(early=df.AfterCount(2)),
    df.Repeatedly(df.AfterAny(df.AtPeriod(1), df.AfterCount(3))),
    df.AfterEach(df.AfterCount(1), df.AfterAll(df.AfterProcessingTime(0.1), df.AfterCount(2))),
    df.OrFinally(df.Repeatedly(df.AfterCount(1)), df.AfterWatermark()),
]
COLUMNS = {"key": str, "start": float, "end": float, "values": str}


def scripted(batches: Sequence[Sequence[tuple[int, int]]], disorder_s: int) -> ScriptedSource:
    """Batches of (value, second); the watermark follows the newest second at a distance."""
    script, newest_us = [], MIN_TIMESTAMP_US
    for batch in batches:
        times_us = [second * 1_000_000 for _, second in batch]
        newest_us = max([newest_us, *(each - disorder_s * 1_000_000 for each in times_us)])
        script.append(Batch([value for value, _ in batch], times_us, newest_us))
    return ScriptedSource(script)


def build(p: df.Pipeline, source: df.Source, trigger: df.Trigger | None = None) -> None:
    """Two branches from one parse: sums by the minute, and sessions that can merge after they fired."""
    pairs = p | "read" >> df.Read(source) | "pair" >> df.Map(lambda v: (v % 5, v))
    (
        pairs
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=trigger,
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=timedelta(hours=2),
        )
        | "sum" >> df.CombinePerKey(sum)
        | "sum row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start"])
    )
    (
        pairs
        | "sessions"
        >> df.WindowInto(
            df.Sessions(30),
            trigger=trigger,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=timedelta(hours=2),
        )
        | "group" >> df.GroupByKey()
        | "session row" >> df.Map(row)
        | "groups" >> df.WriteToPostgres("groups", columns=COLUMNS, key=["key", "start", "end"])
    )


def row(pair: tuple[Any, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    """A result with its window; values in an order that does not depend on arrival."""
    key, values = pair
    shown = sorted(values) if isinstance(values, list) else values
    return {
        "key": str(key),
        "start": window.start.timestamp(),
        "end": window.end.timestamp(),
        "values": str(shown),
    }


class Cluster(simulator.SimulatedCluster):
    """The shipped one, with all faults, but some, or none; workers share the test's objects, which can reach them."""

    def __init__(
        self,
        graph: PipelineGraph,
        seed: int,
        crash_rate: float,
        store: MemoryStore | None = None,
        *,
        options: WorkerOptions = WorkerOptions(),  # noqa: B008 - a value
        without: frozenset[simulator.Fault] = frozenset(),
        workers: int = SLOTS,
    ) -> None:
        faults = simulator.ALL_FAULTS - without if crash_rate else simulator.NO_FAULTS
        super().__init__(graph, seed, faults=faults, store=store, workers=workers, options=options)


batches = st.lists(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 600)), max_size=6), min_size=1, max_size=8
)


@costly(cells=2)
@given(batches=batches, disorder=st.integers(0, 300), seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_rows_equal_the_direct_runner(
    crash_rate: float, batches: list[list[tuple[int, int]]], disorder: int, seed: int
) -> None:
    """Whatever dies and whenever, the tables end up as without any of it, and nothing is left open."""
    source = scripted(batches, disorder)
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct, source)
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate)
    cluster.run()

    for spec in direct.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == set(cluster.store.read_table(spec)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


@pytest.mark.slow
@costly()
@given(
    batches=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    trigger=st.sampled_from(TRIGGERS),
)
def test_triggers_survive_crashes(
    batches: list[list[tuple[int, int]]], disorder: int, seed: int, trigger: df.Trigger
) -> None:
    """Trigger states and timers of both time domains move to the next owner like everything else."""
    source = scripted(batches, disorder)
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct, source, trigger)
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate=0.1)
    cluster.run()

    for spec in direct.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == set(cluster.store.read_table(spec)), f"seed={seed}"
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


MINUTES = df.WindowInto(df.FixedWindows(60))
#: They fire when those do; but windows have cells and timers, and are not buffered.
MINUTES_IN_CELLS = df.WindowInto(
    df.FixedWindows(60),
    trigger=df.AfterWatermark(),
    accumulation_mode=df.AccumulationMode.DISCARDING,
)


def build_counts(p: df.Pipeline, source: df.Source, minutes: df.WindowInto = MINUTES) -> None:
    """Records per key and minute, with no allowance for lateness."""
    (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 5, 1))
        | "minutes" >> minutes
        | "count" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("counts", columns=COLUMNS, key=["key", "start"])
    )


@costly()
@given(batches=batches, seed=st.integers(0, 2**32))
def test_a_record_is_in_the_result_or_among_the_late(
    batches: list[list[tuple[int, int]]], seed: int
) -> None:
    """With a watermark that is often wrong and workers that die, every record counts exactly once, somewhere."""
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, scripted(batches, 0))
    cluster = Cluster(pipeline.graph(), seed, crash_rate=0.1)
    cluster.run()
    (table,) = pipeline.graph().tables()
    counted = sum(int(each[3]) for each in cluster.store.read_table(table))
    late = sum(each["count"] for each in cluster.store.read_late("sim"))

    assert sum(map(len, batches)) == counted + late, f"seed={seed}"
