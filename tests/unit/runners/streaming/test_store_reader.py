"""StoreReader: what is in the store reaches the master, and answers come back, whatever the store goes through."""

import logging
from collections.abc import Callable, Sequence

import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.control.housekeeping import Housekeeper, Retention
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.model.requests import (
    CANCELLED,
    DRAINED,
    GONE,
    Answer,
    Request,
    StoredRequest,
    Verb,
    move,
    split,
)
from runners.millwheel.model.signals import Signal
from runners.millwheel.store.memory.store import MemoryStore
from runners.streaming import store_reader
from runners.streaming.store_reader import StoreReader
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from tests.waiting import until


class FailingStore(MemoryStore):
    """A store that can be out of reach for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.reads = self.failures = self.closings = self.answers_left_to_fail = 0

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        self.reads += 1
        if self.failure is not None:
            self.failures += 1
            raise self.failure
        return super().read_signals(job, after)

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        if self.failure is not None:
            raise self.failure
        return super().read_requests(job, after)

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        if self.answers_left_to_fail:
            self.answers_left_to_fail -= 1
            raise StoreUnreachableError("no connection to Postgres")
        super().answer_request(job, number, answer)

    def close(self) -> None:
        self.closings += 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    monkeypatch.setattr(store_reader, "READ_INTERVAL_MS", 10)
    return FailingStore()


def start(store: MemoryStore, *, is_listening: bool = True) -> Master:
    """The master of a job that is in the store."""
    p = df.Pipeline()
    (
        p
        | df.Create([df.TimestampedValue(("k", 1), 1)])
        | df.WindowInto(
            df.FixedWindows(60),
            trigger=df.Repeatedly(df.AfterSignal("flush")) if is_listening else None,
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.GroupByKey()
    )
    execution = plan(p.graph())
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    job = store.open_job(spec)
    return Master(job, execution, 1, LocalNetwork().endpoint("master"), ManualClock())


def housekeeper() -> Housekeeper:
    return Housekeeper("job", Retention(), ManualClock(), lambda: 0)


def reader_of(store: MemoryStore, master: Master) -> StoreReader:
    return StoreReader(store, "job", master, RequestDesk(master, ManualClock()), housekeeper())


def answers_of(store: MemoryStore) -> list[Answer | None]:
    return [each.answer for each in MemoryStore.read_requests(store, "job", 0)]


def receives(reader: StoreReader, master: Master, number: int) -> Callable[[], bool]:
    def has_arrived() -> bool:
        reader.pass_on()
        return master.latest_signal == number

    return has_arrived


def test_what_was_sent_before_the_job_ran_is_known_before_anything_else(
    store: FailingStore,
) -> None:
    master = start(store)
    store.send_signal("job", "flush")

    with reader_of(store, master):
        assert master.latest_signal == 1


def test_what_is_sent_while_it_runs_arrives(store: FailingStore) -> None:
    master = start(store)
    with reader_of(store, master) as reader:
        for number in (1, 2):
            store.send_signal("job", "flush")
            until(receives(reader, master, number))
    assert store.closings == 1


def test_a_store_out_of_reach_is_waited_for_and_complained_of_once(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    master = start(store)
    with caplog.at_level(logging.WARNING), reader_of(store, master) as reader:
        store.failure = StoreUnreachableError("no connection to Postgres")
        until(lambda: store.failures > 1)
        reader.pass_on()
        store.send_signal("job", "flush")
        store.failure = None
        until(receives(reader, master, 1))

    assert len(caplog.records) == 1
    assert "no connection to Postgres" in caplog.text


def test_a_store_that_cannot_be_read_at_the_start_is_an_error(store: FailingStore) -> None:
    master = start(store)
    store.failure = StoreError("no")

    with pytest.raises(StoreError), reader_of(store, master):
        pass
    assert store.closings == 1


def test_what_will_not_pass_reaches_the_master(store: FailingStore) -> None:
    """A bug must not look like silence."""
    master = start(store)
    with reader_of(store, master) as reader:
        store.failure = ZeroDivisionError("a bug")
        until(lambda: store.failures > 0 and store.closings > 0)
        with pytest.raises(ZeroDivisionError):
            reader.pass_on()


def test_a_pipeline_that_does_not_listen_reads_no_signals(store: FailingStore) -> None:
    master = start(store, is_listening=False)
    with reader_of(store, master) as reader:
        reader.pass_on()

    assert (store.reads, store.closings) == (0, 1)


def test_what_was_asked_before_is_drained_or_cancelled_and_nothing_else(
    store: FailingStore,
) -> None:
    """Nobody knows how far the driver that was asked had come with a change of ranges."""
    master = start(store)
    asked = [move("read[0]", 0), Request(Verb.DRAIN), split("read[0]"), Request(Verb.CANCEL)]
    for each in asked:
        store.send_request("job", each)
    store.answer_request("job", 1, Answer(is_done=True, text="done"))
    desk = RequestDesk(master, ManualClock())
    with StoreReader(store, "job", master, desk, housekeeper()):
        assert desk.is_draining
        assert desk.is_cancelled

    done, drained, divided, cancelled = answers_of(store)
    assert (done and done.text, drained, divided, cancelled) == ("done", None, GONE, CANCELLED)


def test_what_is_asked_while_it_runs_is_answered(store: FailingStore) -> None:
    """Also what makes no sense, with the reason; a drain when the job is finished."""
    master = start(store)
    with reader_of(store, master) as reader:
        for each in (Request(Verb.DRAIN), move("nobody[7]", 0), move("read[0]", 9)):
            store.send_request("job", each)

        def has_answered() -> bool:
            reader.pass_on()
            return None not in answers_of(store)[1:]

        until(has_answered)
    store.finish_job("job", is_drained=True)

    first, second, third = answers_of(store)
    assert first == DRAINED
    assert second == Answer(is_done=False, text="there is no range nobody[7]")
    assert third is not None
    assert not third.is_done


def test_an_answer_waits_for_the_store(store: FailingStore) -> None:
    master = start(store)
    store.answers_left_to_fail = 2
    with reader_of(store, master) as reader:
        for _ in range(2):
            store.send_request("job", Request(Verb.CANCEL))

        def has_answered() -> bool:
            reader.pass_on()
            return None not in answers_of(store)

        until(has_answered)

    assert (answers_of(store), store.answers_left_to_fail) == ([CANCELLED, CANCELLED], 0)


def test_an_answer_that_is_given_at_the_end_is_written(store: FailingStore) -> None:
    """Whoever cancels a job waits for it."""
    master = start(store)
    store.send_request("job", Request(Verb.CANCEL))
    with reader_of(store, master):
        pass

    assert answers_of(store) == [CANCELLED]
