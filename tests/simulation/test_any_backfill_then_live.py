"""Backfill and live together come to the oracle's answer, for windows, triggers, modes, streams and cuts nobody chose.

What counts is the fold of the panes, those of the backfill and those of the stream behind it.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.direct import DirectRunner
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.simulator import ALL_FAULTS, NO_FAULTS, SimulatedCluster
from tests.backfill_jobs import LocalBackfill, left_behind
from tests.effort import costly
from tests.integration.test_differential import Case, build, cases, check
from tests.simulation.test_stateful_do_fns import build_in_order, build_sessions, never_late
from tests.simulation.test_worker_crashes import batches

SEEDS = st.integers(0, 2**32)
SPILLS = st.sampled_from([0, 300, 3_000])
BUILDS = st.sampled_from([build_in_order, build_sessions])
US_PER_SECOND = 1_000_000


def loaded_then_run(
    graph: PipelineGraph,
    seed: int,
    until_us: int | None,
    *,
    crashes: bool,
    tries: int | None = None,
) -> MemoryStore:
    store = MemoryStore()
    crash_rate = 0.05 if crashes else 0.0
    LocalBackfill(graph, store, seed, until_us=until_us, crash_rate=crash_rate, tries=tries).run()
    faults = ALL_FAULTS if crashes else NO_FAULTS
    options = WorkerOptions(tries=tries)
    SimulatedCluster(
        graph, seed, faults=faults, store=store, is_shipped=True, options=options
    ).run()
    return store


@costly()
@given(case=cases(), until_us=st.none() | st.integers(-1, 45), seed=SEEDS, crashes=st.booleans())
def test_panes_fold_to_the_oracles_answer(
    case: Case, until_us: int | None, seed: int, *, crashes: bool
) -> None:
    def run(several: Sequence[Case]) -> Any:
        pipeline = df.Pipeline(DirectRunner())
        build(pipeline, several)
        (table,) = pipeline.graph().tables()
        store = loaded_then_run(pipeline.graph(), seed, until_us, crashes=crashes)
        assert store.read_late("sim") == []
        rows = store.read_table(table)
        return [dict(zip(table.columns, row, strict=True)) for row in rows]

    check([case], run)


@costly()
@given(
    build_states=BUILDS,
    script=batches,
    until=st.none() | st.integers(-1, 600),
    seed=SEEDS,
    crashes=st.booleans(),
)
def test_state_and_timers_in_time_order_are_carried_over(
    build_states: Any,
    script: list[list[tuple[int, int]]],
    until: int | None,
    seed: int,
    *,
    crashes: bool,
) -> None:
    direct = df.Pipeline(DirectRunner())
    build_states(direct, never_late(script))
    expected = direct.run()
    until_us = None if until is None else until * US_PER_SECOND
    store = loaded_then_run(direct.graph(), seed, until_us, crashes=crashes)

    for spec in direct.graph().tables():
        rows = sorted(tuple(each.values()) for each in expected.read_table(spec.name))
        assert rows == sorted(store.read_table(spec)), f"seed={seed}"
    assert store.read_late("sim") == []


def check_memory_is_no_matter(
    graph: PipelineGraph, seed: int, until_us: int | None, spill_bytes: int
) -> None:
    """In memory, and with files and many commits: the same rows, and the same to go on with."""
    in_memory, spilled = (
        LocalBackfill(graph, MemoryStore(), seed, until_us=until_us, spill_bytes=[each]).run()
        for each in (1 << 40, spill_bytes)
    )

    assert left_behind(in_memory, "sim") == left_behind(spilled, "sim")
    for table in graph.tables():
        assert sorted(in_memory.read_table(table)) == sorted(spilled.read_table(table))


@costly()
@given(case=cases(), until_us=st.none() | st.integers(-1, 45), seed=SEEDS, spill_bytes=SPILLS)
def test_panes_and_what_is_left_do_not_depend_on_memory(
    case: Case, until_us: int | None, seed: int, spill_bytes: int
) -> None:
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, [case])

    check_memory_is_no_matter(pipeline.graph(), seed, until_us, spill_bytes)


@costly()
@given(
    build_states=BUILDS,
    script=batches,
    until=st.none() | st.integers(-1, 600),
    seed=SEEDS,
    spill_bytes=SPILLS,
)
def test_states_and_timers_do_not_depend_on_memory(
    build_states: Any,
    script: list[list[tuple[int, int]]],
    until: int | None,
    seed: int,
    spill_bytes: int,
) -> None:
    pipeline = df.Pipeline(DirectRunner())
    build_states(pipeline, never_late(script))
    until_us = None if until is None else until * US_PER_SECOND

    check_memory_is_no_matter(pipeline.graph(), seed, until_us, spill_bytes)


def _build_poisonous(p: df.Pipeline, source: df.Source) -> None:
    """Code that fails behind the read and behind the grouping, on records of the backfill, live ones, or both."""

    def checked(value: int) -> tuple[int, int]:
        if value % 7 == 0:
            raise ValueError(value)
        return value % 3, value

    def row(pair: tuple[int, Sequence[int]]) -> dict[str, Any]:
        if pair[0] == 1:
            raise ValueError(pair)
        return {"key": pair[0], "values": str(sorted(pair[1]))}

    (
        p
        | "read" >> df.Read(source)
        | "check" >> df.Map(checked)
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
        | "group" >> df.GroupByKey()
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("lists", columns={"key": int, "values": str})
    )


@costly()
@given(script=batches, until=st.none() | st.integers(-1, 600), seed=SEEDS, crashes=st.booleans())
def test_each_record_that_fails_is_one_dead_letter(
    script: list[list[tuple[int, int]]], until: int | None, seed: int, *, crashes: bool
) -> None:
    direct = df.Pipeline(DirectRunner(tries_per_record=2))
    _build_poisonous(direct, never_late(script))
    expected = direct.run()
    until_us = None if until is None else until * US_PER_SECOND
    store = loaded_then_run(direct.graph(), seed, until_us, crashes=crashes, tries=2)

    (table,) = direct.graph().tables()
    rows = sorted(tuple(each.values()) for each in expected.read_table("lists"))
    assert rows == sorted(store.read_table(table)), f"seed={seed}"
    letters = [(each["stage"], each["timestamp_us"]) for each in expected.dead_letters()]
    mine = [(each["stage"], each["timestamp_us"]) for each in store.read_dead_letters("sim")]
    assert sorted(letters) == sorted(mine), f"seed={seed}"
