"""SignalReader: what is in the store reaches the master, whatever the store goes through."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import pytest

import dataflow as df
from runners.core.plan import plan
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.job import job_spec
from runners.millwheel.master import Master
from runners.millwheel.signals import Signal
from runners.millwheel.store.memory import MemoryStore
from runners.streaming.signal_reader import SignalReader
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock

TIMEOUT_S = 10


class FailingStore(MemoryStore):
    """A store that can be out of reach for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.reads = self.failures = self.closings = 0

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        self.reads += 1
        if self.failure is not None:
            self.failures += 1
            raise self.failure
        return super().read_signals(job, after)

    def close(self) -> None:
        self.closings += 1


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


def start(store: MemoryStore, *, is_listening: bool = True) -> Master:
    """The master of a job that is in the store."""
    p = df.Pipeline()
    (
        p
        | df.Create([("k", 1)])
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


def until(is_reached: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def hears(reader: SignalReader, master: Master, number: int) -> Callable[[], bool]:
    def has_heard() -> bool:
        reader.pass_on()
        return master.latest_signal == number

    return has_heard


def test_what_was_sent_before_the_job_ran_is_known_before_anything_else(
    store: FailingStore,
) -> None:
    master = start(store)
    store.send_signal("job", "flush")

    with SignalReader(store, "job", master):
        assert master.latest_signal == 1


def test_what_is_sent_while_it_runs_arrives(store: FailingStore) -> None:
    master = start(store)
    with SignalReader(store, "job", master) as reader:
        for number in (1, 2):
            store.send_signal("job", "flush")
            until(hears(reader, master, number))
    assert store.closings == 1


def test_a_store_out_of_reach_is_waited_for_and_complained_of_once(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    master = start(store)
    with caplog.at_level(logging.WARNING), SignalReader(store, "job", master) as reader:
        store.failure = StoreUnreachableError("no connection to Postgres")
        until(lambda: store.failures > 1)
        reader.pass_on()
        store.send_signal("job", "flush")
        store.failure = None
        until(hears(reader, master, 1))

    assert len(caplog.records) == 1
    assert "no connection to Postgres" in caplog.text


def test_a_store_that_cannot_be_read_at_the_start_is_an_error(store: FailingStore) -> None:
    master = start(store)
    store.failure = StoreError("no")

    with pytest.raises(StoreError), SignalReader(store, "job", master):
        pass
    assert store.closings == 1


def test_what_will_not_pass_reaches_the_master(store: FailingStore) -> None:
    """A bug must not look like silence."""
    master = start(store)
    with SignalReader(store, "job", master) as reader:
        store.failure = ZeroDivisionError("a bug")
        until(lambda: store.failures > 0 and store.closings > 0)
        with pytest.raises(ZeroDivisionError):
            reader.pass_on()


def test_a_pipeline_that_does_not_listen_costs_nothing(store: FailingStore) -> None:
    master = start(store, is_listening=False)
    threads = threading.active_count()
    with SignalReader(store, "job", master) as reader:
        reader.pass_on()
        assert threads == threading.active_count()

    assert (store.reads, store.closings) == (0, 1)
