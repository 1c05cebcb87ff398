"""What user code counts, over faults of every kind: each element once, as in the results."""

import random
from collections.abc import Iterator
from random import Random
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.metrics import DistributionResult, MetricResults
from runners.batch import gather, range_task, range_writer
from runners.direct import DirectRunner
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.stored.metrics import folded, metrics_of
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import ALL_FAULTS, SimulatedCluster
from runners.testing.simulator.batch import JOB as BATCH
from runners.testing.simulator.batch import SimulatedBatch
from runners.testing.simulator.simulation import Scenario, Simulation
from tests.backfill_jobs import LocalBackfill
from tests.effort import by_profile
from windowing.timestamps import MAX_TIMESTAMP_US

SEEDS = by_profile(3, nightly=2_000)
RECORDS = 60
COLUMNS = {"key": int, "start": float, "value": int}
#: A value on which user code fails, in every fifteen.
POISON = 14


class Adding(df.CombineFn):
    """A sum that counts what it adds."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        df.Metrics.counter("test", "added").inc()
        return accumulator + value

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


class Numbering(df.DoFn):
    """Numbers the elements of a key, and counts them."""

    requires_time_sorted_input = True
    COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())

    def process(
        self, element: tuple[int, int], count: Any = df.DoFn.StateParam(COUNT)
    ) -> Iterator[tuple[int, int]]:
        df.Metrics.counter(Numbering, "seen").inc()
        count.add(element[1])
        yield count.read(), element[1]


def seen(value: int) -> tuple[int, int]:
    df.Metrics.counter("test", "seen").inc()
    df.Metrics.distribution("test", "values").update(value)
    df.Metrics.string_set("test", "keys").add(f"key {value % 5}")
    if value % 15 == POISON:
        raise ValueError(f"{value} is poison")
    return value % 5, value


def pane(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    df.Metrics.counter("test", "panes").inc()
    df.Metrics.gauge("test", "last").set(pair[1])
    return {"key": pair[0], "start": window.start.timestamp(), "value": pair[1]}


def build_on(read: Any) -> None:
    pairs = read | "seen" >> df.Map(seen)
    windows = pairs | df.WindowInto(df.FixedWindows(60))
    sums: Any = windows | "sum" >> df.CombinePerKey(Adding()) | "pane" >> df.Map(pane)
    sums | df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start"])
    numbers: Any = windows | "number" >> df.ParDo(Numbering()) | "numbered" >> df.Map(pane)
    numbers | df.WriteToPostgres("numbers", columns=COLUMNS)


def build(p: df.Pipeline, random: Random) -> None:
    """Values in any order of event time, in two splits, with a watermark that knows what is still to come."""
    scripts = []
    for split in range(2):
        batches, soonest_us = [], MAX_TIMESTAMP_US
        for first in reversed(range(split, RECORDS, 6)):
            values = [*range(first, min(first + 6, RECORDS), 2)]
            times_us = [random.randrange(300) * 1_000_000 for _ in values]
            batches.append(Batch(values, times_us, soonest_us))
            soonest_us = min([soonest_us, *times_us])
        scripts.append(batches[::-1])
    build_on(p | "read" >> df.Read(ScriptedSource(*scripts)))


def build_poisoned(p: df.Pipeline, random: Random) -> None:
    stamped = [df.TimestampedValue(value, random.randrange(300)) for value in range(RECORDS)]
    build_on(p | "read" >> df.Create(stamped))


def build_good(p: df.Pipeline, random: Random) -> None:
    stamped = [df.TimestampedValue(15 * value, random.randrange(300)) for value in range(RECORDS)]
    build_on(p | "read" >> df.Create(stamped))


def counted(metrics: MetricResults) -> dict[tuple[str, str], Any]:
    """What every run counts, whatever the panes are; a gauge is set to what was last in some order."""
    found = metrics.query()
    several: Any = [*found["counters"], *found["distributions"], *found["string_sets"]]
    return {(each.key.step, each.key.metric.name): each.committed for each in several}


def directly(build: Any, seed: int) -> dict[tuple[str, str], Any]:
    p = df.Pipeline(DirectRunner(bundle_records=4, tries_per_record=2))
    build(p, Random(f"input {seed}"))
    return counted(p.run().metrics())


class FoldingStore(MemoryStore):
    """Has a driver that folds in the midst of everything."""

    commits = 0

    def commit(self, production: Production) -> CommitOutcome:
        self.commits += 1
        if self.commits % 7 == 0:
            self.fold_metrics(production.job, folded)
        return super().commit(production)


def check_stream(seed: int) -> None:
    simulation = Simulation(
        build,
        seed,
        faults=ALL_FAULTS,
        store=lambda _: FoldingStore(),
        scenario=Scenario(tries=2, steps=4),
        tables=(),
    )
    simulation.run()
    ours = counted(MetricResults(metrics_of(simulation.cluster.store.read_metrics("sim"))))

    assert directly(build, seed) == ours, f"seed={seed}"


def check_streams(seeds: range) -> None:
    for seed in seeds:
        check_stream(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_stream_counts_what_the_direct_runner_does(seed: int) -> None:
    """Whatever dies, moves, splits or is folded meanwhile."""
    check_stream(seed)


def test_the_direct_runner_counts_each_element_once() -> None:
    """The failing ones too, but for what the attempts have counted that failed."""
    ours = directly(build, 0)
    good = [value for value in range(RECORDS) if value % 15 != POISON]

    assert ours["seen", "seen"] == len(good)
    assert ours["seen", "values"] == DistributionResult(len(good), sum(good), 0, max(good))
    assert ours["seen", "keys"] == {f"key {number}" for number in range(5)}
    assert ours["sum", "added"] == ours["number", "seen"] == len(good)
    assert ours["numbered", "panes"] == len(good)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_backfill_and_the_stream_behind_it_count_what_the_direct_runner_does(seed: int) -> None:
    """With attempts that die in between, and others that are repeated when they have committed."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, Random(f"input {seed}"))
    store = FoldingStore()
    until_us = random.Random(seed).choice([None, 0, 100_000_000, 200_000_000])
    backfill = LocalBackfill(
        pipeline.graph(), store, seed, until_us=until_us, crash_rate=0.05, tries=2
    )
    backfill.run()
    SimulatedCluster(
        pipeline.graph(),
        seed,
        faults=ALL_FAULTS,
        store=store,
        is_shipped=True,
        options=WorkerOptions(tries=2),
    ).run()

    ours = counted(MetricResults(metrics_of(store.read_metrics("sim"))))
    assert directly(build, seed) == ours, f"seed={seed}"


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_task, "BUNDLE_RECORDS", 3)
    monkeypatch.setattr(range_writer, "ROWS_MAX", 4)
    monkeypatch.setattr(gather, "RECORDS_FIRST", 5)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("tries", [2, None])
def test_a_batch_counts_what_the_direct_runner_does(tries: int | None, seed: int) -> None:
    """With attempts that die and others that go on beside them, with dead letters and without."""
    chosen = build_good if tries is None else build_poisoned
    batch = SimulatedBatch(chosen, seed, rate=0.05, tries=tries)
    batch.run()
    ours = counted(MetricResults(metrics_of(batch.store.read_metrics(BATCH))))

    assert directly(chosen, seed) == ours, f"seed={seed}"


@pytest.mark.slow
def test_a_worker_that_counts_what_is_not_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test of a stream finds it where deltas are sent by another commit than the one that they belong to."""
    right = Committer._seal
    waiting: list[Any] = [{}]

    def one_later(self: Committer, step: Any) -> Any:
        sealed = right(self, step)
        waiting.append(sealed.metrics)
        return attrs.evolve(sealed, metrics=waiting.pop(0))

    monkeypatch.setattr(Committer, "_seal", one_later)
    with pytest.raises(AssertionError):
        check_streams(range(50))
