"""What a store has of a key is what its owner has in memory, with the pipeline and as far as it can be without it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings

import dataflow as df
from dataflow.canonical_keys import canonical_key
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import RangeRow
from runners.millwheel.versions.state_shape import described
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.observability.why.described_triggers import described_trigger
from runners.observability.why.evidence import KeySeen
from runners.observability.why.from_store import key_from_store
from runners.observability.why.key_state import Grouping, KeyState
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.evidence import evidence_of
from tests.gated_jobs import Cluster, Gate
from tests.strategies import triggers as any_trigger
from triggers.clocks import Clocks

DISCARDING = df.AccumulationMode.DISCARDING
KEYS = 5
#: Kept in cells, buffered beside them, merging, and with triggers that have state of each kind.
STRATEGIES = [
    df.WindowInto(df.FixedWindows(10)),
    df.WindowInto(df.Sessions(3)),
    df.WindowInto(
        df.FixedWindows(10), trigger=df.Repeatedly(df.AfterCount(30)), accumulation_mode=DISCARDING
    ),
    df.WindowInto(
        df.SlidingWindows(20, period=10),
        trigger=df.AfterWatermark(early=df.AfterCount(50)),
        accumulation_mode=DISCARDING,
    ),
]


def at_rest(strategy: df.WindowInto, seed: int, second: int) -> Cluster:
    """A job that has read so far, and has nothing on its way."""

    def build(p: df.Pipeline, source: df.Source) -> None:
        (
            p
            | "read" >> df.Read(source)
            | "keys" >> df.Map(lambda pair: (f"key {pair[1] % KEYS}", pair[1]))
            | "windows" >> strategy
            | "total" >> df.CombinePerKey(sum)
            | "row" >> df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
            | "rows" >> df.WriteToPostgres("rows", columns={"key": str, "sum": int})
        )

    cluster = Cluster(seed, Gate(), build)
    cluster.open_to(second)
    cluster.run_to(lambda: cluster.at("total") == second)
    cluster.run_for(3_000)
    return cluster


def in_memory(cluster: Cluster, key: str, clocks: Clocks) -> Any:
    """What the owner of a key has."""
    state = KeyState(canonical_key(key))
    for process in cluster.workers:
        assert process is not None
        assert process.worker is not None
        computation = process.worker._computations["total"]
        assert isinstance(computation, GroupingComputation)
        windows: Any = computation.state.windows
        for entry in windows.contents():
            state.apply(entry)
        for (cell_id, window, domain), fire_us in windows.timers.items():
            if cell_id[0] == state.key:
                state.set_timer(window, domain, fire_us)
    return state.windows(Grouping(), clocks)


def plain(seen: KeySeen) -> list[Any]:
    return [
        (each.window, each.pending, each.firings, each.is_finished, each.processing_timer_us)
        for each in seen.windows["total"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["fixed", "sessions", "counts", "early"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_store_has_what_the_owner_has(strategy: df.WindowInto, seed: int) -> None:
    cluster = at_rest(strategy, seed, 37)
    evidence = evidence_of(cluster)
    clocks = Clocks(watermark_us=37_000_000, now_us=evidence.now_us)
    compared = 0
    for number in range(KEYS):
        key = f"key {number}"
        found = [
            (each.window, each.pending, each.firings, each.is_finished, each.processing_timer_us)
            for each in in_memory(cluster, key, clocks)
        ]
        with_pipeline = key_from_store(cluster.store, JOB, key, evidence, cluster.plan)
        without = key_from_store(cluster.store, JOB, key, evidence)

        assert plain(with_pipeline) == plain(without) == found
        compared += len(found)
        assert without.hidden == {}
        trees = [each.awaited for each in with_pipeline.windows["total"]]
        assert None not in trees
    assert compared, "there is nothing to compare"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_what_has_fired_is_not_shown(seed: int) -> None:
    """Entries of windows that have fired stay in the journal until it is compacted."""
    cluster = at_rest(STRATEGIES[0], seed, 7)
    looks = 0
    for second in range(8, 60):
        cluster.open_to(second)
        cluster.run_to(partial(has_come_to, cluster, second))
        evidence = evidence_of(cluster)
        stored = {str(each): row for each, row in evidence_rows(cluster).items()}
        seen = key_from_store(cluster.store, JOB, "key 1", evidence, cluster.plan)
        watermark_us = stored[seen.ranges["total"]].watermark_us or 0
        for each in seen.windows["total"]:
            looks += 1
            assert each.window.end_us > watermark_us
    assert looks > 20


def has_come_to(cluster: Cluster, second: int) -> bool:
    return cluster.at("total") >= second


def evidence_rows(cluster: Cluster) -> Mapping[RangeId, RangeRow]:
    job = cluster.store.read_job(JOB)
    assert job is not None
    return job.ranges


@pytest.mark.slow
def test_the_state_of_a_trigger_needs_no_pipeline() -> None:
    """A number, or that of a composite one, in which nothing of others is looked up."""
    evidence_plans: list[tuple[int, bool]] = []
    for place in (2, 3):
        cluster = at_rest(STRATEGIES[place], 1, 37)
        evidence = evidence_of(cluster)
        seen = key_from_store(cluster.store, JOB, "key 1", evidence)
        evidence_plans.append((place, all(each.awaited for each in seen.windows["total"])))
        found = cluster.why(key="key 1")
        assert found.awaited is not None

    assert evidence_plans == [(2, True), (3, True)]


@pytest.mark.slow
@given(trigger=any_trigger())
@settings(max_examples=200)
def test_a_trigger_is_made_of_its_description(trigger: df.Trigger) -> None:
    """Or nothing is, where it has a function."""
    text = described(trigger)
    found = described_trigger(text)

    assert found == (None if "is_third" in text else trigger)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "open('x')",
        "AfterCount(count=0)",
        "Repeatedly(part=Mine())",
        "1",
        "AfterCount(2)",
        "(((",
    ],
)
def test_other_texts_are_no_triggers(text: str) -> None:
    assert described_trigger(text) is None
