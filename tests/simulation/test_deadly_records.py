"""A record that ends the process which works on it is a dead letter, and everything else is as without it."""

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.wire.messages import Died, encode
from runners.millwheel.worker.caution import Caution
from runners.millwheel.worker.deliveries import Deliveries
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.spark.trials import ForkedTrial
from runners.testing.scripted_source import Batch
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.fault import Fault
from runners.testing.simulator.process import Steps, WorkerProcess
from tests.effort import costly
from tests.simulation import test_worker_crashes
from tests.simulation.test_signals import GatedSource, has_read
from tests.simulation.test_worker_crashes import batches, scripted

pytestmark = pytest.mark.slow


class Gone(BaseException):
    """Nobody catches it, as nobody catches a signal."""


class Seen:
    """A `runners.streaming.supervised.PageWatch` for a process that is simulated; but its trials are real ones."""

    def __init__(self) -> None:
        self.at: tuple[StepInput, ...] = ()
        self.trial = ForkedTrial(None, lambda: None, lambda: None)

    def begin(self, at: Any) -> None:
        self.at = tuple(at)

    def end(self) -> None:
        self.at = ()

    def commits(self, since_us: int) -> None:
        """Nobody asks for it."""


class Mortal:
    """A worker whose process ends with what ends it, and somebody beside it who reports it."""

    def __init__(self, worker: Any, process: WorkerProcess, watch: Seen, dice: Dice) -> None:
        self.worker, self.process, self.watch, self._dice = worker, process, watch, dice
        worker._caution = worker._compactor._caution = Caution(
            worker._computations, watch, worker._clock
        )

    def step(self) -> bool:
        try:
            return bool(self.worker.step())
        except Gone:
            self.report()
            return True

    def report(self) -> None:
        died = Died(slot=self.process.slot, at=self.watch.at, reason="it ended", is_silent=True)
        self.process.die()
        # What waits now waits for another worker.
        self._dice.struck[Fault.CRASH] += 1
        self.process.network.put((self.process.name, "master"), encode(died))


class Cluster(test_worker_crashes.Cluster):
    def start_worker(self, slot: int) -> Steps:
        process = self._starting
        return Mortal(super().start_worker(slot), process, Seen(), self.dice)


def deadly(deaths: frozenset[int]) -> Any:
    def strike(value: int) -> int:
        if value in deaths:
            raise Gone
        return value

    return strike


def build(p: df.Pipeline, source: df.Source, deaths: frozenset[int]) -> None:
    (
        p
        | "read" >> df.Read(source)
        | "strike" >> df.Map(deadly(deaths))
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "list" >> df.GroupByKey()
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": sum(pair[1])})
        | "write" >> df.WriteToPostgres("totals", columns={"key": int, "total": int}, key=["key"])
    )


@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
@costly(cells=2)
@given(
    batches=batches,
    deaths=st.frozensets(st.integers(0, 99), max_size=6),
    seed=st.integers(0, 2**32),
)
def test_what_ends_its_process_is_left_out_and_nothing_else(
    crash_rate: float, batches: list[list[tuple[int, int]]], deaths: frozenset[int], seed: int
) -> None:
    """However many there are, in whatever bundles, and whatever else dies."""
    values = [value for batch in batches for value, _ in batch]
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted(batches, 0), deaths)
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=WorkerOptions(tries=2))
    cluster.run()
    (table,) = pipeline.graph().tables()
    expected: dict[int, int] = {}
    for value in values:
        if value not in deaths:
            expected[value % 5] = expected.get(value % 5, 0) + value

    assert dict(cluster.store.read_table(table)) == expected, f"seed={seed}"
    letters = cluster.store.read_dead_letters("sim")
    assert len(letters) == sum(value in deaths for value in values), f"seed={seed}"
    assert all("exit code 1" in each["error"] for each in letters)


