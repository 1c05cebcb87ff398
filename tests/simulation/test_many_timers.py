"""A watermark that makes more due than fits into a step: others have their turn, and the output is the same."""

from collections import Counter, deque
from collections.abc import Mapping

import attrs
import pytest

import dataflow as df
from runners.core.ground.cells import Effects
from runners.core.open_windows.buffered import Buffered
from runners.millwheel.model.production import Production
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.millwheel.worker.worker import Worker
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import Fault, SimulatedCluster, SimulationError, dice, simulate
from runners.testing.simulator.pipelines import PIPELINES
from tests.effort import by_profile, each_third

pytestmark = pytest.mark.slow

#: Of each pipeline and each number of timers; there are more than twenty of these.
SEEDS = by_profile(3, nightly=1_000)
SEEDS_MAX = 300
KEYS, TIMERS_PER_STEP = 200, 10


@pytest.mark.parametrize("timers", [1, 2])
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 1))
def test_pipelines_with_few_timers_in_a_step(
    pipeline: str, timers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dice, "STEPS", (StepLimits(timers=timers),))

    simulate(pipeline, seeds=SEEDS)


def test_simulator_rejects_deliveries_between_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the windows that are due have fired: a record would be late in these, and in time in the others."""

    def work(worker: Worker) -> bool:
        worked = worker._act_on_signals()
        for name, computation in worker._computations.items():
            if isinstance(computation, GroupingComputation):
                worked |= worker._advance(name, computation)
                worked |= worker._take_deliveries(name, computation)
            else:
                worked |= worker._read(computation)
        worker._committer.commit_round()
        return worked

    monkeypatch.setattr(Worker, "_work", work)

    # Only where a step does hardly anything.
    with monkeypatch.context() as patch:
        patch.setattr(dice, "STEPS", (STEP_LIMITS,))
        simulate("late", seeds=SEEDS_MAX // 10)
    monkeypatch.setattr(dice, "STEPS", (StepLimits(timers=1),))
    with pytest.raises(SimulationError, match=r"(?s)seed \d+: I2.*replay: .* --seed \d+"):
        simulate("late", seeds=SEEDS_MAX)


class WatchedCluster(SimulatedCluster):
    """Notes how many rows each commit has written."""

    most_rows = 0

    def _note_committed(self, production: Production) -> None:
        super()._note_committed(production)
        rows = sum(len(write.inserts) for write in production.tables)
        self.most_rows = max(self.most_rows, rows)


CRASHES = {Fault.CRASH: 0.05, Fault.MOVE: 0.2}


def run_to_the_end_of_many_keys(seed: int, faults: Mapping[Fault, float]) -> WatchedCluster:
    """Count records of many keys, all of which are due at once."""
    p = df.Pipeline()
    (
        p
        | "read" >> df.Read(ScriptedSource([Batch(list(range(KEYS)) * 2, [0] * KEYS * 2)]))
        | "pair" >> df.Map(lambda each: (each, 1))
        | "count" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "count": pair[1]})
        | df.WriteToPostgres("counts", columns={"key": int, "count": int})
    )
    options = WorkerOptions(steps=StepLimits(timers=TIMERS_PER_STEP))
    cluster = WatchedCluster(p.graph(), seed, faults=faults, options=options)
    cluster.run()

    (table,) = p.graph().tables()
    assert Counter(cluster.store.read_table(table)) == Counter((key, 2) for key in range(KEYS))
    return cluster


@pytest.mark.parametrize("faults", [{}, CRASHES])
@pytest.mark.parametrize("seed", range(3))
def test_the_end_of_many_keys_is_many_steps(seed: int, faults: Mapping[Fault, float]) -> None:
    """So that a worker that has much to emit is not taken for dead meanwhile, nor keeps all of it in memory.

    This includes one that takes ranges over in the middle of it.
    """
    assert 0 < run_to_the_end_of_many_keys(seed, faults).most_rows <= TIMERS_PER_STEP


def test_a_window_of_which_a_part_has_fired_unnoticed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next owner would have these keys fire again."""
    part_fired = Buffered._part_fired
    monkeypatch.setattr(
        Buffered,
        "_part_fired",
        lambda *args: attrs.evolve(part_fired(*args), effects=Effects()),
    )

    with pytest.raises((AssertionError, SimulationError)):
        deque((run_to_the_end_of_many_keys(seed, CRASHES) for seed in range(SEEDS_MAX)), maxlen=0)
