"""A worker that receives nothing from its master stops by its own clock, and leaves the reason in the store."""

import pytest

import dataflow as df
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import StoreUnreachableError, WorkerStoppedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.model.troubles import TroubleKind
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.silence import MASTER_SILENCE_MS
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from windowing.timestamps import MIN_TIMESTAMP_US

#: Far more than any worker should need.
STEPS_MAX = 2_000


class Endless(df.Source):
    """One split that always has a record, or, ``is_quiet``, never one; reading takes time."""

    def __init__(self, clock: ManualClock, read_ms: int, *, is_quiet: bool) -> None:
        self.clock, self.read_ms, self.is_quiet = clock, read_ms, is_quiet

    def splits(self, desired: int) -> list[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _EndlessReader(self, position or 0)


class _EndlessReader(SourceReader):
    def __init__(self, source: Endless, position: int) -> None:
        self._source, self._position = source, position

    def read(self, max_records: int) -> SourceBatch:
        self._source.clock.advance(self._source.read_ms)
        values = [] if self._source.is_quiet else [self._position]
        self._position += len(values)
        return SourceBatch(
            values=values,
            timestamps_us=[self._position] * len(values),
            position=self._position,
            watermark_us=MIN_TIMESTAMP_US,
            status=SplitStatus.IDLE if self._source.is_quiet else SplitStatus.ACTIVE,
        )


class SlowSetup(df.DoFn):
    def __init__(self, clock: ManualClock, setup_ms: int) -> None:
        self.clock, self.setup_ms = clock, setup_ms

    def setup(self) -> None:
        self.clock.advance(self.setup_ms)

    def process(self, element: int) -> list[int]:
        return [element]


class Job:
    """A worker with its master, in one thread; the pipeline is not shipped, so both share the clock."""

    def __init__(self, read_ms: int, *, is_quiet: bool = False, setup_ms: int = 0) -> None:
        self.clock, self.store, network = ManualClock(), MemoryStore(), LocalNetwork()
        p = df.Pipeline(DirectRunner())
        (
            p
            | "read" >> df.Read(Endless(self.clock, read_ms, is_quiet=is_quiet))
            | "slow" >> df.ParDo(SlowSetup(self.clock, setup_ms))
        )
        execution = plan(p.graph())
        spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        job = self.store.open_job(spec)
        self.master = Master(job, execution, 1, network.endpoint("master"), self.clock)
        worker_spec = WorkerSpec(job="job", slot=0, worker="w", master="master")
        self.worker = Worker(worker_spec, execution, self.store, network.endpoint("w"), self.clock)
        self.worker.start()

    def run(self, steps: int) -> bool:
        """Both, step by step; returns whether the worker worked in all of the second half."""
        worked = []
        for _ in range(steps):
            self.master.step()
            worked.append(self.worker.step())
            self.clock.advance(1)
        return all(worked[steps // 2 :])

    def until_it_stops(self) -> int:
        """The worker alone: how long it goes on, in milliseconds."""
        since_ms = self.clock.monotonic_ms()
        with pytest.raises(
            WorkerStoppedError, match="received nothing from the driver for 10 seconds"
        ):
            self._alone()
        return self.clock.monotonic_ms() - since_ms

    def _alone(self) -> None:
        for _ in range(STEPS_MAX):
            self.worker.step()
            self.clock.advance(1)


@pytest.mark.parametrize("is_quiet", [False, True])
@pytest.mark.parametrize("read_ms", [10, 100, 900])
def test_it_stops_however_busy_it_is(read_ms: int, is_quiet: bool) -> None:
    job = Job(read_ms, is_quiet=is_quiet)
    assert job.run(40) == (not is_quiet)

    went_on_ms = job.until_it_stops()

    assert MASTER_SILENCE_MS - 2 * read_ms <= went_on_ms <= MASTER_SILENCE_MS + 2 * read_ms + 10
    (stored,) = job.store.read_troubles("job")
    assert (stored.trouble.kind, stored.trouble.place) == (TroubleKind.DEATH, "slot 0")
    assert stored.trouble.headline == "it has received nothing from the driver for 10 seconds"


def test_long_steps_are_no_silence() -> None:
    """While user code is at work nothing is received: what the master has sent meanwhile is received afterwards."""
    job = Job(read_ms=3 * MASTER_SILENCE_MS)

    assert job.run(40)
    # Yet not for ever, where nothing has been sent.
    assert job.until_it_stops() <= 15 * (3 * MASTER_SILENCE_MS + 1)


def test_setting_up_for_long_is_no_silence() -> None:
    """A model that is loaded for minutes: the worker reports to the master only afterwards, and then answers."""
    job = Job(read_ms=10, setup_ms=60 * MASTER_SILENCE_MS)

    assert job.worker.step() is False
    assert job.run(40)


def test_a_store_that_is_out_of_reach_keeps_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(read_ms=10, is_quiet=True)
    job.run(10)
    monkeypatch.setattr(job.store, "note_troubles", _out_of_reach)

    job.until_it_stops()


def _out_of_reach(*_: object) -> None:
    raise StoreUnreachableError("the store is out of reach")