@costly()
@given(
    batches=batches,
    deadly_key=st.integers(0, 4),
    is_stateful=st.booleans(),
    workers=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
@example(batches=[[(1, 0)], [(2, 0)]], deadly_key=1, is_stateful=True, workers=1, seed=0)
def test_behind_a_grouping_too(
    batches: list[list[tuple[int, int]]],
    deadly_key: int,
    is_stateful: bool,
    workers: int,
    seed: int,
) -> None:
    """Where timers fire, and in a stateful DoFn, whose state is as it was before; also of what was handed on."""
    strike = deadly(frozenset({deadly_key}))
    pipeline = df.Pipeline(DirectRunner())
    pairs = (
        pipeline | "read" >> df.Read(scripted(batches, 0)) | "pair" >> df.Map(lambda v: (v % 5, v))
    )
    grouped = (
        pairs | "keep" >> df.ParDo(Keep(strike))
        if is_stateful
        else pairs
        | "list" >> df.GroupByKey()
        | "strike" >> df.Map(lambda p: (strike(p[0]), sum(p[1])))
    )
    (
        grouped
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns={"key": int, "total": int}, key=["key"])
    )
    options = WorkerOptions(tries=2)
    cluster = Cluster(pipeline.graph(), seed, 0.0, options=options, workers=workers)
    cluster.run()
    (table,) = pipeline.graph().tables()
    values = [value for batch in batches for value, _ in batch]
    expected: dict[int, int] = {}
    for value in values:
        if value % 5 != deadly_key:
            expected[value % 5] = expected.get(value % 5, 0) + value

    assert dict(cluster.store.read_table(table)) == expected, f"seed={seed}"
    letters = cluster.store.read_dead_letters("sim")
    struck = sum(value % 5 == deadly_key for value in values)
    assert len(letters) == (struck if is_stateful else min(struck, 1)), f"seed={seed}"


class Keep(df.DoFn):
    """The sum of each key so far, in state."""

    TOTAL = df.ReadModifyWriteStateSpec("total")

    def __init__(self, strike: Any) -> None:
        self.strike = strike

    def process(self, element: Any, total: Any = df.DoFn.StateParam(TOTAL)) -> Any:
        key, value = element
        total.write((total.read() or 0) + value)
        yield self.strike(key), total.read()


