"""Streams that go over to a new version of their pipeline, on real Spark and Postgres."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import dataflow as df
from runners.direct import DirectRunner
from runners.errors import JobMismatchError, UpdateRefusedError
from runners.millwheel.versions.update import Fate
from runners.registry import open_store
from runners.streaming import StreamingRunner, Update
from runners.streaming.job_thread import StreamingJob
from tests.streaming_jobs import read_on
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

JOB = "job"
RECORDS = 12_000
COLUMNS = {"user": str, "start": datetime, "value": int}
Build = Callable[[df.Pipeline], None]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "events.csv"
    rows = [f"user{number % 7},{1e9 + number},{number % 9}" for number in range(RECORDS)]
    path.write_text("\n".join(["user,time,value", *rows]))
    return path


def row(pair: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"user": pair[0], "start": window.start, "value": pair[1]}


def renamed_row(pair: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {**row(pair, window), "user": pair[0].removeprefix("user")}


def version(path: Path, *branches: tuple[str, Any, Callable[..., Any]]) -> Build:
    """A branch for each label, combine function, and function behind it."""

    def build(p: df.Pipeline) -> None:
        read = df.ReadFromCsv(path, event_time=lambda each: float(each["time"]), max_disorder=60)
        pairs = (
            p
            | "read" >> read
            | "pair" >> df.Map(lambda each: (each["user"], int(each["value"])))
            | "windows" >> df.WindowInto(df.FixedWindows(600))
        )
        for label, combine, function in branches:
            (
                pairs
                | label >> df.CombinePerKey(combine)
                | f"{label} row" >> df.Map(function)
                | f"{label} table" >> df.WriteToPostgres(label, columns=COLUMNS)
            )

    return build


def built(build: Build, runner: Any) -> df.Pipeline:
    pipeline = df.Pipeline(runner)
    build(pipeline)
    return pipeline


def rows_of(result: df.PipelineResult, table: str) -> list[str]:
    """What is in a table, whichever function has written it."""
    return shown(each.values() for each in result.read_table(table))


def shown(rows: Iterable[Iterable[Any]]) -> list[str]:
    return sorted(str((user.removeprefix("user"), *rest)) for user, *rest in rows)


def started(build: Build, store: str, master: str, **options: Any) -> df.PipelineResult:
    runner = StreamingRunner(job=JOB, store=store, master=master, show_progress=False, **options)
    return built(build, runner).run()


@pytest.fixture
def running(lines: Path, store_dsn: str, spark_master: str) -> Iterator[StreamingJob]:
    """Two branches, a quarter read."""
    old = version(lines, ("sums", sum, row), ("peaks", max, row))
    # What is left takes many times as long as a plan and a pause do, also on a busy machine.
    job = started(old, store_dsn, spark_master, records_per_second=400)
    assert isinstance(job, StreamingJob)
    read_on(job, RECORDS // 4)
    yield job
    job.cancel()


@pytest.mark.nightly
def test_a_stream_is_updated_while_it_runs(
    running: StreamingJob, lines: Path, store_dsn: str
) -> None:
    """Kept windows count what both versions have read; a refused update changes nothing; old workers get no range."""
    new = version(lines, ("sums", sum, renamed_row), ("lows", min, row))
    with pytest.raises(UpdateRefusedError, match="is removed"):
        running.update(built(new, DirectRunner()))
    running.update(built(new, DirectRunner()), allow_loss=["peaks"])
    with closing(open_store(store_dsn)) as store:
        job = store.read_job(JOB)
        assert job is not None
        assert (1, {"read/Read(CsvSource)", "sums", "lows"}) == (job.version, {*job.computations})
        with pytest.raises(JobMismatchError):
            store.acquire(JOB, list(job.ranges), "a worker of the old version", 0)
    running.wait_until_finish()
    expected = built(new, DirectRunner()).run()

    assert rows_of(expected, "sums") == rows_of(running, "sums")
    written_by = {each["user"].startswith("user") for each in running.read_table("sums")}
    assert {True, False} == written_by
    assert set(rows_of(running, "lows")[-3:]) <= set(rows_of(expected, "lows"))
    assert [] == running.late_records()


def test_a_paused_stream_is_updated_when_it_runs_again(
    running: StreamingJob, lines: Path, store_dsn: str, spark_master: str
) -> None:
    """Nothing is in flight; without being asked to, nothing is updated, and the error says what could be done."""
    running.pause()
    new = version(lines, ("totals", sum, row))
    with closing(open_store(store_dsn)) as store:
        assert {} == store.count_state(JOB).in_flight
    with pytest.raises(JobMismatchError, match=r"(?s)update=Update.*'sums'.*peaks .*is removed"):
        started(new, store_dsn, spark_master)
    runner = StreamingRunner(job=JOB, store=store_dsn)
    planned = runner.plan_update(built(new, runner), renamed={"sums": "totals"})
    assert planned is not None
    fates = {each.name: each.fate for each in planned.computations}
    assert {"read/Read(CsvSource)": Fate.KEPT, "totals": Fate.KEPT, "peaks": Fate.REMOVED} == fates
    update = Update(renamed={"sums": "totals"}, allow_loss=["peaks"])
    result = started(new, store_dsn, spark_master, update=update)
    result.wait_until_finish()
    expected = rows_of(built(new, DirectRunner()).run(), "totals")

    # What was emitted before is in the table of that time.
    (sums,) = built(version(lines, ("sums", sum, row)), runner).graph().tables()
    with closing(open_store(store_dsn)) as store:
        before = shown(store.read_table(sums))
    assert before
    assert expected == sorted([*rows_of(result, "totals"), *before])


def test_what_waits_for_a_sink_that_is_removed_is_sent_before(
    lines: Path, store_dsn: str, spark_master: str
) -> None:
    """While its server lets nobody in, rows wait, which is seen; when it does again, the update sends them."""
    with psycopg.connect(store_dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE elsewhere")
        other = make_conninfo(store_dsn, dbname="elsewhere")
        job = started(_beside(lines, other), store_dsn, spark_master, records_per_second=400)
        assert isinstance(job, StreamingJob)
        try:
            read_on(job, RECORDS // 8)
            admin.execute("ALTER DATABASE elsewhere ALLOW_CONNECTIONS false")
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'elsewhere'"
            )

            def is_failing() -> bool:
                found = admin.execute(
                    "SELECT reason FROM dataflow.sink_status WHERE waiting > 0 AND tries > 0 AND oldest < now()"
                ).fetchall()
                return bool(found) and "not currently accepting connections" in found[0][0]

            until(is_failing)
            job.pause()
            job.wait_until_finish()
            rows = rows_of(job, "here")
            former = built(_beside(lines, other), DirectRunner())
            new = _beside(lines, None)
            with pytest.raises(UpdateRefusedError, match=r"allow_loss=\['elsewhere'\]"):
                started(new, store_dsn, spark_master, update=Update())
            admin.execute("ALTER DATABASE elsewhere ALLOW_CONNECTIONS true")
            job = started(new, store_dsn, spark_master, update=Update(former=former))
            with psycopg.connect(other) as opened:
                sent = opened.execute("SELECT * FROM there").fetchall()
            assert shown(sent) == rows
            assert admin.execute("SELECT * FROM dataflow.sink_status").fetchall() == []
        finally:
            assert isinstance(job, StreamingJob)
            job.cancel()
            admin.execute("DROP DATABASE elsewhere WITH (FORCE)")


def _beside(path: Path, other: str | None) -> Build:
    """The rows of one grouping, in the store and perhaps in another database."""

    def build(p: df.Pipeline) -> None:
        rows = (
            p
            | "read"
            >> df.ReadFromCsv(path, event_time=lambda each: float(each["time"]), max_disorder=60)
            | "pair" >> df.Map(lambda each: (each["user"], int(each["value"])))
            | "windows" >> df.WindowInto(df.FixedWindows(60))
            | "sums" >> df.CombinePerKey(sum)
            | "row" >> df.Map(row)
        )
        rows | "here" >> df.WriteToPostgres("here", columns=COLUMNS)
        if other is not None:
            rows | "elsewhere" >> df.WriteToPostgres("there", columns=COLUMNS, dsn=other)

    return build
