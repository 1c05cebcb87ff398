"""F25: a batch or a backfill is killed, and code with another format of stored bytes goes on, or refuses.

So does a stream behind a backfill, of which a part, or all, was in the format before.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.errors import DataflowError
from dataflow.graph import PipelineGraph
from dataflow.pipeline import Pipeline
from runners.batch.range_task import RangeTask, Shipment
from runners.direct import DirectRunner
from runners.errors import StoredFormatError
from runners.millwheel.control.backfill_progress import BackfillState, backfill_state
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow
from runners.stored.framing import FORMAT, Format, number_of, writing
from runners.stored.letters import stored_dead_mapping
from runners.stored.partials import decode_partials
from runners.stored.runs import REACHED, decode_parts, decode_shipped
from runners.testing.simulator import ALL_FAULTS
from runners.testing.simulator.batch import JOB, DriverDiedError, SimulatedBatch
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.scripts import SECONDS
from runners.testing.simulator.simulation import Scenario, Simulation
from tests.backfill_jobs import LocalBackfill
from tests.effort import costly, each_third
from tests.simulation.test_batch import (
    DETERMINISTIC,
    ONCE,
    POISONED,
    counted,
    rows_of,
    small_steps,
    values_of,
)
from tests.simulation.test_upgrades import NEXT, Counted, next_format, write_the_old_number

__all__ = ["small_steps"]
Patch = pytest.MonkeyPatch
US_PER_SECOND = 1_000_000
SEEDS = st.integers(0, 2**32)
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 100
#: The position at the beginning: the pickle of None.
_BEGINNING = b"\x80\x05N."


# --- a backfill, and the stream behind it -----------------------------------------------------


class Killed:
    """Makes a store with the backfill of a pipeline: a backfill that is killed some times, before or after an upgrade.

    ``states``: how far the backfill was when the other version of the code came.
    """

    def __init__(self, seed: int, versions: ExitStack, upgrade: Format, *, is_late: bool) -> None:
        self._seed, self._versions, self._upgrade = seed, versions, upgrade
        self._is_late = is_late
        self.states: Counter[BackfillState] = Counter()

    def __call__(self, graph: PipelineGraph) -> MemoryStore:
        store, backfill, random = begun(graph, self._seed)
        backfill.run(None if self._is_late else random.choice([1, 2, 4]))
        self.states[backfill_state(job_of(store))] += 1
        if not self._is_late:
            self._versions.enter_context(writing(self._upgrade))
            backfill.run()
        assert backfill_state(job_of(store)) is BackfillState.LOADED
        return store


def begun(graph: PipelineGraph, seed: int) -> tuple[MemoryStore, LocalBackfill, Random]:
    random = Random(f"upgrade {seed}")
    until_us = random.choice([None, random.randrange(SECONDS) * US_PER_SECOND])
    store = MemoryStore()
    backfill = LocalBackfill(graph, store, seed, until_us=until_us, crash_rate=0.1)
    return store, backfill, random


def job_of(store: MemoryStore, name: str = "sim") -> JobRow:
    job = store.read_job(name)
    assert job is not None
    return job


def upgraded(name: str, seed: int, upgrade: Format, *, is_late: bool) -> Counter[BackfillState]:
    """A backfill that is killed, and a stream; the other version comes in the one or, late, in the other."""
    named = PIPELINES[name]
    with ExitStack() as versions:
        killed = Killed(seed, versions, upgrade, is_late=is_late)
        Simulation(
            named.build,
            seed,
            faults=ALL_FAULTS,
            tables=named.tables,
            whole=named.whole,
            store=killed,
            scenario=Scenario(upgrade=upgrade if is_late else None),
        ).run()
    return killed.states


@pytest.mark.slow
@pytest.mark.parametrize("name", each_third(PIPELINES, 1))
@costly(len(PIPELINES))
@given(seed=SEEDS, is_late=st.booleans())
# Frames of another size were packed in another way: two receivers had panes of different attempts at a range.
@example(seed=619, is_late=False)
# A worker that was replaced registered again, by a copy, and reported what its ranges had been.
@example(seed=574998213, is_late=True)
def test_backfill_and_stream_go_on_with_the_rows_of_an_undisturbed_run(
    name: str, seed: int, *, is_late: bool
) -> None:
    upgraded(name, seed, next_format(Counted()), is_late=is_late)


@pytest.mark.slow
def test_what_a_backfill_has_left_is_read() -> None:
    """Or the law above would be about nothing: what is half done, and what has been loaded but is not live."""
    read, states = Counted(), Counter[BackfillState]()
    for seed in range(12):
        for name in ("sums", "sessions", "stateful"):
            states += upgraded(name, seed, next_format(read), is_late=seed % 4 == 3)

    assert {"backfill mark", "split", "position", "changes", "cell"} <= {*read.kinds}, read.kinds
    assert states[BackfillState.HALF] > 5, states
    assert states[BackfillState.LOADED] > 3, states


class RunAgain(LocalBackfill):
    """A backfill of which every task that has ended is run again by the other version, and ships the same."""

    shipped = 0

    def _outputs(self, backfill: Any, execution: Any, range_id: Any, given: Any) -> list[Any]:
        outputs = super()._outputs(backfill, execution, range_id, given)
        with writing(next_format(Counted())):
            task = RangeTask(backfill, execution, range_id, lambda: self._store, "again")
            is_split = isinstance(given, bytes)
            again = list(task.read_split(given) if is_split else task.group(given))
            assert again != outputs or not outputs, "or it would be no other version"
            assert [*map(unpacked, again)] == [*map(unpacked, outputs)], f"{range_id} ships others"
        self.shipped += len(outputs)
        return outputs


def unpacked(shipment: Shipment) -> tuple[Any, ...]:
    """What is shipped, without the bytes that depend on the version."""
    target, content = shipment
    kind, fields = decode_shipped(content)
    if kind == REACHED:
        return target, fields
    *head, blob = fields
    parts = decode_parts(blob)
    return target, head, [(part, n, [*decode_partials(each, None)]) for part, n, each in parts]


@pytest.mark.slow
@pytest.mark.parametrize("name", each_third(PIPELINES, 2))
@costly(len(PIPELINES))
@given(seed=SEEDS)
def test_a_task_of_a_backfill_ships_the_same_whichever_version_runs_it_again(
    name: str, seed: int
) -> None:
    pipeline = Pipeline(DirectRunner())
    PIPELINES[name].build(pipeline, Random(seed))
    backfill = RunAgain(pipeline.graph(), MemoryStore(), seed, until_us=None)
    backfill.run()
    assert backfill.shipped > 0


def half_done(name: str) -> tuple[MemoryStore, LocalBackfill]:
    """A backfill that has died in the middle, and where something is stored."""
    for seed in range(SEEDS_MAX):
        pipeline = Pipeline(DirectRunner())
        PIPELINES[name].build(pipeline, Random(seed))
        store, backfill, _ = begun(pipeline.graph(), seed)
        backfill.run(1)
        if backfill_state(job_of(store)) is BackfillState.HALF:
            return store, backfill
    raise AssertionError("none has died in the middle")


def test_a_backfill_that_code_does_not_read_is_refused_and_nothing_is_changed() -> None:
    store, backfill = half_done("sessions")
    before = job_of(store)

    with (
        writing(next_format(None)),
        pytest.raises(
            StoredFormatError,
            match=rf"job sim cannot be read: it is stored in format {FORMAT.number}",
        ),
    ):
        backfill.run()
    assert before == job_of(store)
    # And the code that it belongs to goes on.
    backfill.run()
    assert backfill_state(job_of(store)) is BackfillState.LOADED


def test_older_code_does_not_come_back_to_a_backfill() -> None:
    store, backfill = half_done("sessions")
    with writing(next_format(Counted())):
        backfill.run(backfill.crashes + 1)

    with pytest.raises(StoredFormatError, match=rf"stored in format {NEXT}(?s:.*)or with a later"):
        backfill.run()
    assert job_of(store).stored_format == NEXT


# --- a batch ----------------------------------------------------------------------------------


def killed(build: Any, seed: int, *, tries: int | None = None) -> SimulatedBatch:
    """A batch whose driver has died, once or a few times, if it did not come to its end before."""
    run = SimulatedBatch(build, seed, rate=0.06, tries=tries)
    for _ in range(1 + seed % 3):
        try:
            run.run_once()
        except DriverDiedError:
            continue
        break
    return run


def check_batch(name: str, seed: int, upgrade: Format) -> SimulatedBatch:
    """Killed, and run to its end by the other version: what it leaves is what the direct runner leaves."""
    run = killed(DETERMINISTIC[name], seed)
    with writing(upgrade):
        run.run()
        direct = DirectRunner().run(run.graph())
        for table in run.graph().tables():
            ours = Counter(repr(sorted(each.items())) for each in run.rows(table.name))
            assert ours == rows_of(direct, table.name), f"{name}, seed {seed}, {run.struck}"
    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", DETERMINISTIC)
@costly(len(DETERMINISTIC))
@given(seed=SEEDS)
def test_a_batch_goes_on_with_the_rows_of_an_undisturbed_run(name: str, seed: int) -> None:
    check_batch(name, seed, next_format(Counted()))


@pytest.mark.parametrize("name", POISONED)
@costly(len(POISONED))
@given(seed=SEEDS)
def test_each_record_of_a_batch_is_in_a_row_or_in_a_dead_letter(name: str, seed: int) -> None:
    run = killed(POISONED[name], seed, tries=2)
    with writing(next_format(Counted())):
        run.run()
        found = counted(run.rows("rows"))
        for row in run.store.read_dead_letters(JOB):
            found.update(values_of(str(stored_dead_mapping(row)["element"].value[1])))
    assert found == ONCE, f"{name}, seed {seed}, {run.struck}"


@pytest.mark.slow
def test_what_a_batch_has_left_is_read_and_what_is_written_is_new() -> None:
    read, left = Counted(), Counter[int | None]()
    for seed in range(20):
        run = check_batch("chain", seed, next_format(read))
        left.update(
            number_of(row.position)
            for row in job_of(run.store, JOB).ranges.values()
            if row.position
        )

    assert {"batch mark", "split"} <= {*read.kinds}, read.kinds
    assert left[NEXT] > 10, left


def test_a_batch_that_code_does_not_read_is_refused_and_nothing_is_changed() -> None:
    run = killed(DETERMINISTIC["chain"], 1)
    before = job_of(run.store, JOB)
    assert not before.is_finished

    with (
        writing(next_format(None)),
        pytest.raises(StoredFormatError, match=r"job batch cannot be read: it is stored in format"),
    ):
        run.run()
    assert before == job_of(run.store, JOB)
    run.run()
    assert job_of(run.store, JOB).is_finished


# --- broken on purpose ------------------------------------------------------------------------


def forget_progress(patch: Patch) -> None:
    """A reader of marks that loses how far a range was."""
    kept = Counted.__call__

    def losing(self: Counted, kind: str, fields: list[Any]) -> list[Any]:
        fields = kept(self, kind, fields)
        is_mark = kind in ("batch mark", "backfill mark")
        return [0, _BEGINNING, *fields[2:]] if is_mark else fields

    patch.setattr(Counted, "__call__", losing)


@pytest.mark.parametrize("broken", [forget_progress, write_the_old_number])
@pytest.mark.parametrize("what", ["batch", "backfill"])
def test_a_broken_upgrade_is_found(
    what: str, broken: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    broken(monkeypatch)

    def look() -> None:
        for seed in range(SEEDS_MAX):
            if what == "batch":
                check_batch("chain", seed, next_format(Counted()))
            else:
                upgraded("chain", seed, next_format(Counted()), is_late=False)

    with pytest.raises((AssertionError, InvariantError, DataflowError, ValueError)):
        look()
