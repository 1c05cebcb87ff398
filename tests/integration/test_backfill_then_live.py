"""The flights, a backfill in batch and then live, on real Spark and Postgres: killed in the middle of both."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

import dataflow as df
from examples.flight_delays import TableNames, build
from examples.flights_data import flights_csv
from runners.backfill_then_live import BackfillThenLiveRunner
from runners.batch import BackfillRunner
from runners.direct import DirectRunner
from runners.errors import BackfillError
from runners.millwheel.control.backfill_progress import BackfillState, backfill_state
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import JobRow
from runners.millwheel.store.postgres import PostgresStore
from runners.streaming import StreamingRunner
from tests.processes import descendants, kill
from tests.waiting import RUN_MAX_S, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

JOB = "cut-backfill-then-live"
ROOT = Path(__file__).parents[2]
#: A range that is kept from being loaded until the job is killed.
LOCKED = RangeId("legs", 2)


def command(dsn: str, *more: str) -> list[str]:
    flights = [sys.executable, "-m", "examples.flight_delays", "--backfill-then-live"]
    return [*flights, "--month", "1", "--store", dsn, "--job", "cut", *more]


@contextmanager
def running(dsn: str, log: Path, *more: str) -> Iterator[None]:
    """The job in a process group of its own, until everything that belongs to it is killed."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(dsn, *more), cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
        family = psutil.Process(process.pid)
        try:
            yield
        finally:
            kill([*descendants(family), family])
            process.wait()


def job_of(dsn: str) -> JobRow | None:
    with closing(PostgresStore(dsn)) as store:
        return store.read_job(JOB)


def wait_for(dsn: str, log: Path, happened: Callable[[JobRow], bool]) -> JobRow:
    found: list[JobRow] = []

    def has_happened() -> bool:
        found[:] = [job for job in (job_of(dsn),) if job is not None]
        return bool(found) and happened(found[0])

    until(has_happened, log.read_text)
    return found[0]


