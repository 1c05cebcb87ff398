"""Simulated jobs whose source is behind a gate, so that a test decides what comes and what does not."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

import dataflow as df
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.observability.why.asking import question
from runners.observability.why.explain import Question, explain
from runners.observability.why.explanation import WhyExplanation
from runners.testing.simulator import SimulatedCluster
from runners.testing.simulator.evidence import evidence_of
from windowing.timestamps import MIN_TIMESTAMP_US

US_PER_S = 1_000_000


@attrs.define
class Gate:
    """How far the splits may be read, each up to a second of event time."""

    until_s: dict[int, int] = attrs.field(factory=dict)
    #: Splits whose reader says that they are idle when they have nothing, and those that end there.
    idle: set[int] = attrs.field(factory=set)
    ended: set[int] = attrs.field(factory=set)
    #: Splits that cannot be read.
    away: dict[int, df.Outage] = attrs.field(factory=dict)
    #: By how much the watermark of each second read goes back.
    jitter_us: int = 0


@attrs.frozen
class Gated(df.Source):
    """Splits with a record a second, read as far as a gate allows; none of them is ever idle."""

    gate: Gate = attrs.field(eq=False)
    splits_count: int = 2
    is_bounded = False

    def splits(self, desired: int) -> Sequence[int]:
        return range(self.splits_count)

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _GatedReader(self.gate, split, position or 0)


class _GatedReader(df.SourceReader):
    def __init__(self, gate: Gate, split: int, position: int) -> None:
        self._gate, self._split, self._next = gate, split, position

    def read(self, max_records: int) -> df.SourceBatch:
        outage = self._gate.away.get(self._split)
        until = 0 if outage is not None else self._gate.until_s.get(self._split, 0)
        end = min(until, self._next + max_records)
        start, self._next = self._next, max(end, self._next)
        return df.SourceBatch(
            values=[(self._split, second) for second in range(start, self._next)],
            timestamps_us=[second * US_PER_S for second in range(start, self._next)],
            position=self._next,
            watermark_us=self._watermark_us(),
            status=self._status(start) if outage is None else df.SplitStatus.ACTIVE,
            outage=outage,
        )

    def _watermark_us(self) -> int:
        if not self._next:
            return MIN_TIMESTAMP_US
        # It goes back by more than a second each other time.
        return self._next * US_PER_S - self._gate.jitter_us * (self._next % 2)

    def _status(self, start: int) -> df.SplitStatus:
        if start < self._next:
            return df.SplitStatus.ACTIVE
        if self._split in self._gate.ended:
            return df.SplitStatus.FINISHED
        return df.SplitStatus.IDLE if self._split in self._gate.idle else df.SplitStatus.ACTIVE


class Cluster(SimulatedCluster):
    """Two workers without chance of faults, whose source is behind a gate that the test opens."""

    def __init__(
        self,
        seed: int,
        gate: Gate,
        build: Callable[[df.Pipeline, df.Source], Any],
        *,
        splits: int = 2,
        workers: int = 2,
        shows_keys: bool = False,
    ) -> None:
        self.source, p = Gated(gate, splits), df.Pipeline()
        build(p, self.source)
        # All state in memory, so that it can be compared with what is stored.
        options = WorkerOptions(state_cache_bytes=1 << 30, shows_keys=shows_keys)
        super().__init__(p.graph(), seed, faults=(), workers=workers, options=options)
        self.gate = gate

    def run_for(self, ms: int) -> None:
        until_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < until_ms:
            self._round()

    def run_to(self, is_reached: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if is_reached():
                return
            self._round()
        raise AssertionError("not there")

    def open_to(self, second: int, splits: Sequence[int] = (0, 1)) -> None:
        self.gate.until_s |= dict.fromkeys(splits, second)

    def at(self, stage: str) -> float:
        return self.master._authority.inputs_us[stage] / US_PER_S

    def asked(self, **asked: Any) -> Question:
        return question(**asked)

    def why(self, **asked: Any) -> WhyExplanation:
        wanted = self.asked(**asked)
        # What has arrived counts: by chance the driver may not have had its turn for seconds.
        self._step_master()
        return explain(evidence_of(self, wanted.key), wanted)


def two_sums(p: df.Pipeline, source: df.Source) -> None:
    """Sums by a key, and sums of these: two groupings behind one source."""
    windows = df.WindowInto(df.FixedWindows(10))
    (
        p
        | "read" >> df.Read(source)
        | "keys" >> df.Map(lambda pair: (pair[1] % 7, 1))
        | "windows" >> windows
        | "sum" >> df.CombinePerKey(sum)
        | "one" >> df.Map(lambda pair: (0, pair[1]))
        | "all" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
        | "rows" >> df.WriteToPostgres("rows", columns={"key": int, "sum": int})
    )


def started(seed: int) -> Cluster:
    """A job that has come to twenty seconds of event time."""
    cluster = Cluster(seed, Gate(), two_sums)
    cluster.open_to(20)
    cluster.run_to(lambda: cluster.at("all") == 20)
    return cluster


def stop_worker(cluster: Cluster, number: int) -> str:
    """Have a worker die, or stop for good, and nobody come in its place; returns its name."""
    process = cluster.workers[number]
    assert process is not None
    process.die()
    cluster.workers[number] = None
    cluster._due_ms[number] = 10**9
    return process.name
