"""A part of the store that goes back to an earlier moment by itself, while nobody is restarted."""

import re
from collections.abc import Callable
from itertools import islice

import pytest

import dataflow as df
from runners.core.stages.plan import ExecutionPlan
from runners.errors import StoreError
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory import store as memory
from runners.millwheel.store.memory.store import MemoryStore
from runners.testing.simulator import ALL_FAULTS, Fault, SimulationError, simulate
from runners.testing.simulator.backups import Backups
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.simulation import Simulation
from tests.effort import by_profile, each_third
from tests.simulation.test_weak_productions import NEITHER, STAGES, UNCOUNTED, WEAK, Distinct, build
from tests.simulation.test_worker_crashes import scripted

SEEDS = by_profile(4, nightly=10_000)
#: With what has others rely on more, or on less: workers that die and hang, commits that come late, lost messages.
FAULTS = frozenset(
    {
        *(Fault.LOST_PART, Fault.PAUSE, Fault.CRASH, Fault.ZOMBIE),
        *(Fault.DELAY, Fault.LOSS, Fault.LATE_COMMIT),
    }
)
#: With which a computation often goes back behind a split or merge of its own.
RESHAPING = {Fault.SPLIT: 0.1, Fault.MERGE: 0.1, Fault.MOVE: 0.05, Fault.LOST_PART: 0.01}
RESHAPED = by_profile(11, nightly=5_000)
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 300

Patch = pytest.MonkeyPatch


def losing(count: int, faults: frozenset[Fault] = FAULTS) -> list[int]:
    """The first seeds in which a part can be lost."""
    seeds = (seed for seed in range(1, 100 * count) if seed % 10)
    return list(
        islice((seed for seed in seeds if Fault.LOST_PART in Dice(seed, faults).rates), count)
    )


def built_on(store: MemoryStore) -> list[str]:
    """List what ranges have built on and others have lost: by the numbers of channels alone, and by cuts."""
    found = list[str]()
    for job in store._jobs.values():
        for channel in {*job.delivered, *job.acknowledged, *job.checkpoints}:
            acknowledged, delivered = (
                job.acknowledged.get(channel, 0),
                job.delivered.get(channel, 0),
            )
            made = max([acknowledged, *job.checkpoints.get(channel, ())])
            if acknowledged > delivered:
                found.append(f"{channel}: {acknowledged} acknowledged, {delivered} delivered")
            if delivered > made:
                found.append(f"{channel}: {delivered} delivered, {made} made")
        for keeper, cut in job.cuts.items():
            for range_id, (_, bundle) in cut.items():
                row = job.ranges.get(range_id)
                if row is not None and row.bundle < bundle:
                    found.append(f"{keeper}: {range_id} had made {bundle}, and is at {row.bundle}")
    return found


class Losses:
    """What was built on of the parts that went back, one after the other: of those that were noticed, and of others."""

    def __init__(self, patch: Patch) -> None:
        self.noticed, self.unnoticed, self._run = (
            list[list[str]](),
            list[list[str]](),
            list[list[str]](),
        )
        tear, run = Backups.tear, Simulation.run

        def noting(backups: Backups, plan: ExecutionPlan) -> str | None:
            name = tear(backups, plan)
            if name is not None:
                self._run.append(built_on(backups._store))
            return name

        def running(simulation: Simulation) -> None:
            self._run.clear()
            run(simulation)
            count = len(simulation.cluster.lost_parts)
            self.noticed += self._run[:count]
            self.unnoticed += self._run[count:]

        patch.setattr(Backups, "tear", noting)
        patch.setattr(Simulation, "run", running)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 0))
