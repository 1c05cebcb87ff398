"""What a worker does while a commit is under way: the next round, and nothing that anybody else can see (ADR 0084)."""

from collections.abc import Callable, Sequence

import pytest

import dataflow as df
from dataflow.source import SplitStatus
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import StoreError, WorkerStoppedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.model.signals import SignalNews
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Fenced, UnderWay
from runners.millwheel.wire.messages import (
    Assign,
    Deliver,
    Report,
    Routes,
    Watermarks,
    decode,
    encode,
)
from runners.millwheel.worker.reports import (
    BUSY_REPORT_INTERVAL_MS,
    UNAWAITED_REPORT_INTERVAL_MS,
)
from runners.millwheel.worker.worker import LONG_ROUND_MS, VERY_LONG_ROUND_MS, Worker, WorkerSpec
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import MAX_TIMESTAMP_US

READ = RangeId("read", 0)
DEFAULTS = WorkerOptions()
ROUNDS = 4
RECORDS = [Batch([number], [number]) for number in range(ROUNDS)]
#: What happens while user code is at work.
MEANWHILE: list[Callable[[], object]] = []


class SlowStore(MemoryStore):
    """Commits what is submitted when its worker waits for it; answers what a test has decided."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted = self.committed = 0
        self.is_answering = False
        self.refused: Fenced | None = None
        #: Why nothing can be sent any more.
        self.unsendable: StoreError | None = None
        #: Called when a commit is waited for.
        self.wait: Callable[[], object] = lambda: None

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        if self.unsendable is not None:
            raise self.unsendable
        ready()
        self.submitted += 1
        return Waiting(self, production)

    def wait_for(self, production: Production) -> CommitOutcome:
        self.wait()
        if self.refused is not None:
            return self.refused
        self.committed += 1
        return self.commit(production)


class Waiting:
    """A commit under way."""

    def __init__(self, store: SlowStore, production: Production) -> None:
        self._store, self._production = store, production

    @property
    def is_answered(self) -> bool:
        return self._store.is_answering

    def outcome(self) -> CommitOutcome:
        return self._store.wait_for(self._production)


class Blaming:
    """A watch that knows whose input the process has ended with."""

    trial = None

    def __init__(self) -> None:
        self.at: Sequence[StepInput] = ()

    def begin(self, at: Sequence[StepInput]) -> None:
        self.at = at

    def end(self) -> None:
        self.at = ()

    def commits(self, since_us: int) -> None:
        """It does not matter here."""


def of_number(number: int) -> tuple[int, int]:
    """User code, which takes its time."""
    for act in MEANWHILE:
        act()
    return number, number


class Reading:
    """A worker that reads a split, a batch in each round, for a range that is elsewhere, or here.

    Args:
        script: the batches.
        round_ms: how long user code takes for each record.
        commit_ms: how long whoever waits for a commit does.
        has_all: whether the range that groups is here too, and the driver knows that.
        options: of the worker.
    """

    def __init__(
        self,
        script: Sequence[Batch] = RECORDS,
        round_ms: int = 0,
        commit_ms: int = 0,
        *,
        has_all: bool = False,
        options: WorkerOptions = DEFAULTS,
    ) -> None:
        self.store, network, clock = SlowStore(), LocalNetwork(), ManualClock()
        self.store.wait = lambda: clock.advance(commit_ms)
        self.blamed = Blaming()
        # Functions of a pipeline hold on to nothing that is of this process.
        MEANWHILE[:] = [lambda: clock.advance(round_ms)]
        p = df.Pipeline(DirectRunner())
        (
            p
            | "read" >> df.Read(ScriptedSource(script))
            | df.Map(of_number)
            | "group" >> df.GroupByKey()
        )
        execution = plan(p.graph())
        spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        self.store.open_job(spec)
        keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self._master, self._receiver = network.endpoint("master"), network.endpoint("elsewhere")
        self.worker = Worker(
            WorkerSpec(job="job", slot=0, worker="w", master="master", options=options),
            execution,
            self.store,
            network.endpoint("w"),
            clock,
            self.blamed,
        )
        self.worker.start()
        routing = Routing(number=1, keys=keys)
        assign = Assign(
            ranges=(READ, *keys) if has_all else (READ,),
            inputs_us={},
            percentiles_us={},
            signals=SignalNews(),
            routing=routing,
            sent_ms=0,
            suspects=(),
        )
        addresses = dict.fromkeys(keys, "w" if has_all else "elsewhere")
        watermarks = Watermarks(
            inputs_us={},
            percentiles_us={},
            signals=SignalNews(),
            slowest_source_us=MAX_TIMESTAMP_US,
            is_draining=False,
            is_pausing=False,
            sent_ms=0,
            sole_owner_ranges=1 + len(keys) if has_all else 0,
        )
        for message in (assign, Routes(addresses=addresses, routing=routing), watermarks):
            self._master.send("w", encode(message))

    def delivered(self) -> list[int]:
        """The numbers of the deliveries that have left the worker since the last call."""
        messages = [decode(each) for each in self._receiver.receive(0)]
        return [each.sequence for each in messages if isinstance(each, Deliver)]

    def reports(self) -> list[Report]:
        """The reports that have left the worker since the last call."""
        messages = [decode(each) for each in self._master.receive(0)]
        return [each for each in messages if isinstance(each, Report)]

    def reported(self) -> int:
        """How far the split is committed by the last report that has left the worker."""
        return max((each.commits[READ].bundle for each in self.reports()), default=0)


@pytest.mark.parametrize("commit_ms", [0, 2 * LONG_ROUND_MS])
def test_a_round_is_computed_while_the_commit_of_the_one_before_is_under_way(
    commit_ms: int,
) -> None:
    """A round that waits for a slow commit takes long, and is no long round."""
    job = Reading(commit_ms=commit_ms)

    for number in range(ROUNDS):
        assert job.worker.step()
        assert (job.store.submitted, job.store.committed) == (number + 1, number)
        assert job.delivered() == ([number] if number else []), "what the round before has sent"
        assert job.reported() <= number

    while job.worker.step():
        pass
    assert job.store.submitted == job.store.committed
    assert job.delivered() == [ROUNDS]
    assert job.reported() == job.store.committed


@pytest.mark.parametrize(
    ("has_all", "options", "status", "interval_ms"),
    [
        (True, DEFAULTS, SplitStatus.ACTIVE, UNAWAITED_REPORT_INTERVAL_MS),
        (False, DEFAULTS, SplitStatus.ACTIVE, BUSY_REPORT_INTERVAL_MS),
        # The master alone knows the slowest split of all, and lets watermarks pass one that is idle.
        (True, WorkerOptions(skew_limit_us=9), SplitStatus.ACTIVE, BUSY_REPORT_INTERVAL_MS),
        (True, DEFAULTS, SplitStatus.IDLE, BUSY_REPORT_INTERVAL_MS),
    ],
)
def test_a_busy_worker_reports_seldom_where_nothing_waits_for_that(
    *, has_all: bool, options: WorkerOptions, status: SplitStatus, interval_ms: int
) -> None:
    round_ms = 2
    script = [Batch([number], [number], status=status) for number in range(200)]
    job = Reading(script, round_ms, has_all=has_all, options=options)
    for _ in script:
        assert job.worker.step()

    expected = len(script) * round_ms / interval_ms
    assert len(job.reports()) == pytest.approx(expected, abs=2)


def test_what_waits_for_a_commit_leaves_as_soon_as_it_is_answered() -> None:
    job = Reading()
    seen: list[int] = []
    MEANWHILE.append(lambda: seen.extend(job.delivered()))
    job.store.is_answering = True
    for _ in range(2):
        assert job.worker.step()
    assert (seen, job.store.submitted) == ([1], 2), "before the round after it is done"


def test_nothing_waits_for_a_round_that_takes_long() -> None:
    job = Reading(round_ms=LONG_ROUND_MS)

    for number in range(1, ROUNDS + 1):
        assert job.worker.step()
        assert job.store.committed == number
        assert job.delivered() == [number]


@pytest.mark.parametrize(
    ("round_ms", "waits"),
    [(LONG_ROUND_MS, False), (VERY_LONG_ROUND_MS - 1, False), (VERY_LONG_ROUND_MS, True)],
)
def test_where_nobody_receives_anything_only_a_very_long_round_is_waited_for(
    round_ms: int, waits: bool
) -> None:
    job = Reading(round_ms=round_ms, has_all=True)
    assert job.worker.step()

    for number in range(2, ROUNDS + 1):
        assert job.worker.step()
        assert job.store.committed == (number if waits else number - 1)


def test_no_round_is_computed_beside_the_commit_of_a_watermark_alone() -> None:
    """A source whose watermark follows the clock would have a commit right behind it, for nothing."""
    job = Reading([Batch([], [], watermark_us=number) for number in range(ROUNDS)])

    for number in range(1, ROUNDS + 1):
        assert job.worker.step()
        assert (job.store.submitted, job.store.committed) == (number, number)


def test_a_commit_that_cannot_be_sent_is_not_blamed_on_the_input_of_the_one_ahead() -> None:
    job = Reading()
    assert job.worker.step()
    job.store.unsendable = StoreError("a value is too large")

    with pytest.raises(StoreError, match="too large"):
        job.worker.step()
    assert job.blamed.at == [StepInput((READ,), None, 1, 1)]
    assert (job.store.submitted, job.store.committed) == (1, 1)
    assert job.delivered() == [1], "what is durable has left the worker"


def test_nothing_of_a_round_behind_a_commit_that_has_failed_leaves_the_worker() -> None:
    job = Reading()
    assert job.worker.step()
    job.store.refused = Fenced(READ)

    for _ in range(2):
        with pytest.raises(WorkerStoppedError):
            job.worker.step()
    assert (job.store.submitted, job.store.committed) == (1, 0)
    assert job.delivered() == []
    assert job.reported() == 0
