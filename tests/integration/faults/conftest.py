"""What the tests of faults share: a server that may be killed, a database prepared for the job, and the job."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import attrs
import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import dataflow as df
from runners.direct import DirectRunner
from runners.embedded.postgres import release_embedded_postgres
from runners.embedded.temporary import temporary_home
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from tests.fault_harness import FaultServer, Watch, prepare_database
from tests.fault_job import ANSWER_TABLES, gate_at, pipeline
from tests.full_disks import mounted_disk
from tests.pane_laws import (
    check_corrections,
    check_panes_are_those_of,
    check_retractions,
    multiset,
)

JOB = "faulty"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def fault_server() -> Iterator[FaultServer]:
    """A server that nobody else uses."""
    with temporary_home() as home:
        yield FaultServer(home)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk that is soon full."""
    with mounted_disk() as disk:
        yield disk
        release_embedded_postgres(disk)


@pytest.fixture
def fault_dsn(fault_server: FaultServer) -> Iterator[str]:
    """A database for one test, with the gate and the journals, dropped afterwards."""
    name = f"faults_{next(_numbers)}"
    with psycopg.connect(fault_server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    dsn = make_conninfo(fault_server.dsn, dbname=name)
    prepare_database(dsn)
    yield dsn
    fault_server.start()
    with psycopg.connect(fault_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def watch(fault_dsn: str) -> Iterator[Watch]:
    """Looks at the test's database."""
    found = Watch(fault_dsn)
    yield found
    found.close()


@attrs.define
class FaultJob:
    """Starts the job in this process, and checks what it left; ``gate``: of a file that does not exist."""

    dsn: str
    master: str
    watch: Watch
    gate: Path
    records: int = 0
    running: StreamingJob | None = None

    def start(self, *, records: int, dsn: str | None = None, gather: bool = False) -> StreamingJob:
        """Run it, or go on with it; ``records`` are those of each split, and slow until `finish`."""
        self.records = records
        runner = StreamingRunner(
            job=JOB,
            store=dsn or self.dsn,
            master=self.master,
            gather=gather,
            show_progress=False,
        )
        p = df.Pipeline(gate_at(self.gate).gated(runner))
        pipeline(records)(p)
        started = p.run()
        assert isinstance(started, StreamingJob)
        self.running = started
        self.watch.wait_for_sources()
        return started

    def finish(self) -> None:
        """Let it read the rest, wait for its end, and check everything that it emitted and left."""
        assert self.running is not None
        gate_at(self.gate).open()
        self.running.wait_until_finish()
        check_output(self.watch, self.records)


@pytest.fixture
def faulty(fault_dsn: str, watch: Watch, spark_master: str, tmp_path: Path) -> Iterator[FaultJob]:
    """The job; cancelled if a test leaves it running."""
    job = FaultJob(fault_dsn, spark_master, watch, tmp_path / "gate")
    yield job
    if job.running is not None:
        job.running.cancel()


def process_of(owner: str) -> psutil.Process:
    """The process of a worker, by what it is called in the store."""
    return psutil.Process(int(owner.split("process ", 1)[1].split(",", 1)[0]))


def check_output(watch: Watch, records: int) -> None:
    """Every pane, every answer, and nothing left open: as if nothing had happened."""
    p = df.Pipeline(DirectRunner())
    pipeline(records)(p)
    expected = p.run()
    exact = [dict(row) for row in expected.read_table("exact_panes")]
    check_panes_are_those_of(exact, watch.journal("exact_panes"))
    for table in ANSWER_TABLES:
        assert multiset(expected.read_table(table)) == multiset(watch.answers(table)), table
    visits = {
        (row["user"], row["start"], row["end"]): row["value"] for row in watch.answers("visits")
    }
    check_retractions(watch.journal("visit_panes"), visits)
    totals = {(row["user"], row["start"]): row["value"] for row in watch.answers("totals")}
    check_corrections(watch.journal("total_panes"), totals)
    counted = sorted(int(each) for row in watch.answers("visits") for each in row["value"].split())
    assert list(range(2 * records)) == counted
    assert not any(watch.open_work().values()), watch.open_work()
