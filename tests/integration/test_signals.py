"""Signals to real jobs: sent by Python, by the command line and while workers die, answered while the job runs."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.housekeeping import Housekeeper, Retention
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.store.postgres import PostgresStore
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from runners.streaming.store_reader import StoreReader
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from tests.gated_sources import Gate
from tests.processes import descendants, kill, workers_of
from tests.waiting import WAIT_MAX_S, until

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/ask-for-answers-now.md"
COMMAND = Path(sys.executable).with_name("dataflow")
RECORDS = 20_000
#: Written before the job of the page: it reads so much, and the rest when there is such a file.
GATED = """
import os
from pathlib import Path
from runners.streaming import StreamingRunner
from runners.testing.simulator.sources import with_sources
from tests.gated_sources import Gate
gate, run = Gate(path=Path(os.environ["GATE"]), records=2), StreamingRunner.run
StreamingRunner.run = lambda self, graph: run(self, with_sources(graph, gate.read))
"""


def build(p: df.Pipeline, path: Path) -> None:
    """Every pane is a row: how many records each of ten keys has been given since its last one."""
    (
        p
        | "read" >> df.ReadFromCsv(path)
        | df.Map(lambda row: (int(row["number"]) % 10, 1))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterSignal("flush")),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "count" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: {"key": pair[0], "records": pair[1]})
        | df.WriteToPostgres("news", columns={"key": int, "records": int})
    )


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(["number", *map(str, range(RECORDS))]))
    return path


def dataflow(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user types it."""
    return subprocess.run(
        [COMMAND, *arguments],
        env=os.environ | {"DATAFLOW_STORE": dsn},
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )


def total_of(result: df.PipelineResult) -> int:
    return sum(int(row["records"]) for row in result.read_table("news"))


@pytest.mark.spark
@pytest.mark.slow
def test_a_running_job_answers_on_request(
    store_dsn: str, spark_master: str, numbers: Path, tmp_path: Path
) -> None:
    """All that was read before is emitted soon, once; also if a worker dies just then."""
    runner = StreamingRunner(job="asked", store=store_dsn, master=spark_master, show_progress=False)
    # There is always something new to emit until the gate is opened.
    gate = Gate(path=tmp_path / "gate", records_per_second=50)
    pipeline = df.Pipeline(gate.gated(runner))
    build(pipeline, numbers)
    job = pipeline.run()
    assert isinstance(job, StreamingJob)

    def records_read() -> int:
        statistics = job.statistics()
        return statistics.records_read if statistics else 0

    def answers(send: Callable[[], object]) -> None:
        """A signal is sent when there is something to emit, and everything read by then is emitted."""
        before = total_of(job)
        until(lambda: records_read() > before + 20)
        read = records_read()
        send()
        until(lambda: total_of(job) >= read)
        assert records_read() < RECORDS

    def by_command_line() -> None:
        ran = dataflow(store_dsn, "signal", "asked", "flush")
        assert (ran.returncode, ran.stdout, ran.stderr) == (
            0, "signal 2 of job asked: flush\n", ""
        )  # fmt: skip

    def while_a_worker_dies() -> None:
        job.send_signal("flush")
        kill(workers_of(psutil.Process())[:1])

    try:
        answers(lambda: job.send_signal("flush"))
        answers(by_command_line)
        answers(while_a_worker_dies)
        listed = dataflow(store_dsn, "jobs").stdout.splitlines()
        assert re.match(r"asked +streaming +unfinished .* flush$", listed[1]), listed
        gate.open()
        job.wait_until_finish()
    finally:
        job.cancel()
    too_late = dataflow(store_dsn, "signal", "asked", "flush")

    assert total_of(job) == RECORDS
    assert "finished" in dataflow(store_dsn, "jobs").stdout
    assert (too_late.returncode, too_late.stdout) == (2, "")
    assert "is finished" in too_late.stderr
    with closing(PostgresStore(store_dsn)) as store:
        left = store.statistics("asked")
    assert (left["cells"], left["timers"], left["checkpoints"]) == (0, 0, 0)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
def test_the_how_to_does_what_is_written_there(store_dsn: str, tmp_path: Path) -> None:
    """Its job as it stands on the page, asked by its command, has a table before it has read everything."""
    gate = tmp_path / "gate"
    blocks = dict(
        re.findall(r"^```(py|sh)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    )
    signal, jobs = (line.split()[1:] for line in blocks["sh"].splitlines())
    running = subprocess.Popen(
        [sys.executable, "-c", GATED + blocks["py"]],
        cwd=ROOT,
        env=os.environ | {"DATAFLOW_STORE": store_dsn, "GATE": str(gate), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    family = psutil.Process(running.pid)
    try:
        until(lambda: b"scores" in dataflow(store_dsn, *jobs).stdout.encode())
        with psycopg.connect(store_dsn, autocommit=True) as connection:

            def table() -> dict[str, int]:
                return dict(connection.execute("SELECT team, score FROM live_scores").fetchall())

            def has_fired() -> bool:
                assert dataflow(store_dsn, *signal).returncode == 0
                return bool(table())

            until(has_fired)
            early = table()
            gate.touch()
            out, _ = running.communicate(timeout=WAIT_MAX_S)
            final = table()
    finally:
        kill([*descendants(family), family] if running.poll() is None else [])
        running.wait()

    assert running.returncode == 0, out
    assert sum(early.values()) < sum(final.values())
    assert final == {"red": 17, "blue": 12}


def test_a_lost_connection_is_opened_again(store_dsn: str, numbers: Path) -> None:
    """The server ends the reader's session; what is sent afterwards arrives all the same."""
    pipeline = df.Pipeline()
    build(pipeline, numbers)
    execution = plan(pipeline.graph())
    spec = job_spec("cut", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    with closing(PostgresStore(store_dsn)) as store:
        master = Master(
            store.open_job(spec), execution, 1, LocalNetwork().endpoint("master"), ManualClock()
        )

        def receives(reader: StoreReader, number: int) -> Callable[[], bool]:
            def has_arrived() -> bool:
                reader.pass_on()
                return master.latest_signal == number

            return has_arrived

        with StoreReader(
            PostgresStore(store_dsn),
            "cut",
            master,
            RequestDesk(master, ManualClock()),
            Housekeeper("cut", Retention(), ManualClock(), lambda: 0),
        ) as reader:
            store.send_signal("cut", "flush")
            until(receives(reader, 1))
            assert _end_sessions(store_dsn, but=store.connect().info.backend_pid) == 1
            store.send_signal("cut", "flush")
            until(receives(reader, 2))


def test_command_line_on_a_real_store(store_dsn: str) -> None:
    """An empty store, and one whose password must not be shown."""
    empty = dataflow(store_dsn, "jobs")
    unknown = dataflow(store_dsn, "late", "nobody")
    nowhere = dataflow(f"{store_dsn} password=s3cret port=1", "jobs")

    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "no jobs\n", "")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no job 'nobody'" in unknown.stderr
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "no connection to Postgres" in nowhere.stderr
    assert "s3cret" not in nowhere.stderr


def test_a_reader_that_has_seen_enough_is_no_error(store_dsn: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {COMMAND} jobs | true"],
        env=os.environ | {"DATAFLOW_STORE": store_dsn},
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def _end_sessions(dsn: str, *, but: int) -> int:
    """End all sessions on this database except one, and the one that does it; how many there were."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ended: Any = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)",
            [but],
        ).fetchone()
    return int(ended[0])
