"""What a run can be given beside faults (tries, weak guarantees, an update, a drain), each with a breakage it finds."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.serialization import dumps
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow
from runners.millwheel.worker import committer
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.productions import production_of
from runners.millwheel.worker.source_computation import SourceComputation
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.simulator import Fault, SimulationError, simulate
from runners.testing.simulator.cluster import SimulatedCluster
from runners.testing.simulator.scripts import truthful
from tests.effort import by_profile

Patch = pytest.MonkeyPatch
SEEDS = by_profile(4, nightly=2_000)
#: More than any of the breakages needs to be found.
SEEDS_MAX = 400
WEAK = {name: Guarantees(strong_productions=False) for name in ("read", "sets")}
COLUMNS = {"key": int, "start": float, "total": int}


def careful(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[1] % 5 == 3:
        raise ValueError(f"{pair} is poison")
    return pair


def poisoned(p: df.Pipeline, random: Random) -> None:
    """Some records fail as they are read."""
    (
        p
        | "read" >> df.Read(truthful(random))
        | "careful" >> df.Map(careful)
        | df.WindowInto(df.FixedWindows(60))
        | "sums" >> df.CombinePerKey(sum)
    )


def distinct(values: Iterable[Any]) -> frozenset[int]:
    return frozenset().union(*([each] if isinstance(each, int) else each for each in values))


def idempotent(p: df.Pipeline, random: Random) -> None:
    """Twice the same is the same."""
    (
        p
        | "read" >> df.Read(truthful(random))
        | df.WindowInto(df.FixedWindows(60), accumulation_mode=df.AccumulationMode.ACCUMULATING)
        | "sets" >> df.CombinePerKey(df.associative(distinct))
        | "flat" >> df.FlatMap(lambda pair: [("all", value) for value in pair[1]])
        | "whole" >> df.CombinePerKey(df.associative(distinct))
    )


def totals(p: df.Pipeline, random: Random, window_s: int = 60) -> None:
    """Sums that correct themselves, and how many there are by the hour."""
    sums = (
        p
        | "read" >> df.Read(truthful(random))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterWatermark(early=df.AfterCount(2)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "sums" >> df.CombinePerKey(sum)
    )
    (
        sums
        | "others" >> df.WindowInto(df.FixedWindows(60 * window_s))
        | "count" >> df.Map(lambda pair: (pair[0] % 2, 1))
        | "counts" >> df.CombinePerKey(sum)
    )
    (
        sums
        | "row" >> df.Map(total_row)
        | df.WriteToPostgres("totals", columns=COLUMNS, key=["key", "start"])
    )


def total_row(pair: Any, window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"key": pair[0], "start": window.start.timestamp(), "total": pair[1]}


def renewed(p: df.Pipeline, random: Random) -> None:
    """A version with equal sums, and other counts."""
    totals(p, random, window_s=120)


class Spread(df.CombineFn):
    """Least and greatest; of another version, with how many there were."""

    def __init__(self, *, is_counted: bool) -> None:
        self._counted = (0,) if is_counted else ()

    def create_accumulator(self) -> Any:
        return (None, None, *self._counted)

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return self.merge_accumulators([accumulator, (value, value, *(1 for _ in self._counted))])

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        found = list(accumulators)
        seen = [value for each in found for value in each[:2] if value is not None]
        ends = (min(seen), max(seen)) if seen else (None, None)
        return (*ends, *(sum(each[2] for each in found) for _ in self._counted))

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def beside(
    lateness_s: int = 60, table: str = "spreads", *, is_counted: bool = False, shift: int = 0
) -> Callable[[df.Pipeline, Random], None]:
    """Sums that no version changes, and beside them a grouping of which each version may change something."""

    def build(p: df.Pipeline, random: Random) -> None:
        totals(p, random)
        (
            p
            | "other read" >> df.Read(truthful(random))
            | "other windows"
            >> df.WindowInto(
                df.FixedWindows(60),
                trigger=df.AfterWatermark(early=df.AfterCount(2)),
                accumulation_mode=df.AccumulationMode.ACCUMULATING,
                allowed_lateness=lateness_s,
            )
            | "spreads" >> df.CombinePerKey(Spread(is_counted=is_counted))
            | "spread row" >> df.Map(lambda pair: {"key": pair[0], "low": pair[1][0] + shift})
            | "spread table"
            >> df.WriteToPostgres(table, columns={"key": int, "low": int}, key=["key"])
        )

    return build


#: What the next version is like, and whether the grouping keeps its state, so that its panes are those of one run.
VERSIONS = {
    "other functions, other table": (beside(table="others", shift=1), True),
    "more lateness": (beside(lateness_s=600), False),
    "less lateness": (beside(lateness_s=0), False),
    "another accumulator": (beside(is_counted=True), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_changes_what_it_declares_and_nothing_beside_it(
    version: str, monkeypatch: Patch
) -> None:
    """A job stopped at any moment and continued by the next version; what begins anew is named in the plan."""
    build, is_kept = VERSIONS[version]
    update, plans = SimulatedCluster.update, list[str]()

    def noted(cluster: SimulatedCluster, *arguments: Any) -> Any:
        planned = update(cluster, *arguments)
        plans.append(str(planned))
        return planned

    monkeypatch.setattr(SimulatedCluster, "update", noted)
    simulate(beside(), seeds=SEEDS, update=build, tables=["totals"])
    assert plans
    assert all(("\n  spreads: " in each) != is_kept for each in plans)
    assert all("\n  sums: " not in each for each in plans)


def forget_dead_letters(patch: Patch) -> None:
    patch.setattr(
        committer,
        "production_of",
        lambda *args: attrs.evolve(production_of(*args), dead=()),
    )


def acknowledge_too_early(patch: Patch) -> None:
    """Deliveries to steps that wait to be committed together."""
    commit = Committer.commit

    def hasty(committer: Committer, step: Any, taken_in: Any = ()) -> None:
        channels = list(taken_in)
        if step is not None and step.computation in committer._weak:
            for channel in channels:
                owned = step.ranges.get(channel.receiver)
                if owned is not None:
                    owned.delivered.update(owned.accepted)
            committer._courier.acknowledge(channels)
        commit(committer, step, channels)

    patch.setattr(Committer, "commit", hasty)


def skip_a_batch_at_the_end(patch: Patch) -> None:
    """A split that is drained ends behind a batch that nobody has seen."""
    end = SourceComputation.end

    def broken(computation: SourceComputation, range_id: RangeId) -> WorkerStep:
        split = computation._splits[range_id]
        batch = split.reader.read(1_000)
        step = end(computation, range_id)
        return attrs.evolve(step, positions={range_id: dumps(batch.position)})

    patch.setattr(SourceComputation, "end", broken)


def lose_what_is_on_its_way(patch: Patch) -> None:
    """An update begins with empty channels."""
    update_job = MemoryStore.update_job

    def broken(store: MemoryStore, *arguments: Any, **options: Any) -> JobRow:
        found = update_job(store, *arguments, **options)
        for job in store._jobs.values():
            job.checkpoints.clear()
        return found

    patch.setattr(MemoryStore, "update_job", broken)


@attrs.frozen
class Case:
    build: Any
    options: dict[str, Any]
    breakage: Callable[[Patch], None]
    invariant: str


CASES = {
    "tries": Case(poisoned, {"tries": 2}, forget_dead_letters, "I1: the dead letters"),
    "guarantees": Case(idempotent, {"guarantees": WEAK}, acknowledge_too_early, "I"),
    "drain": Case(totals, {"drain": True}, skip_a_batch_at_the_end, "I[16]"),
    "update": Case(totals, {"update": renewed}, lose_what_is_on_its_way, "I"),
    "update and drain": Case(
        totals, {"update": renewed, "drain": True}, skip_a_batch_at_the_end, "I[16]"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_asked_of_a_job_keeps_its_promises(case: Case) -> None:
    simulate(case.build, seeds=SEEDS, **case.options)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_breakage_is_found(case: Case, monkeypatch: Patch) -> None:
    """And only where it is asked for; the line that replays it says so."""
    case.breakage(monkeypatch)
    if "tries" not in case.options:
        simulate(case.build, seeds=SEEDS)
    with pytest.raises(SimulationError, match=f"seed \\d+: {case.invariant}") as failure:
        simulate(case.build, seeds=SEEDS_MAX, **case.options)
    assert all(f", {option}=" in str(failure.value) for option in case.options)


def test_moments_are_early_and_late() -> None:
    """Some jobs are drained before they have read anything, some in between, some are done by then."""
    summary = simulate(totals, seeds=SEEDS, drain=True)

    assert summary.seeds == SEEDS


def test_computations_that_are_not_there_are_refused() -> None:
    with pytest.raises(df.PipelineError, match="no read or grouping 'nobody'"):
        simulate(totals, seeds=1, guarantees={"nobody": Guarantees()})


UNCOUNTED = {name: Guarantees(exactly_once=False) for name in ("sums", "whole")}
SENT_AT_ONCE = {name: Guarantees(strong_productions=False) for name in ("read", "sums")}
ON_THE_WAY = {Fault.DELAY, Fault.DUPLICATE}


def twice_summed(p: df.Pipeline, random: Random) -> None:
    """Sums, and their sums: what counts twice is seen."""
    (
        p
        | "read" >> df.Read(truthful(random))
        | df.WindowInto(df.FixedWindows(60))
        | "sums" >> df.CombinePerKey(sum)
        | "together" >> df.Map(lambda pair: ("all", pair[1]))
        | "whole" >> df.CombinePerKey(sum)
    )


@pytest.mark.slow
def test_while_nothing_dies_each_record_counts_once() -> None:
    """With weak productions also where ranges move; without exactly-once only where they stay where they are."""
    reshaping = {Fault.SPLIT, Fault.MERGE, Fault.MOVE, *ON_THE_WAY}
    simulate(twice_summed, seeds=30, guarantees=SENT_AT_ONCE, faults=reshaping)
    simulate(twice_summed, seeds=30, guarantees=UNCOUNTED, faults={Fault.SPLIT, *ON_THE_WAY})
    # What comes again counts again, or is late by then.
    with pytest.raises(SimulationError, match=r"I1: the panes|I5: 'sums' drops"):
        simulate(twice_summed, seeds=SEEDS_MAX, guarantees=UNCOUNTED, faults=reshaping)


def release_what_is_not_committed(patch: Patch) -> None:
    """A range goes to another worker before its steps are durable, and these are done again."""
    patch.setattr(Committer, "flush", lambda *_: None)


def forget_what_was_taken_in(patch: Patch) -> None:
    """A worker that acquires its range anew, because it was split, takes in again what it had taken in."""
    patch.setattr(OwnedRange, "remember", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breakage", "guarantees", "fault"),
    [
        (release_what_is_not_committed, SENT_AT_ONCE, Fault.MOVE),
        (forget_what_was_taken_in, UNCOUNTED, Fault.SPLIT),
    ],
)
def test_what_counts_twice_is_found(
    breakage: Callable[[Patch], None],
    guarantees: dict[str, Guarantees],
    fault: Fault,
    monkeypatch: Patch,
) -> None:
    breakage(monkeypatch)
    with pytest.raises(SimulationError, match=r"seed \d+: I"):
        simulate(twice_summed, seeds=SEEDS_MAX, guarantees=guarantees, faults={fault, *ON_THE_WAY})
