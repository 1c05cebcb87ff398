"""What the driver of a real stream writes of itself is true: who is stuck and where, who is dead, and what happened."""

import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dataflow as df
from runners.millwheel.master.master import Master
from runners.millwheel.model.events import EventKind, JobEvent
from runners.millwheel.store.port import Store
from runners.observability.evidence.snapshot import (
    DriverEvidence,
    JobSnapshot,
    Phase,
    RangeState,
    WorkerEvidence,
)
from runners.observability.why.explanation import CauseKind
from runners.process_name import process_name
from runners.registry import open_store
from runners.streaming.job_thread import StreamingJob
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.gated_sources import Gate
from tests.processes import in_a_group
from tests.refusing import REFUSALS, allow, refuse, tried
from tests.streaming_jobs import Streaming, read_on, two_branches, write_events
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

RECORDS, BATCH = 40, 10
#: Where the code does not come back until it may: an element in the middle of its bundle.
STUCK = 17
COLUMNS = {"key": int, "total": int}
#: Longer than heartbeats and pulses are apart, by much.
SILENT_US = 3_000_000


@pytest.fixture
def started(store_dsn: str, spark_master: str) -> Iterator[Callable[..., StreamingJob]]:
    """Starts jobs, of which none runs on when the test has failed."""
    jobs: list[StreamingJob] = []

    def start(build: Callable[[df.Pipeline], None], **options: Any) -> StreamingJob:
        job = Streaming(store_dsn, spark_master).start(build, **options)
        assert isinstance(job, StreamingJob)
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        job.cancel()


@pytest.fixture
def store(store_dsn: str) -> Iterator[Store]:
    with closing(open_store(store_dsn)) as store:
        yield store


def sleep(gate: Path) -> None:
    """Wait as code does that waits for a server."""
    while not gate.exists():
        time.sleep(0.01)


def keep_the_interpreter(gate: Path) -> None:
    """Wait as code does that is not Python's own, and lets no other thread run."""
    while not gate.exists():
        ctypes.PyDLL(None).usleep(2 * SILENT_US)


def stuck(gate: Path, hang: Callable[[Path], None]) -> Callable[[df.Pipeline], None]:
    """Sums by key, of which one element is worked on until there is a file."""

    def strike(value: int) -> tuple[int, int]:
        if value == STUCK:
            hang(gate)
        return value % 3, value

    def build(p: df.Pipeline) -> None:
        script = [
            Batch(list(range(start, start + BATCH)), [start] * BATCH)
            for start in range(0, RECORDS, BATCH)
        ]
        (
            p
            | "read" >> df.Read(ScriptedSource(script))
            | "strike" >> df.Map(strike)
            | "sum" >> df.CombinePerKey(sum)
            | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
            | "write" >> df.WriteToPostgres("totals", columns=COLUMNS, key=["key"])
        )

    return build


def snapshot(store: Store) -> JobSnapshot | None:
    found = store.read_snapshot("job")
    return None if found is None else JobSnapshot.read(found.document)


def worker_that(store: Store, is_so: Callable[[WorkerEvidence, int], object]) -> WorkerEvidence:
    """The first worker of which something becomes true; it is called with the time of the snapshot, too."""
    found: list[WorkerEvidence] = []

    def is_there() -> bool:
        now = snapshot(store)
        workers = () if now is None else now.workers
        assert now is None or len(workers) == now.driver.workers
        found[:] = [each for each in workers if now and is_so(each, now.taken_us)]
        return bool(found)

    until(is_there, lambda: str(snapshot(store)))
    return found[0]


def events(store: Store, kind: EventKind) -> list[JobEvent]:
    return [each.event for each in store.read_events("job") if each.event.kind is kind]


def process_of(worker: WorkerEvidence) -> int:
    found = re.search(r"process (\d+)", worker.worker or "")
    assert found, worker
    return int(found[1])


