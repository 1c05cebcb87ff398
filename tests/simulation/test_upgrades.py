"""F25: everybody is killed in mid-stream, and code with another format of stored bytes goes on, or refuses."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import StoredFormatError
from runners.stored import framing
from runners.stored.framing import FORMAT, Format, number_of
from runners.testing.simulator import ALL_FAULTS, NO_FAULTS, SimulationError, simulate
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.simulation import Scenario, Simulation
from tests.effort import by_profile, costly, each_third

#: Of each of a few pipelines, to see what they leave.
SEEDS = by_profile(8, nightly=12)
#: As the fields of every kind could be in another version: the other way round, with something new in front.
NEXT = FORMAT.number + 1


def turned(_: str, fields: list[Any]) -> list[Any]:
    return ["new", *reversed(fields)]


def turned_back(_: str, fields: list[Any]) -> list[Any]:
    assert fields[0] == "new"
    return fields[:0:-1]


class Counted:
    """A reader of the older format, which counts what it reads."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def __call__(self, kind: str, fields: list[Any]) -> list[Any]:
        self.kinds[kind] += 1
        return fields


def next_format(reader: Counted | None) -> Format:
    readers = {} if reader is None else {FORMAT.number: reader}
    return Format(number=NEXT, readers=readers, layout=turned, restored=turned_back)


@pytest.mark.slow
@pytest.mark.parametrize("name", each_third(PIPELINES, 0))
@costly(len(PIPELINES))
@given(seed=st.integers(0, 2**32))
def test_newer_code_goes_on_with_the_rows_of_an_undisturbed_run(name: str, seed: int) -> None:
    simulate(name, seeds=[seed], upgrade=next_format(Counted()))


@pytest.mark.slow
def test_what_was_left_is_read_and_what_is_written_is_new() -> None:
    """Or the law above would be about nothing: of every kind that a stream leaves, some is read, and none is left."""
    left, read = Counter[str](), Counted()
    upgrade = next_format(read)
    for seed in range(SEEDS):
        for name in ("sums", "sessions", "stateful", "typed"):
            simulation = upgraded(name, seed, upgrade)
            job = simulation.cluster.store.read_job(JOB)
            assert job is not None
            left[f"format {job.stored_format}, version {job.version}"] += 1
            if job.stored_format == NEXT:
                positions = [row.position for row in job.ranges.values() if row.position]
                left.update(f"position of {number_of(each)}" for each in positions)

    assert {"split", "position", "partials", "changes", "cell"} <= {*read.kinds}, read.kinds
    assert left[f"format {NEXT}, version 1"] > SEEDS, left
    assert left[f"position of {NEXT}"] > SEEDS, left


def test_code_that_does_not_read_it_refuses_and_changes_nothing() -> None:
    simulation = paused("sums", seed=3)
    store = simulation.cluster.store
    before = store.read_job(JOB)

    with (
        framing.writing(next_format(None)),
        pytest.raises(
            StoredFormatError,
            match=rf"job sim cannot be read: it is stored in format {FORMAT.number}",
        ),
    ):
        simulation.cluster.upgrade()
    assert before == store.read_job(JOB)
    # And the code that it belongs to goes on.
    simulation.cluster.spec = simulation.cluster.spec_of(simulation.pipeline.graph())
    simulation.cluster.start_driver()
    simulation.cluster.run()


def test_older_code_does_not_come_back() -> None:
    """A job that newer code has had is in the newer format, and is refused by the older one."""
    simulation = paused("sums", seed=3)
    with framing.writing(next_format(Counted())):
        simulation.cluster.upgrade()
    simulation.cluster.spec = simulation.cluster.spec_of(simulation.pipeline.graph())

    with pytest.raises(StoredFormatError, match=rf"stored in format {NEXT}(?s:.*)or with a later"):
        simulation.cluster.start_driver()


def forget_what_was_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    """A reader that loses what it does not know."""
    kept = Counted.__call__

    def losing(self: Counted, kind: str, fields: list[Any]) -> list[Any]:
        fields = kept(self, kind, fields)
        return [fields[0], fields[1], [], [], fields[4]] if kind == "changes" else fields

    patch.setattr(Counted, "__call__", losing)


def write_the_old_number(patch: pytest.MonkeyPatch) -> None:
    """New bytes under an old number."""
    encode = framing._encode
    patch.setattr(framing, "_encode", lambda fields: encode((FORMAT.number, *fields[1:])))


@pytest.mark.slow
@pytest.mark.parametrize("broken", [forget_what_was_in_the_journal, write_the_old_number])
def test_a_broken_upgrade_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    with pytest.raises((SimulationError, StoredFormatError)):
        simulate("chain", seeds=20, upgrade=next_format(Counted()))


def upgraded(name: str, seed: int, upgrade: Format) -> Simulation:
    simulation = Simulation(
        PIPELINES[name].build, seed, faults=ALL_FAULTS, scenario=Scenario(upgrade=upgrade)
    )
    simulation.run()
    return simulation


def paused(name: str, seed: int) -> Simulation:
    """One that is in mid-stream, without faults."""
    simulation = Simulation(PIPELINES[name].build, seed, faults=NO_FAULTS)
    rounds = iter(range(20))
    simulation.cluster.run_until(lambda: next(rounds, None) is None)
    assert not simulation.cluster.is_over
    return simulation