def test_without_tries_the_job_ends() -> None:
    """It would go on for ever otherwise: one worker after the other ends, and the other split is read on."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted([[(n, n)] for n in range(40)], 0), frozenset({3}))
    cluster = Cluster(pipeline.graph(), 1, 0.0)

    with pytest.raises(df.DataflowError, match="have ended at one step of read"):
        cluster.run()


#: With deadly records in both of the ranges that a worker has, or in one of them while the other goes on.
SPREADS = [12, 14]


def of_many(number: int) -> tuple[df.Pipeline, list[int], frozenset[int]]:
    """Deadly records among many in a stateful DoFn, whose keys are many too."""
    values = list(range(900))
    deaths = frozenset(random.Random(number).sample(values, number))
    batches = [[(value, 0) for value in values[n : n + 15]] for n in range(0, len(values), 15)]
    pipeline = df.Pipeline(DirectRunner())
    reads = [
        pipeline | f"read {name}" >> df.Read(scripted(some, 0))
        for name, some in (("first", batches[:45]), ("second", batches[45:]))
    ]
    (
        tuple(reads)
        | "both" >> df.Flatten()
        | "pair" >> df.Map(lambda v: (v % 97, v))
        | "keep" >> df.ParDo(KeepValues(deadly(deaths)))
        | "row" >> df.Map(lambda value: {"value": value})
        | "write" >> df.WriteToPostgres("kept", columns={"value": int}, key=["value"])
    )
    return pipeline, values, deaths


class KeepValues(Keep):
    def process(self, element: Any, total: Any = df.DoFn.StateParam(Keep.TOTAL)) -> Any:
        total.write((total.read() or 0) + 1)
        yield self.strike(element[1])


@pytest.mark.parametrize(
    ("number", "workers"), [pytest.param(12, 3, marks=pytest.mark.nightly), (14, 3), (14, 1)]
)
def test_each_of_several_behind_a_grouping_is_found(number: int, workers: int) -> None:
    """A range goes on with the deliveries of other senders, and other ranges of its worker with all of theirs."""
    pipeline, values, deaths = of_many(number)
    options = WorkerOptions(tries=2)
    cluster = Cluster(pipeline.graph(), number, 0.0, options=options, workers=workers)
    cluster.run()

    (table,) = pipeline.graph().tables()
    assert {value for (value,) in cluster.store.read_table(table)} == set(values) - deaths
    assert len(cluster.store.read_dead_letters("sim")) == number


@pytest.mark.parametrize("deadly_value", [60, 75, 76, 99])
def test_what_was_handed_on_is_found_as_soon_as_it_is_sent(
    deadly_value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends once more at most, on trial: the next owner knows the number that it is sent with."""
    pipeline = df.Pipeline(DirectRunner())
    values = range(100)
    (
        pipeline
        | "read" >> df.Read(scripted([[(value, 0)] for value in values], 0))
        | "pair" >> df.Map(lambda v: (v % 7, v))
        | "keep" >> df.ParDo(KeepValues(deadly(frozenset({deadly_value}))))
        | "row" >> df.Map(lambda value: {"value": value})
        | "write" >> df.WriteToPostgres("kept", columns={"value": int}, key=["value"])
    )
    taken, deaths = list[Any](), list[Any]()
    take, put = Deliveries.take_handed_on, Mortal.report

    def noted(deliveries: Deliveries, parts: Any, now_us: int) -> Any:
        taken.append(parts)
        return take(deliveries, parts, now_us)

    def reported(mortal: Mortal) -> None:
        deaths.append(mortal.watch.at)
        put(mortal)

    monkeypatch.setattr(Deliveries, "take_handed_on", noted)
    monkeypatch.setattr(Mortal, "report", reported)
    cluster = Cluster(pipeline.graph(), 1, 0.0, options=WorkerOptions(tries=2), workers=1)
    cluster.run()

    (table,) = pipeline.graph().tables()
    assert {value for (value,) in cluster.store.read_table(table)} == {*values} - {deadly_value}
    assert len(cluster.store.read_dead_letters("sim")) == 1
    assert len(taken) > 10
    assert len(deaths) == 1, deaths


@pytest.mark.parametrize("number", SPREADS)
def test_several_behind_a_grouping_end_the_job_without_tries(number: int) -> None:
    pipeline, _, _ = of_many(number)
    cluster = Cluster(pipeline.graph(), number, 0.0)

    with pytest.raises(df.DataflowError, match="have ended at one step of keep"):
        cluster.run()


@pytest.mark.parametrize("tries", [None, 2])
def test_where_a_signal_fires(tries: int | None) -> None:
    """It is given to windows before anything else is done, so nothing else gets further either."""
    values = range(40)
    source = GatedSource([Batch([value], [0]) for value in values])
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 10, v))
        | "on request"
        >> df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterSignal("flush")),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "list" >> df.GroupByKey()
        | "key" >> df.Map(lambda pair: pair[0])
        | "strike" >> df.Map(deadly(frozenset({3, 4})))
        | "row" >> df.Map(lambda key: {"key": key})
        | "write" >> df.WriteToPostgres("keys", columns={"key": int}, key=["key"])
    )
    cluster = Cluster(pipeline.graph(), 1, 0.0, options=WorkerOptions(tries=tries))
    source.gates = [len(values)]
    cluster.run_until(lambda: has_read(cluster, source.gates))
    cluster.store.send_signal("sim", "flush")
    source.gates = [len(values) + 1]
    if tries is None:
        with pytest.raises(df.DataflowError, match=r"have ended at one step of list\[\d\]"):
            cluster.run()
        return
    cluster.run()

    (table,) = pipeline.graph().tables()
    assert {key for (key,) in cluster.store.read_table(table)} == set(range(10)) - {3, 4}
    assert len(cluster.store.read_dead_letters("sim")) == 2
    suspects = [
        suspect
        for process in cluster.workers
        if process is not None and process.worker is not None
        for suspect in process.worker._caution._suspects
    ]
    assert suspects == []  # nothing runs on trial any more: all that was due is done
