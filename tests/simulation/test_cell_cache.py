"""State that is not in memory is read back as it was, whoever dies; and who has lost a range reads nothing of it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import TransformError
from runners.core.ground.cells import CellId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.state.cell_cache import ENTRY_BYTES, CellCache
from runners.millwheel.worker.state.stored_cells import StoredCells
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import Fault, SimulatedCluster, SimulationError, dice, simulate
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.process import Steps
from runners.testing.simulator.scripts import truthful
from runners.testing.simulator.simulation import Simulation
from tests.effort import by_profile, each_third

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 300
#: Of each pipeline.
SEEDS = by_profile(3, nightly=1_000)
SEEN = df.BagStateSpec("seen")
#: Where the default trigger fires too; but the window of a key has a cell, and is not buffered.
IN_CELLS = df.WindowInto(
    df.GlobalWindows(),
    trigger=df.AfterWatermark(),
    accumulation_mode=df.AccumulationMode.DISCARDING,
)


@pytest.fixture
def nothing_in_memory(monkeypatch: Patch) -> None:
    """Every cell goes as soon as it is committed."""
    monkeypatch.setattr(dice, "CACHES_BYTES", (0,))


@pytest.mark.usefixtures("nothing_in_memory")
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 2))
def test_pipelines_with_all_state_in_the_store(pipeline: str) -> None:
    simulate(pipeline, seeds=SEEDS)


@pytest.mark.usefixtures("nothing_in_memory")
def test_nothing_is_in_memory() -> None:
    simulation = Simulation(PIPELINES["sums"].build, 0, faults=())
    simulation.run()
    counts = simulation.cluster.master.statistics().cell_cache

    assert counts.bytes_buffered == counts.hits == 0
    assert min(counts.misses, counts.loads, counts.evictions) > 10


class Once(df.DoFn):
    """Fails on what it has seen before."""

    def process(
        self, element: tuple[int, int], /, seen: Any = df.DoFn.StateParam(SEEN)
    ) -> Iterator[Any]:
        """Pass it on."""
        key, number = element
        if number in seen.read():
            raise ValueError(f"{number} comes again")
        seen.add(number)
        yield key, [number]


def build_once(p: df.Pipeline, random: Random) -> None:
    """Nothing may count twice, not even for a moment, in code that writes it down."""
    p | "read" >> df.Read(truthful(random)) | "once" >> df.ParDo(Once())


def build_long(p: df.Pipeline, random: Random) -> None:
    """Splits whose records go on and on."""
    source = ScriptedSource(*(list(_numbered(random, split)) for split in range(2)))
    p | "read" >> df.Read(source) | "once" >> df.ParDo(Once())


def _numbered(random: Random, split: int) -> Iterator[Batch]:
    for first in range(split, 90, 6):
        yield Batch([(random.randrange(5), first + each) for each in (0, 2, 4)], [0, 0, 0], 0)


ZOMBIES = {Fault.PAUSE, Fault.ZOMBIE, Fault.MOVE}
OFTEN = {Fault.PAUSE: 0.03, Fault.ZOMBIE: 0.03, Fault.MOVE: 0.1}


@pytest.mark.usefixtures("nothing_in_memory")
def test_former_owners_do_not_meet_what_comes_after_them() -> None:
    simulate(build_once, seeds=100, faults=ZOMBIES)


@pytest.mark.usefixtures("nothing_in_memory")
def test_a_fence_at_the_commit_is_not_enough(monkeypatch: Patch) -> None:
    """By then user code has met the state of another owner, and may have failed; then the job fails."""
    monkeypatch.setattr(MemoryStore, "_not_owned", lambda *_: None)

    with pytest.raises(TransformError, match="comes again") as failure:
        simulate(build_long, seeds=SEEDS_MAX, faults=OFTEN)
    assert "seeds=[" in failure.value.__notes__[0]


def keep_what_was_read(patch: Patch) -> None:
    """An older value stands for a newer one."""
    read = StoredCells.read

    def stale(stored: StoredCells, cell_ids: Sequence[CellId]) -> Iterator[tuple[CellId, bytes]]:
        known = vars(stored).setdefault("known", {})
        known |= read(stored, [each for each in cell_ids if each not in known])
        return ((each, known[each]) for each in cell_ids if each in known)

    patch.setattr(StoredCells, "read", stale)


def let_go_of_what_is_needed(patch: Patch) -> None:
    """What is read for a step goes before the step."""
    need = CellCache.need

    def broken(cache: CellCache, cell_ids: Iterable[CellId]) -> None:
        need(cache, cell_ids)
        cache.trim()

    patch.setattr(CellCache, "need", broken)


def believe_that_all_is_in_memory(patch: Patch) -> None:
    """A cell that is not there is taken for one that is not anywhere."""
    patch.setattr(CellCache, "need", lambda *_: None)


@pytest.mark.usefixtures("nothing_in_memory")
@pytest.mark.parametrize(
    ("mutation", "pipeline"),
    [
        (believe_that_all_is_in_memory, "sums"),
        (keep_what_was_read, "sums"),
        (keep_what_was_read, "sessions"),
        (keep_what_was_read, "stateful"),
        (let_go_of_what_is_needed, "sums"),
        (let_go_of_what_is_needed, "stateful"),
    ],
)
def test_simulator_rejects(
    mutation: Callable[[Patch], None], pipeline: str, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)

    with pytest.raises(SimulationError, match=r"(?s)seed \d+: .*replay: .* --seed \d+"):
        simulate(pipeline, seeds=SEEDS_MAX)


BOUND_BYTES, RECORDS = 30_000, 600


class WatchedCluster(SimulatedCluster):
    """Looks at every worker after each of its steps."""

    most_bytes = most_cells = 0

    def start_worker(self, slot: int) -> Steps:
        return Watched(super().start_worker(slot), self)


class Watched:
    """A worker whose memory is looked at."""

    def __init__(self, worker: Any, cluster: WatchedCluster) -> None:
        self.worker, self.cluster = worker, cluster

    def step(self) -> bool:
        worked: bool = self.worker.step()
        kept = sum(
            each.state.cache_counts.bytes_buffered
            for each in self.worker._computations.values()
            if isinstance(each, GroupingComputation)
        )
        cells = self.cluster.store.statistics(JOB)["cells"]
        self.cluster.most_bytes = max(kept, self.cluster.most_bytes)
        self.cluster.most_cells = max(cells, self.cluster.most_cells)
        return worked


@pytest.mark.parametrize("seed", range(5))
def test_state_many_times_the_bound(seed: int) -> None:
    """What is in memory stays below it, and no count suffers, on one worker through all faults."""
    numbers = Random(seed).sample(range(RECORDS), RECORDS)
    batches = [
        Batch([each % 200 for each in some], [each * 1_000 for each in some], 0)
        for some in (numbers[start : start + 20] for start in range(0, RECORDS, 20))
    ]
    p = df.Pipeline()
    (
        p
        | "read" >> df.Read(ScriptedSource(batches))
        | "pair" >> df.Map(lambda each: (each, 1))
        | "in cells" >> IN_CELLS
        | "count" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "count": pair[1]})
        | "counts" >> df.WriteToPostgres("counts", columns={"key": int, "count": int}, key=["key"])
    )
    options = WorkerOptions(state_cache_bytes=BOUND_BYTES)
    cluster = WatchedCluster(p.graph(), seed, workers=1, options=options)
    cluster.run()

    (table,) = p.graph().tables()
    assert Counter(dict(cluster.store.read_table(table))) == Counter(each % 200 for each in numbers)
    assert 0 < cluster.most_bytes <= BOUND_BYTES
    assert cluster.most_cells * ENTRY_BYTES > 4 * BOUND_BYTES