def test_the_job_ends_by_name_or_its_rows_are_right(pipeline: str, monkeypatch: Patch) -> None:
    """Where it does not end, nobody had built on what is lost, which was done once more."""
    losses = Losses(monkeypatch)

    summary = simulate(pipeline, seeds=losing(SEEDS), faults=FAULTS)

    assert summary.faults[Fault.LOST_PART] > SEEDS // 2
    assert not any(losses.unnoticed), losses.unnoticed


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 1))
def test_with_all_other_faults(pipeline: str) -> None:
    simulate(pipeline, seeds=losing(SEEDS, ALL_FAULTS), faults=ALL_FAULTS)


def idempotent(p: df.Pipeline) -> None:
    """Minutes and hours of values, of which it does not matter how often they come."""
    build(p, scripted([[(value, 25 * value)] for value in range(40)], 0), Distinct())


@pytest.mark.slow
@pytest.mark.parametrize("guarantees", [WEAK, NEITHER, UNCOUNTED])
@pytest.mark.parametrize("stage", STAGES)
def test_what_is_not_durable_is_not_asked_for(stage: str, guarantees: Guarantees) -> None:
    """Without strong productions, or without exactly-once, the numbers of channels contradict each other rightly."""
    # Where copies count, one of them may be late; that nothing is taken for lost is what is asked there.
    wanted = "" if guarantees.exactly_once else r"^(?!.*: I8)"
    for seed in range(SEEDS):
        assert re.match(wanted or "$", failure_of(seed, {stage: guarantees}))


def failure_of(seed: int, guarantees: dict[str, Guarantees]) -> str:
    try:
        simulate(idempotent, seeds=[seed], faults=FAULTS - {Fault.LOST_PART}, guarantees=guarantees)
    except SimulationError as error:
        return str(error).splitlines()[0]
    return ""


@pytest.mark.slow
def test_what_is_lost_is_reported_in_numbers(monkeypatch: Patch) -> None:
    losses, reported = Losses(monkeypatch), list[str]()
    for seed in losing(40):
        named = PIPELINES["sums"]
        simulation = Simulation(named.build, seed, faults=FAULTS, tables=named.tables)
        simulation.run()
        reported += map(str, simulation.cluster.lost_parts)

    assert len(reported) > 5
    assert any(losses.noticed)
    assert not any(losses.unnoticed), losses.unnoticed
    assert all("bundle" in each or "were" in each for each in reported)
    assert all("docs/how-to/fail-over-and-restore.md" in each for each in reported)


@pytest.mark.slow
def test_a_computation_goes_back_behind_its_own_splits_and_merges() -> None:
    """Ranges that others know of are gone, or have other keys, and nobody asks for them again and again."""
    summary = simulate("sums", seeds=RESHAPED, faults=RESHAPING)

    assert summary.faults[Fault.LOST_PART] > 0


@pytest.mark.slow
def test_a_range_that_is_asked_for_again_and_again_is_found(monkeypatch: Patch) -> None:
    """Where it is not taken for a loss that a range is gone, each worker that is given it dies."""

    def mistake(job: str, range_id: RangeId) -> StoreError:
        return StoreError(f"job {job} has no range {range_id}")

    monkeypatch.setattr(memory, "unknown_range", mistake)

    with pytest.raises(SimulationError, match=r"I11: .* has no worker"):
        simulate("sums", seeds=range(10, SEEDS_MAX), faults=RESHAPING)


def take_ranges_as_they_are(patch: Patch) -> None:
    """Whoever takes ranges over does not look at their channels."""
    patch.setattr(MemoryStore, "_check_taken", lambda *_: None)


def commit_whatever_is_relied_on(patch: Patch) -> None:
    """A commit does not look whether those of others are there that it relies on."""
    patch.setattr(MemoryStore, "_check_relied_on", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("break_core", [take_ranges_as_they_are, commit_whatever_is_relied_on])
def test_a_store_that_does_not_look_is_found(
    break_core: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    break_core(monkeypatch)

    with pytest.raises(SimulationError) as found:
        simulate("sums", seeds=losing(SEEDS_MAX), faults=FAULTS)
    print(str(found.value).splitlines()[0])