def parent_of(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    return int(status.rpartition(")")[2].split()[1])


@pytest.mark.parametrize("hang", [sleep, keep_the_interpreter])
def test_a_worker_that_is_stuck_is_named_with_its_transform(
    started: Callable[..., StreamingJob],
    store: Store,
    tmp_path: Path,
    hang: Callable[[Path], None],
) -> None:
    """And with its split and element, also where its code lets no other Python of the process run."""
    gate = tmp_path / "gate"
    result = started(stuck(gate, hang))

    def is_silent(worker: WorkerEvidence, now_us: int) -> bool:
        """Its loop has reported nothing for a while, and its heart beats."""
        reported_us, last_seen_us = worker.reported_us or now_us, worker.heartbeat_received_us or 0
        return now_us - reported_us > SILENT_US and now_us - last_seen_us < SILENT_US

    worker = worker_that(store, lambda each, now_us: each.doing and is_silent(each, now_us))
    found = result.why()
    assert found.cause is CauseKind.WORKER_BUSY, found
    assert "has been in the code of 'strike'" in found.sentence
    gate.touch()
    doing = worker.doing
    assert doing is not None
    assert (doing.stage, doing.transform, doing.ranges) == ("read", "strike", ["read[0]"])
    assert worker.heartbeat_us is not None
    assert worker.heartbeat_us - doing.since_us > SILENT_US - 1_000_000
    assert worker.interpreter_us is not None
    keeps_it = worker.heartbeat_us - worker.interpreter_us > 1_000_000
    assert keeps_it == (hang is keep_the_interpreter)
    if hang is sleep:
        assert (doing.record, doing.records) == (STUCK % BATCH, BATCH)

    result.wait_until_finish()
    last = snapshot(store)
    assert last is not None
    assert last.driver.phase is Phase.ENDED
    assert last.driver.name == process_name()
    assert last.counts["records_read"] == RECORDS
    assert [each.event.kind for each in store.read_events("job")][-1] is EventKind.START
    assert len(events(store, EventKind.FINISH)) == 1


def endless(p: df.Pipeline) -> None:
    """Sums of windows; a key is in half of the records."""
    script = [Batch([n], [n * 1_000_000], n * 1_000_000) for n in range(50_000)]
    (
        p
        | "read" >> df.Read(ScriptedSource(script))
        | "key" >> df.Map(lambda n: (n % 7 if n % 2 else 99, n))
        | "seconds" >> df.WindowInto(df.FixedWindows(5))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns=COLUMNS)
    )