@contextmanager
def locked_range(dsn: str) -> Iterator[None]:
    """Nobody can take the range over."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            """SELECT f.range_id FROM dataflow.jobs j
               JOIN dataflow.computations c USING (job_id)
               JOIN dataflow.ranges r USING (computation_id)
               JOIN dataflow.fences f USING (range_id)
               WHERE j.name = %s AND c.name = %s AND r.range_index = %s
               FOR UPDATE OF f""",
            (JOB, LOCKED.computation, LOCKED.index),
        ).fetchall()
        assert len(found) == 1
        yield


def are_others_loaded(job: JobRow) -> bool:
    return all(row.bundle > 0 for range_id, row in job.ranges.items() if range_id != LOCKED)


def bundles(job: JobRow) -> int:
    return sum(row.bundle for row in job.ranges.values() if row.split is not None)


def pipeline(runner: df.Runner) -> df.Pipeline:
    p = df.Pipeline(runner)
    build(p, flights_csv(1), TableNames.with_suffix("cut_backfill_then_live"))
    return p


@pytest.mark.nightly
def test_rows_survive_kills_between_the_commits_of_a_backfill_and_live(
    store_dsn: str, tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    with running(store_dsn, log):
        wait_for(store_dsn, log, lambda job: True)
        with locked_range(store_dsn):
            wait_for(store_dsn, log, are_others_loaded)
            half = job_of(store_dsn)
    assert half is not None
    assert backfill_state(half) is BackfillState.HALF
    assert half.ranges[LOCKED].bundle == 0

    with pytest.raises(BackfillError, match="loaded only in part"):
        pipeline(StreamingRunner(job=JOB, store=store_dsn)).run()

    with running(store_dsn, log, "--rate", "2000"):
        at_once = wait_for(
            store_dsn, log, lambda job: backfill_state(job) is not BackfillState.HALF
        )
        wait_for(store_dsn, log, lambda job: bundles(job) > bundles(at_once) + 2)
    live = job_of(store_dsn)
    assert live is not None
    assert backfill_state(live) is BackfillState.LIVE
    assert not live.is_finished

    until = datetime(2013, 1, 21, tzinfo=UTC)
    with pytest.raises(BackfillError, match="has gone live"):
        pipeline(BackfillRunner(job=JOB, store=store_dsn, until=until)).run()

    last = subprocess.run(
        command(store_dsn),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
    )
    assert last.returncode == 0, last.stdout + last.stderr
    assert "Identical:" in last.stdout
    assert "backfill-then-live left the same rows" in last.stdout.replace("\n", " ")
    with closing(PostgresStore(store_dsn)) as store:
        left = store.statistics(JOB)
    assert {"cells": 0, "timers": 0, "checkpoints": 0, "late": 0} == {
        kind: left[kind] for kind in ("cells", "timers", "checkpoints", "late")
    }


NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def minutes(p: df.Pipeline, folder: Path) -> None:
    """Values of a key by the minute, and their totals by the day; the code behind the totals may be mended."""
    path = folder / "values.jsonl"
    lines = (json.dumps({"key": n % 3, "minute": n, "value": n}) for n in range(1_000))
    path.write_text("\n".join(lines) + "\n")

    def row(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, object]:
        if not (folder / "mended").exists():
            raise ValueError("not yet")
        return {"key": pair[0], "start": window.start, "total": pair[1]}

    (
        p
        | "read"
        >> df.ReadFromJsonLines(
            path,
            event_time=lambda each: NOON + timedelta(minutes=each["minute"]),
            max_disorder=60,
        )
        | "pair" >> df.Map(lambda each: (each["key"], each["value"]))
        | "hours" >> df.WindowInto(df.FixedWindows(3600))
        | "by hour" >> df.CombinePerKey(sum)
        | "rekey" >> df.Map(lambda pair: (pair[0] % 2, pair[1]))
        | "half days" >> df.WindowInto(df.FixedWindows(43_200))
        | "by half day" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "write"
        >> df.WriteToPostgres("totals", columns={"key": int, "start": datetime, "total": int})
    )


def test_a_backfill_is_loaded_in_one_program_and_run_in_another(
    store_dsn: str, spark_master: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two groupings, one behind the other; some of their windows end in the backfill."""
    options: dict[str, Any] = {
        "job": "totals",
        "store": store_dsn,
        "master": spark_master,
        "show_progress": False,
    }
    backfill = BackfillRunner(until=NOON + timedelta(hours=14), **options)
    half = df.Pipeline(backfill)
    minutes(half, tmp_path)
    whole = df.Pipeline(StreamingRunner(**options))
    minutes(whole, tmp_path)

    (tmp_path / "mended").touch()
    # The first half day has ended in the backfill, the second is open.
    starts = {row["start"] for row in half.run().read_table("totals")}
    assert starts == {NOON}
    capfd.readouterr()
    half.run()
    assert "is loaded already; nothing was done" in capfd.readouterr().err
    with closing(PostgresStore(store_dsn)) as store:
        job, left = store.read_job("totals"), store.statistics("totals")
    assert job is not None
    assert backfill_state(job) is BackfillState.LOADED
    assert left["cells"] > 0
    result = whole.run()
    result.wait_until_finish()

    expected = df.Pipeline(DirectRunner())
    minutes(expected, tmp_path)
    assert sorted(map(repr, result.read_table("totals"))) == sorted(
        map(repr, expected.run().read_table("totals"))
    )


def test_an_error_of_the_user_is_raised_and_what_is_mended_goes_on(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "job": "totals",
        "store": store_dsn,
        "master": spark_master,
        "show_progress": False,
    }
    runner = BackfillThenLiveRunner(until=NOON + timedelta(hours=14), **options)
    p = df.Pipeline(runner)
    minutes(p, tmp_path)
    with pytest.raises(df.TransformError, match=r"'row'.*not yet"):
        p.run().wait_until_finish()
    (tmp_path / "mended").touch()
    result = p.run()
    result.wait_until_finish()

    expected = df.Pipeline(DirectRunner())
    minutes(expected, tmp_path)
    assert sorted(map(repr, result.read_table("totals"))) == sorted(
        map(repr, expected.run().read_table("totals"))
    )
