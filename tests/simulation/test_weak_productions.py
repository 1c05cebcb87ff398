"""Computations that do without strong productions, or without exactly-once: records may count twice, none is lost."""

from datetime import timedelta
from itertools import product
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing import simulator
from runners.testing.simulator import Fault, SimulationError
from tests.effort import costly, each_third
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

pytestmark = pytest.mark.slow

WEAK = Guarantees(strong_productions=False)
NEITHER = Guarantees(strong_productions=False, exactly_once=False)
UNCOUNTED = Guarantees(exactly_once=False)
STAGES = ("read", "minutes", "hours")


class Distinct(df.CombineFn):
    """Twice the same is the same: what a computation without guarantees should do."""

    def create_accumulator(self) -> frozenset[int]:
        return frozenset()

    def add_input(self, accumulator: frozenset[int], element: int) -> frozenset[int]:
        return accumulator | {element}

    def merge_accumulators(self, accumulators: Any) -> frozenset[int]:
        return frozenset().union(*accumulators)

    def extract_output(self, accumulator: frozenset[int]) -> list[int]:
        return sorted(accumulator)


def build(p: df.Pipeline, source: df.Source, combine: Any) -> None:
    """Values by the minute, and of these again by the hour."""
    (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda value: (value % 3, value))
        | "in minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=timedelta(hours=2),
        )
        | "minutes" >> df.CombinePerKey(combine)
        | "flat" >> df.FlatMap(flat)
        | "in hours"
        >> df.WindowInto(
            df.FixedWindows(3_600),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=timedelta(hours=2),
        )
        | "hours" >> df.CombinePerKey(combine)
        | "row" >> df.Map(row)
        | "result"
        >> df.WriteToPostgres(
            "result", columns={"key": int, "start": float, "values": str}, key=["key", "start"]
        )
    )


def flat(pair: tuple[int, Any]) -> list[tuple[int, int]]:
    key, values = pair
    return [(key % 2, value) for value in (values if isinstance(values, list) else [values])]


def row(pair: tuple[int, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    key, values = pair
    return {"key": key, "start": window.start.timestamp(), "values": str(values)}


def rows_of(
    script: list[list[tuple[int, int]]],
    disorder: int,
    combine: Any,
    seed: int,
    crash_rate: float,
    guarantees: dict[str, Guarantees],
) -> tuple[set[Any], set[Any]]:
    """What the cluster emits, and what the direct runner emits."""
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct, scripted(script, disorder), combine)
    expected = {tuple(each.values()) for each in direct.run().read_table("result")}
    options = WorkerOptions(guarantees=guarantees)
    cluster = Cluster(direct.graph(), seed, crash_rate, options=options)
    cluster.run()
    (spec,) = direct.graph().tables()
    return set(cluster.store.read_table(spec)), expected


chosen = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([WEAK, NEITHER, UNCOUNTED]) for name in STAGES}
)


@costly()
@given(batches=batches, disorder=st.integers(0, 300), seed=st.integers(0, 2**32), guarantees=chosen)
@example(  # a range sends, after a gap in its numbers, to one of the same worker
    batches=[[(0, 0), (1, 183)], [(0, 0)], [(1, 0)]],
    disorder=0,
    seed=30670,
    guarantees={"read": WEAK},
)
@example(  # a straggler is acknowledged by the commit that is under way when it is made durable
    batches=[[(0, 0)], [(0, 0)], [], [], [(0, 0)], [(0, 0), (14, 0)]],
    disorder=0,
    seed=133,
    guarantees={"minutes": WEAK},
)
def test_nothing_is_lost_whatever_dies(
    batches: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    guarantees: dict[str, Guarantees],
) -> None:
    """Idempotent code leaves the same as with all guarantees."""
    ours, expected = rows_of(batches, disorder, Distinct(), seed, 0.1, guarantees)

    assert ours == expected, f"seed={seed}"


@costly(cells=3)
@given(batches=batches, seed=st.integers(0, 2**32))
@pytest.mark.parametrize(
    "guarantees", [dict.fromkeys(STAGES, each) for each in (WEAK, NEITHER, UNCOUNTED)]
)
def test_each_record_counts_once_while_nothing_dies(
    guarantees: dict[str, Guarantees], batches: list[list[tuple[int, int]]], seed: int
) -> None:
    ours, expected = rows_of(batches, 0, sum, seed, 0.0, guarantees)

    assert ours == expected, f"seed={seed}"


KINDS = {"strong": None, "weak": WEAK, "neither": NEITHER, "uncounted": UNCOUNTED}


