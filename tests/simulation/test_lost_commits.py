"""A store that goes back to an earlier moment under a live job: a standby that lagged, a backup that was restored."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from runners.millwheel.master.witness import Witness
from runners.testing.simulator import Fault, SimulationError, simulate
from runners.testing.simulator import backups as backups_of_runs
from runners.testing.simulator.cluster import SimulatedCluster
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.simulation import Simulation
from runners.testing.simulator.store import SimulatedStore
from tests.effort import by_profile, each_third

SEEDS = by_profile(4, nightly=10_000)
#: With what makes it worse: workers that hang, messages of long ago, commits that come late.
FAULTS = frozenset({Fault.LOST_COMMITS, Fault.PAUSE, Fault.CRASH, Fault.DELAY, Fault.LATE_COMMIT})
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 300

Patch = pytest.MonkeyPatch


def losing(count: int) -> list[int]:
    """The first seeds in which commits can be lost."""
    seeds = (seed for seed in range(1, 100 * count) if seed % 10)
    able = (seed for seed in seeds if Fault.LOST_COMMITS in Dice(seed, FAULTS).rates)
    return list(islice(able, count))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 2))
def test_whatever_the_store_loses_every_record_counts_once(pipeline: str) -> None:
    summary = simulate(pipeline, seeds=losing(SEEDS), faults=FAULTS)

    assert summary.faults[Fault.LOST_COMMITS] > SEEDS // 2


@pytest.mark.slow
def test_what_is_lost_is_reported_in_numbers() -> None:
    """Only where the store comes back with less than workers had reported: an earlier owner, or fewer commits."""
    reported = 0
    for seed in losing(15):
        named = PIPELINES["sums"]
        simulation = Simulation(named.build, seed, faults=FAULTS, tables=named.tables)
        cluster, expected = simulation.cluster, list[bool]()
        begin_again = cluster._begin_again

        def look(
            cluster: SimulatedCluster = cluster,
            expected: list[bool] = expected,
            begin_again: Callable[[], None] = begin_again,
        ) -> None:
            # Not when the store is restored: workers that do not know that yet report for a while.
            job = cluster.store.read_job("sim")
            assert job is not None
            marks = cluster.master.witness._marks
            expected.append(
                any(
                    (marks[each].token, marks[each].bundle) > (row.token, row.bundle)
                    for each, row in job.ranges.items()
                )
            )
            begin_again()

        cluster._begin_again = look  # type: ignore[method-assign]
        simulation.run()
        if cluster.lost:
            reported += 1
            assert "was committed, the store has bundle" in str(cluster.lost[0])
        assert not cluster.lost or any(expected), seed
    assert reported > 3


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["stamped", "stateful", "late"])
def test_a_backup_stays_as_it_was_while_the_job_goes_on(pipeline: str, monkeypatch: Patch) -> None:
    """It shares frozen values with the store and the checks, and nothing that they change."""
    monkeypatch.setattr(backups_of_runs, "_EVERY_ROUNDS", 3)
    named = PIPELINES[pipeline]
    simulation = Simulation(named.build, 1, faults={Fault.LOST_COMMITS: 0.0}, tables=named.tables)
    backups, taken = simulation.cluster.backups, dict[str, Any]()
    keep = backups._contents

    def contents() -> list[dict[str, Any]]:
        kept = keep()
        taken[repr(kept)] = kept
        return kept

    backups._contents = contents  # type: ignore[method-assign]
    simulation.run()

    assert len(taken) > 3
    assert [repr(kept) for kept in taken.values()] == list(taken)


def workers_go_on(patch: Patch) -> None:
    """Connected again, a worker goes on with what it has in memory."""
    _unbound(patch, lambda who: who != "driver")


def the_driver_goes_on(patch: Patch) -> None:
    """Its watermarks are of a past that the store knows nothing of."""
    _unbound(patch, lambda who: who == "driver")


def everybody_goes_on(patch: Patch) -> None:
    """A restored store is taken for one that has only been restarted."""
    _unbound(patch, lambda _: True)


def _unbound(patch: Patch, is_unbound: Callable[[str], bool]) -> None:
    check = SimulatedStore.check

    def broken(store: SimulatedStore) -> None:
        if not is_unbound(store._who):
            check(store)

    patch.setattr(SimulatedStore, "check", broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_core", "known"),
    [(workers_go_on, 141), (the_driver_goes_on, 8), (everybody_goes_on, 992)],
)
def test_a_job_that_goes_on_is_found(
    break_core: Callable[[Patch], None], known: int, monkeypatch: Patch
) -> None:
    """By a seed that is known, or one after the other."""
    break_core(monkeypatch)

    with pytest.raises(SimulationError) as found:
        simulate("sums", seeds=[known, *losing(SEEDS_MAX)], faults=FAULTS)
    print(str(found.value).splitlines()[0])


@pytest.mark.slow
def test_a_witness_that_reports_nothing_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Witness, "on_report", lambda *_: None)
    monkeypatch.setattr(Witness, "check", lambda *_: None)

    with pytest.raises(AssertionError):
        test_what_is_lost_is_reported_in_numbers()
