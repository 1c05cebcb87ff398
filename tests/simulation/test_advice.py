"""What is advised for a simulated job is followed as an operator would: then its busiest worker has less to do."""

from collections.abc import Mapping
from random import Random

import pytest

import dataflow as df
from runners.millwheel.control.shapes import ShapeError
from runners.millwheel.master.load_policy import PolicyOptions
from runners.millwheel.model.ids import RangeId
from runners.observability.advice.advise import Advice, AdviceKind, JobAdvice, advise
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import SimulatedCluster
from tests.simulation.test_balancing import KEYS, FullStepsCluster
from tests.simulation.test_worker_crashes import COLUMNS, row

pytestmark = pytest.mark.slow

OPTIONS = PolicyOptions(records_min=20, hashes_min=8, ranges_min=2)
SECOND_MS = 1_000
#: With fewer records in a second the job has not begun.
LOAD_MIN = 400
SPREAD = "the load is as well spread as it can be"
#: Virtual time between two batches of a split, so that the job does not end before it was looked at.
BATCHES = 2_000


def script(chance: Random) -> ScriptedSource:
    """Records with some keys each, all in one range, so that a split of the source is not what has most to do."""
    return ScriptedSource(
        [
            Batch(
                [chance.sample(KEYS, 10) for _ in range(10)],
                [number * 1_000_000] * 10,
                number * 1_000_000,
            )
            for number in range(BATCHES)
        ]
    )


def build(p: df.Pipeline, source: df.Source) -> None:
    (
        p
        | "read" >> df.Read(source)
        | "keys" >> df.FlatMap(lambda keys: [(key, 1) for key in keys])
        | "minutes" >> df.WindowInto(df.FixedWindows(60))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start"])
    )


class Observed(FullStepsCluster):
    """Nobody balances it but the test."""

    def __init__(self, seed: int) -> None:
        p = df.Pipeline()
        build(p, script(Random(seed)))
        super().__init__(p.graph(), seed, ())
        self.taker = SnapshotTaker("sim", 0, "driver", 0)

    def _step_master(self) -> None:
        # Past that of the class, whose balancer would do what is to be advised.
        SimulatedCluster._step_master(self)

    def advice(self) -> JobAdvice:
        """After some time at rest, of the second after it."""
        self.taker.take(self.master.view())
        for _ in range(20):
            until_ms = self.clock.monotonic_ms() + SECOND_MS
            while self.clock.monotonic_ms() < until_ms:
                self._round()
            snapshot = self.taker.take(self.master.view())
            found = advise(snapshot, self.next_indexes(), {}, OPTIONS)
            if sum(found.loads) >= LOAD_MIN and found.reason in (None, SPREAD):
                return found
        raise AssertionError(found)

    def next_indexes(self) -> Mapping[str, int]:
        row = self.store.read_job("sim")
        assert row is not None
        found: dict[str, int] = {}
        for each in row.ranges:
            found[each.computation] = max(found.get(each.computation, 0), each.index + 1)
        return found

    def follow(self, found: JobAdvice) -> None:
        """Do the first step that is advised, by its command."""
        step = found.steps[0]
        assert step.command is not None
        _, verb, job, name, *rest = step.command.replace("'", "").split()
        assert job == "sim"
        range_id = RangeId.parse(name)
        try:
            if verb == "move":
                self.master.move([range_id], int(rest[0]))
            elif verb == "split":
                self.master.split(range_id, int(rest[0], 0))
            else:
                self.master.merge(range_id, RangeId.parse(rest[0]))
        except ShapeError:
            pass


def of_ranges(found: JobAdvice) -> list[Advice]:
    """What spreads the load; workers of a simulation do nothing for any time, so they always seem too many."""
    return [each for each in found.steps if each.kind in (AdviceKind.SPLIT, AdviceKind.MOVE)]


@pytest.mark.parametrize("seed", range(3))
def test_the_busiest_worker_has_less_to_do(seed: int) -> None:
    """All records are of keys in one range: it is split, and a part of it moves, until nothing more is advised."""
    cluster = Observed(seed)
    found = cluster.advice()
    assert found.steps, found
    assert found.steps[0].kind in (AdviceKind.SPLIT, AdviceKind.MOVE)
    first = max(found.loads) / sum(found.loads)
    assert max(found.steps[-1].after) < max(found.loads)
    followed = []
    for _ in range(12):
        if not of_ranges(found):
            break
        followed.append(found.steps[0].text)
        cluster.follow(found)
        found = cluster.advice()

    assert not of_ranges(found), followed
    assert max(found.loads) / sum(found.loads) < 0.8 * first, (followed, found.loads)
    counts, _ = cluster.master.view().moves
    assert sum(counts) > 0, "how long nobody had a range that moved is known"
