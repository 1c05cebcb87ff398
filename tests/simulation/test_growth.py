"""Nothing grows for ever in the store: of each kind there is as much after a while as after four times as long."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.control.shapes import ShapeError
from runners.millwheel.model.requests import Request, Verb
from runners.millwheel.store.memory import evidence
from runners.millwheel.store.memory import store as memory
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.simulator import Fault
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from tests.simulation.test_pruning import AGE_MS
from tests.simulation.test_worker_crashes import scripted

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch

#: Of virtual time: of the short run, and how much longer the long one is.
MINUTES, LONGER = 3, 4
SEEDS = range(1, 4)
#: By how much more there may be by chance.
SLACK = 25
FAULTS = frozenset({Fault.CRASH, Fault.MOVE, Fault.DRIVER_CRASH})
#: How many key ranges there are, and a few.
KEY_RANGES = 4
#: What people keep for as long as they like.
KEPT = {"late", "dead", "purged_late"}
#: In place of ten thousand, which no run of some minutes comes to.
EVENTS_MAX = 60


@pytest.fixture(autouse=True)
def _few_events(monkeypatch: Patch) -> None:
    monkeypatch.setattr(evidence, "EVENTS_MAX", EVENTS_MAX)


class RestlessCluster(SimulatedCluster):
    """Workers die, ranges move, split and merge, signals and requests come, all the time; and so does housekeeping."""

    live_ms = 1 << 40

    def start_driver(self) -> None:
        self.store._clock = self.clock
        super().start_driver()

    def _round(self) -> None:
        self.dice.is_healed = False
        self.dice.struck.clear()
        self._healed_ms = 1 << 40
        chance = self.random.random()
        if chance < 0.01:
            self.send_signal("flush")
        elif chance < 0.02:
            self.send_request(Request(Verb.MOVE, ("count[0]", "1")))
        elif chance < 0.04:
            job = self.store.read_job(JOB)
            assert job is not None
            numbers = (row.signal_mark.number for row in job.ranges.values() if row.keys)
            self.store.prune(
                JOB,
                older_than_s=AGE_MS / 1_000,
                retired=self.master.retired,
                signals_up_to=min(numbers),
            )
        elif chance < 0.06 and not self._is_driver_dead:
            self._in_driver(self._reshape)
        super()._round()

    def _reshape(self) -> None:
        """Divide a key range, or unite two neighbours, so that there are about as many all the time."""
        keys = sorted(self.master.key_ranges.items(), key=lambda each: each[1].low)
        with suppress(ShapeError):
            if len(keys) <= KEY_RANGES:
                self.master.split(self.random.choice(keys)[0])
            else:
                index = self.random.randrange(len(keys) - 1)
                self.master.merge(keys[index][0], keys[index + 1][0])


def rows_of(job: StoredJob) -> Mapping[str, int]:
    """How many there are of each kind, whatever kinds there will be."""
    counts = {}
    for field in attrs.fields(StoredJob):
        value: Any = getattr(job, field.name)
        if isinstance(value, dict):
            several = [each for each in value.values() if isinstance(each, dict | list)]
            counts[field.name] = len(value) + sum(map(len, several))
        elif isinstance(value, list):
            counts[field.name] = len(value)
    return counts


def most(seed: int) -> list[Counter[str]]:
    """The most there ever is of each kind in the second half of a run, and in the last part of a longer one."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(scripted([[(n, 7 * n)] for n in range(100_000)], 0))
        | "pair" >> df.Map(lambda v: (v % 5, 1))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterAny(df.AfterWatermark(), df.AfterSignal("flush")),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "count" >> df.CombinePerKey(sum)
    )
    options = WorkerOptions(records_per_second=2.0)
    cluster = RestlessCluster(
        pipeline.graph(), seed, faults=FAULTS, store=MemoryStore(), options=options
    )
    cluster.dice.rates = {Fault.CRASH: 0.002, Fault.MOVE: 0.01, Fault.DRIVER_CRASH: 0.0005}
    found = []
    for until_minutes in (MINUTES, LONGER * MINUTES):
        counts = Counter[str]()
        begin_ms, end_ms = (60_000 * each for each in (until_minutes - MINUTES / 2, until_minutes))

        def is_over(
            counts: Counter[str] = counts, begin: float = begin_ms, end: float = end_ms
        ) -> bool:
            now_ms = cluster.clock.monotonic_ms()
            if now_ms >= begin:
                counts |= Counter(rows_of(cluster.store._jobs[JOB]))
            return now_ms >= end

        cluster.run_until(is_over)
        found.append(counts)
    made = max(each.index for each in cluster.store._jobs[JOB].ranges)
    assert made > 10, "hardly anything was ever split"
    return found


def growing(seed: int) -> dict[str, str]:
    """The kinds of which there is more after four times as long, and how much."""
    early, late = most(seed)
    return {
        kind: f"{early[kind]}, then {late[kind]}"
        for kind in late.keys() - KEPT
        if late[kind] > 2 * early[kind] + SLACK
    }


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_there_is_no_more_after_four_times_as_long() -> None:
    assert growing(1) == {}


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "unpruned",
    [
        {"delete_retired": "retired_ms"},
        # Together: none of them grows because of another one.
        {
            "forget_owners": "last_bundles",
            "forget_signals": "signals",
            "forget_requests": "requests",
        },
    ],
)
def test_what_is_not_pruned_is_found(unpruned: dict[str, str], monkeypatch: Patch) -> None:
    for verb in unpruned:
        monkeypatch.setattr(memory, verb, lambda *_: 0)

    missing = {*unpruned.values()}
    # How often ranges change their owners is chance: in one run there may be hardly more than twice as much.
    for seed in SEEDS:
        missing -= growing(seed).keys()
        if not missing:
            return
    raise AssertionError(f"of {missing} there is no more with any seed of {SEEDS}")
