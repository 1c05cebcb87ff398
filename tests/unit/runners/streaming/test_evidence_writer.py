"""EvidenceWriter: what cannot be written stops nothing, is reported once, and is written again when it can be."""

import logging
import threading
from collections.abc import Callable

import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.errors import StoreUnreachableError
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.model.events import EventKind, JobEvent
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Store
from runners.observability.evidence.snapshot import JobSnapshot, Phase
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.streaming.evidence_writer import SNAPSHOT_INTERVAL_MS, EvidenceWriter
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from tests.waiting import until

JOB = "job"
#: More than one, so that a report of each would be seen.
TRIES = 5


class DeafStore(MemoryStore):
    """A store to which nothing of what people see can be written, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.is_deaf = True
        self.tries = 0
        #: Set: writing does not wait.
        self.answers = threading.Event()
        self.answers.set()

    def note_snapshot(self, job: str, document: bytes, taken_us: int) -> None:
        self._refuse()
        super().note_snapshot(job, document, taken_us)

    def note_event(self, job: str, event: JobEvent) -> None:
        self._refuse()
        super().note_event(job, event)

    def _refuse(self) -> None:
        assert self.answers.wait(60)
        self.tries += 1
        if self.is_deaf:
            raise StoreUnreachableError("no room on the disk")

    def close(self) -> None:
        """Others have the store, too."""


@pytest.fixture
def store() -> DeafStore:
    return DeafStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def writer_of(store: DeafStore, clock: ManualClock) -> Callable[..., EvidenceWriter]:
    """Makes a writer of the job, for a store that is opened so."""
    p = df.Pipeline()
    p | df.Create([("k", 1)]) | df.GroupByKey()
    execution = plan(p.graph())
    spec = job_spec(JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    job = store.open_job(spec)
    master = Master(job, execution, 1, LocalNetwork().endpoint("master"), clock)

    def make(open_store: Callable[[], Store] = lambda: store) -> EvidenceWriter:
        taker = SnapshotTaker(JOB, 0, "driver", clock.now_us())
        return EvidenceWriter(open_store, JOB, master.view, taker, clock)

    return make


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "cannot be written" in each.message]


def pass_a_second(writer: EvidenceWriter, clock: ManualClock, store: DeafStore) -> None:
    """Have one more snapshot tried."""
    before = store.tries
    clock.advance(SNAPSHOT_INTERVAL_MS)

    def is_tried() -> bool:
        writer.pass_on()
        return store.tries > before

    until(is_tried)


def test_a_store_that_takes_nothing_stops_nothing(
    writer_of: Callable[..., EvidenceWriter],
    store: DeafStore,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is said once, and once more when it has been written in between; the last snapshot is that of the end."""
    caplog.set_level(logging.WARNING)
    with writer_of() as writer:
        for _ in range(TRIES):
            pass_a_second(writer, clock, store)
        [report] = reports(caplog)
        assert "no room on the disk" in report
        assert store.read_snapshot(JOB) is None

        store.is_deaf = False
        writer.note(EventKind.START, "it begins")
        pass_a_second(writer, clock, store)
        until(lambda: store.read_snapshot(JOB) is not None)
        store.is_deaf = True
        pass_a_second(writer, clock, store)
        until(lambda: len(reports(caplog)) == 2)
        store.is_deaf = False
    found = store.read_snapshot(JOB)
    assert found is not None
    assert JobSnapshot.read(found.document).driver.phase is Phase.ENDED
    assert [each.event.reason for each in store.read_events(JOB)] == ["it begins"]


def test_a_store_that_cannot_be_opened_is_opened_later(
    writer_of: Callable[..., EvidenceWriter],
    store: DeafStore,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The thread that writes does not end by it."""
    store.is_deaf = False
    openings: list[bool] = []

    def open_store() -> Store:
        openings.append(len(openings) >= 2)
        if not openings[-1]:
            raise StoreUnreachableError("nobody answers")
        return store

    with writer_of(open_store) as writer:

        def is_written() -> bool:
            clock.advance(SNAPSHOT_INTERVAL_MS)
            writer.pass_on()
            return store.read_snapshot(JOB) is not None

        until(is_written)
    assert openings == [False, False, True]
    assert len(reports(caplog)) == 1


def test_a_store_that_does_not_answer_holds_nobody_up(
    writer_of: Callable[..., EvidenceWriter], store: DeafStore, clock: ManualClock
) -> None:
    """What is due meanwhile is left out, and not written one after the other when it answers."""
    store.is_deaf = False
    store.answers.clear()
    with writer_of() as writer:
        for _ in range(TRIES):
            clock.advance(SNAPSHOT_INTERVAL_MS)
            writer.pass_on()
        store.answers.set()
    # The one that was being written, and that of the end.
    assert store.tries == 2