@pytest.mark.parametrize("kinds", each_third(product(KINDS, repeat=2), 0), ids=" then ".join)
def test_guarantees_may_be_others_in_the_next_run(kinds: tuple[str, str]) -> None:
    """A job is stopped in the middle and goes on with others: nothing that is sent then counts as seen before."""
    first, later = kinds
    pipeline = df.Pipeline(DirectRunner(bundle_records=3))
    build(pipeline, scripted([[(value, 10 * value)] for value in range(40)], 0), Distinct())
    graph = pipeline.graph()
    (spec,) = graph.tables()
    expected = {tuple(each.values()) for each in pipeline.run().read_table("result")}

    for seed in range(1, 5):
        # The ledger believes that all is given up; what counts is in the rows.
        without = WorkerOptions(guarantees=dict.fromkeys(STAGES, NEITHER))
        cluster = simulator.SimulatedCluster(
            graph, seed, faults=simulator.NO_FAULTS, options=without
        )
        run_with(cluster, KINDS[first], records=15)
        run_with(cluster, KINDS[later], records=None)

        assert set(cluster.store.read_table(spec)) == expected, f"seed={seed}"


def run_with(
    cluster: simulator.SimulatedCluster, guarantees: Guarantees | None, records: int | None
) -> None:
    """Have a new driver and new workers run the job until so many records are read, or to its end."""
    chosen = dict.fromkeys(STAGES, guarantees) if guarantees else {}
    cluster.options = attrs.evolve(cluster.options, guarantees=chosen)
    for process in cluster._processes:
        process.die()
    cluster.start_driver()
    cluster.run_until(
        lambda: records is not None and cluster.master.statistics().records_read >= records
    )


def test_stragglers_are_made_durable() -> None:
    """MillWheel, figure 11: whoever is not answered within a second answers his own sender all the same."""
    script = [[(value, 10 * value)] for value in range(20)]
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted(script, 0), Distinct())
    options = WorkerOptions(guarantees=dict.fromkeys(STAGES, WEAK))
    slow = {Fault.PARTITION, Fault.DELAY}

    def stragglers(seed: int) -> int:
        cluster = simulator.SimulatedCluster(pipeline.graph(), seed, faults=slow, options=options)
        cluster.run()
        return cluster.master.statistics().stragglers

    assert any(map(stragglers, range(40)))


def test_hardly_anything_is_durable_that_arrives_at_once() -> None:
    """Durability is what is saved; but who sends before the receiver is there has a straggler."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted([[(n, 30 * n)] for n in range(40)], 0), Distinct())
    commit, made = MemoryStore.commit, [0, 0]

    for index, guarantees in enumerate([{}, dict.fromkeys(STAGES, WEAK)]):

        def counted(store: MemoryStore, production: Production, at: int = index) -> CommitOutcome:
            made[at] += len(production.checkpoints)
            return commit(store, production)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryStore, "commit", counted)
            Cluster(pipeline.graph(), 1, 0.0, options=WorkerOptions(guarantees=guarantees)).run()

    strong, weak = made
    assert weak < strong / 4


def test_records_count_twice_when_something_dies() -> None:
    """It is what one gives up, by the page about guarantees."""
    script = [[(value, 10 * value)] for value in range(20)]
    everywhere = dict.fromkeys(STAGES, NEITHER)
    assert any(
        len(set(map(frozenset, rows_of(script, 0, sum, seed, 0.1, everywhere)))) > 1
        for seed in range(60)
    )


@pytest.mark.parametrize(
    ("mutation", "guarantee"), list(product(["numbers", "acknowledges"], [WEAK, NEITHER]))
)
def test_a_wrong_committer_is_found(
    mutation: str, guarantee: Guarantees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that a later owner uses again lose records, and so do acknowledgements that come too early."""
    if mutation == "numbers":
        init = Outbox.__init__

        def starts_again(
            self: Outbox, checkpoints: Any, sent: Any, *, weak_from: int | None = None
        ) -> None:
            # What receivers have would do without ``weak_from``: the store knows most of what was sent.
            if weak_from is None:
                init(self, checkpoints, sent)
            else:
                init(self, checkpoints, {}, weak_from=0)

        monkeypatch.setattr(Outbox, "__init__", starts_again)
    else:
        commit = Committer.commit

        def hasty(self: Committer, step: Any, taken_in: Any = ()) -> None:
            channels = list(taken_in)
            if step is not None and step.computation in self._weak:
                for channel in channels:
                    owned = step.ranges.get(channel.receiver)
                    if owned is not None:
                        owned.delivered.update(owned.accepted)
                self._courier.acknowledge(channels)
            commit(self, step, channels)

        monkeypatch.setattr(Committer, "commit", hasty)
    script = [[(value, 10 * value)] for value in range(30)]

    everywhere = dict.fromkeys(STAGES, guarantee)
    assert any(is_lossy(script, seed, everywhere) for seed in range(400))


def is_lossy(
    script: list[list[tuple[int, int]]], seed: int, guarantees: dict[str, Guarantees]
) -> bool:
    try:
        ours, expected = rows_of(script, 0, Distinct(), seed, 0.1, guarantees)
    except SimulationError:
        return True
    return ours != expected
