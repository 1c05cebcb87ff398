"""Instants of ranges over the real master and workers: each once and not before its time, whatever dies."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.model.requests import DRAINED, Request, Verb
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly
from tests.simulation.test_drain import DrainedCluster
from tests.simulation.test_worker_crashes import Cluster
from windowing.timestamps import MIN_TIMESTAMP_US

#: By the virtual clock, which begins at zero.
ranges = st.lists(
    st.tuples(st.integers(-5, 20), st.integers(0, 12), st.sampled_from([0.5, 1, 3, 20])).map(
        lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2])
    ),
    min_size=1,
    max_size=4,
)
COLUMNS = {"start": float, "instants": str}


def row(group: tuple[None, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"start": window.start.timestamp(), "instants": str(sorted(group[1]))}


def build(
    p: df.Pipeline, script: list[Any], see: Callable[[float], object] = lambda second: None
) -> None:
    """The instants of every five seconds, none of which may be late."""

    def seconds(instant: datetime) -> tuple[None, float]:
        see(instant.timestamp())
        return None, instant.timestamp()

    batches = [Batch([each], [MIN_TIMESTAMP_US], MIN_TIMESTAMP_US) for each in script]
    (
        p
        | "read" >> df.Read(ScriptedSource(batches))
        | "instants" >> df.PeriodicSequence()
        | "seconds" >> df.Map(seconds)
        | "windows" >> df.WindowInto(df.FixedWindows(5))
        | "group" >> df.GroupByKey()
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("instants", columns=COLUMNS)
    )


@pytest.mark.slow
@costly(cells=2)
@given(script=ranges, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_each_instant_is_there_once_and_none_is_late(
    crash_rate: float, script: list[Any], seed: int
) -> None:
    check_instants(crash_rate, script, seed)


def check_instants(crash_rate: float, script: list[Any], seed: int) -> None:
    """Compare with the direct runner."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, script)
    expected = pipeline.run()
    cluster = Cluster(pipeline.graph(), seed, crash_rate)
    cluster.run()

    (table,) = pipeline.graph().tables()
    rows = sorted(tuple(each.values()) for each in expected.read_table("instants"))
    assert rows == sorted(cluster.store.read_table(table)), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


def test_no_instant_is_there_before_its_time_though_the_input_has_ended() -> None:
    seen: list[tuple[float, float]] = []
    pipeline = df.Pipeline(DirectRunner())
    ranges = [(-2, 9, 1), (-2, 9, 1), (4, 8, 2)]
    build(pipeline, ranges, lambda second: seen.append((second, cluster.clock.now_us() / 1e6)))
    cluster = Cluster(pipeline.graph(), 7, 0.0)
    cluster.run()

    seconds = [*range(-2, 9), *range(-2, 9), 4, 6]
    assert sorted(seconds) == sorted(second for second, _ in seen)
    assert all(second <= now for second, now in seen)
    # Those that are to come are there one by one.
    assert {round(now) for second, now in seen if second > 4} == {*range(5, 9)}


@costly(cells=2)
@given(script=ranges, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_a_job_that_is_drained_ends_with_the_first_instants_of_ranges(
    crash_rate: float, script: list[Any], seed: int
) -> None:
    """Each once, and nothing is left open."""
    # No two ranges have an instant in common; they end, as a store that goes back may lose the request to drain.
    drawn = [(start + number / 64, interval) for number, (start, _, interval) in enumerate(script)]
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, [(start, start + 40, interval) for start, interval in drawn])
    cluster = DrainedCluster(pipeline.graph(), seed, crash_rate)
    cluster.run()

    found = Counter(seconds_in(cluster, pipeline))
    for start, interval in drawn:
        second = start
        while found[second]:
            found[second] -= 1
            second += interval
    assert not found.total(), f"seed={seed}"
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


def seconds_in(cluster: Cluster, pipeline: df.Pipeline) -> list[float]:
    """Every instant in the table."""
    (table,) = pipeline.graph().tables()
    return [second for _, text in cluster.store.read_table(table) for second in json.loads(text)]


def test_what_is_to_come_is_not_emitted_when_the_job_is_drained() -> None:
    seen: list[float] = []
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, [(0, "9999-01-01T00:00Z", 1)], seen.append)
    cluster = Cluster(pipeline.graph(), 7, 0.0)
    cluster.run_until(lambda: len(seen) >= 8)
    cluster.send_request(Request(Verb.DRAIN))
    cluster.run()

    assert cluster.store.read_requests("sim", 0)[0].answer == DRAINED
    assert sorted(seconds_in(cluster, pipeline)) == [*range(len(seen))] == seen
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))