@pytest.mark.nightly
def test_a_driver_whose_rounds_are_long_is_named(
    started: Callable[..., StreamingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers have work all the time, and what they report waits for it."""
    act = Master._act

    def act_slowly(master: Master) -> None:
        time.sleep(3)
        act(master)

    monkeypatch.setattr(Master, "_act", act_slowly)
    result = started(endless, records_per_second=200)
    answers: list[Any] = []

    def is_named() -> bool:
        answers.append(result.why())
        return bool(answers[-1].cause is CauseKind.DRIVER_BUSY)

    until(is_named, lambda: str(answers[-1]))
    assert "seconds for a round, in which it takes the reports of" in answers[-1].sentence


def hottest_key(now: JobSnapshot) -> str | None:
    """The key that most records have had so far, by what workers report."""
    found = [key for each in now.ranges.values() for key in each.hot_keys]
    return max(found, key=lambda key: key.count).key if found else None


def test_what_a_running_job_knows_is_true(
    started: Callable[..., StreamingJob], store: Store
) -> None:
    """Ranges have owners, watermarks and holds; times add up; commits are counted; the hot key is known."""
    result = started(endless, records_per_second=500, show_keys=True)

    def is_whole() -> bool:
        now = snapshot(store)
        return (
            now is not None
            and all(each.state is RangeState.OWNED for each in now.ranges.values())
            and now.rates.get("records_read_per_s", 0) > 0
            # Of the first records any key may be the most frequent.
            and hottest_key(now) == "99"
            and sum(map(sum, (each.commits.counts for each in now.workers))) > 0
            and all(each.heartbeat_us and each.idle_us for each in now.workers)
        )

    until(is_whole, lambda: str(snapshot(store)))
    now = snapshot(store)
    result.cancel()
    assert now is not None
    assert {*now.stages} == {"read", "sum"}
    assert {each.worker for each in now.ranges.values()} <= {each.worker for each in now.workers}
    stage, source = now.stages["sum"], now.stages["read"]
    assert stage.senders == ["read"]
    assert stage.input_us is not None
    assert stage.output_us <= stage.input_us <= source.output_us
    for each in now.ranges.values():
        holds = [each.processed_us, each.unacknowledged_us, each.window_hold_us]
        assert min(us for us in holds if us is not None) >= each.output_us or each.is_ended
    poll = now.ranges["read[0]"].poll
    assert poll is not None
    assert poll.record_us is not None
    for worker in now.workers:
        assert worker.heartbeat_us is not None
        assert worker.busy_us + worker.blocked_us + worker.idle_us > 0


def test_a_killed_worker_grows_silent_and_is_replaced(
    started: Callable[..., StreamingJob], store: Store
) -> None:
    """Its heartbeat ages while nobody has noticed; who has its ranges next, and why, is an event."""
    result = started(endless, records_per_second=200, gather=False)
    victim = worker_that(store, lambda each, _: each.is_ready and each.heartbeat_us)
    process = process_of(victim)
    family = [parent_of(process), process]
    for each in family:
        os.kill(each, signal.SIGSTOP)
    try:
        silent = worker_that(
            store,
            lambda each, now_us: (
                each.worker == victim.worker
                and now_us - (each.heartbeat_received_us or now_us) > SILENT_US
            ),
        )
    finally:
        for each in family:
            os.kill(each, signal.SIGKILL)
    assert silent.worker == victim.worker
    worker_that(
        store,
        lambda each, _: (
            each.slot == victim.slot and each.worker not in (None, victim.worker) and each.is_ready
        ),
    )
    result.cancel()
    takeovers = [
        each
        for each in events(store, EventKind.TAKEOVER)
        if str(victim.worker) in str(each.details)
    ]
    assert takeovers, store.read_events("job")
    assert any(
        str(victim.worker) in each.reason and each.who != victim.worker for each in takeovers
    )
    [cancelled] = events(store, EventKind.CANCEL)
    assert cancelled.who == process_name()


def test_a_process_that_ends_a_split_and_an_update_are_events(
    started: Callable[..., StreamingJob], store: Store
) -> None:
    """Each with its reason, and by whom."""
    result = started(endless, records_per_second=200)
    worker = worker_that(store, lambda each, _: each.is_ready and each.heartbeat_us)
    os.kill(process_of(worker), signal.SIGKILL)
    until(lambda: events(store, EventKind.FAILURE), lambda: str(store.read_events("job")))
    [failure] = events(store, EventKind.FAILURE)
    assert "signal 9" in failure.reason
    until(lambda: any("signal 9" in each.reason for each in events(store, EventKind.TAKEOVER)))

    assert "is split" in result.split("sum[0]")
    [split] = events(store, EventKind.SPLIT)
    assert split.subject == "sum[0]"
    assert "request 1, split sum[0]" in split.reason
    [asked] = events(store, EventKind.REQUEST)
    assert asked.reason == "split"

    other = df.Pipeline()
    endless(other)
    other | "one" >> df.Create([1]) | "seen" >> df.Map(print)
    result.update(other)
    result.cancel()
    [update] = events(store, EventKind.UPDATE)
    assert update.details["version"] == 1
    assert update.who == process_name()
    assert len(events(store, EventKind.RESTART)) == 1


@pytest.mark.nightly
def test_the_snapshot_of_a_killed_driver_ages(store_dsn: str, store: Store, tmp_path: Path) -> None:
    """It stays as it was, with its time; the next driver is an event of its own."""
    path, out, log = write_events(tmp_path / "events.csv"), tmp_path / "out", tmp_path / "log"
    command = [sys.executable, "-m", "tests.file_job", str(path), store_dsn, str(out)]

    def age_s() -> float:
        found = store.read_snapshot("files")
        return -1.0 if found is None else found.age_s

    names: list[str] = []

    def has_read() -> bool:
        job = store.read_job("files")
        has_begun = job is not None and any(each.bundle for each in job.ranges.values())
        return has_begun and 0 <= age_s() < 1 and driver(store).name not in names

    for _ in range(2):
        with in_a_group(command, log):
            until(has_read, log.read_text)
            names.append(driver(store).name)
        until(lambda: age_s() > SILENT_US / 1_000_000)
        assert driver(store).phase is not Phase.ENDED
    drivers = [
        each.event for each in store.read_events("files") if each.event.kind in ("start", "restart")
    ]
    assert [(each.kind, each.who) for each in drivers] == [
        (EventKind.RESTART, names[1]),
        (EventKind.START, names[0]),
    ]


def driver(store: Store) -> DriverEvidence:
    found = store.read_snapshot("files")
    assert found is not None
    return JobSnapshot.read(found.document).driver


@pytest.mark.nightly
def test_a_server_that_refuses_the_document(
    started: Callable[..., StreamingJob],
    store: Store,
    store_dsn: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job goes on; each refusal is in the log once, however often it is tried; then documents are there again."""
    gate = Gate(path=tmp_path / "gate", records=100_000, records_per_second=300)
    job = started(two_branches(write_events(tmp_path / "events.csv")), gate=gate)
    until(lambda: snapshot(store) is not None)
    with psycopg.connect(store_dsn, autocommit=True) as admin:
        for error in REFUSALS:
            refuse(admin, error)
            until(partial(is_reported, caplog, error))
            before_tries = tried(admin)
            until(partial(is_tried_on, admin, before_tries))
            counts = job.statistics()
            assert counts is not None
            before = counts.records_read
            read_on(job, before + 100)
            refused = snapshot(store)
            allow(admin)
            until(partial(is_later, store, refused))
    shown = [re.findall(r"refused: (\w+_\w+)", each) for each in reported(caplog)]
    assert shown == [[error] for error in REFUSALS]


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if "cannot be written to its store for people to see" in each.getMessage()
    ]


def is_later(store: Store, before: JobSnapshot | None) -> bool:
    found = snapshot(store)
    return found is not None and before is not None and found.taken_us > before.taken_us


def is_reported(caplog: pytest.LogCaptureFixture, error: str) -> bool:
    return any(f"refused: {error}" in each for each in reported(caplog))


def is_tried_on(admin: psycopg.Connection[Any], before: int) -> bool:
    return tried(admin) > before + 3
