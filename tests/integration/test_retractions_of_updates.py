"""Updates that retract what removed transforms have emitted, on real Spark and Postgres, with a kill in the middle."""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.store.port import JobRow
from runners.millwheel.versions.retraction import is_retracting
from runners.registry import open_store
from runners.stored.places import decode_retraction_mark
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from tests.processes import descendants, kill
from tests.streaming_jobs import read_on
from tests.waiting import RUN_MAX_S, until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
JOB = "scores"
RECORDS = 8_000
#: What is retracted takes a while where there is a file of this name.
SLOW = "slow"
MODULE = """
import time
from pathlib import Path

import dataflow as df

HERE = Path(__file__).parent
COLUMNS = {"of": str, "user": str, "value": int}


def slowly(pair):
    if (HERE / "slow").exists():
        time.sleep(0.2)
    return pair


class Steps(df.DoFn):
    # What it says depends on the order of arrival, and is in no state afterwards.

    has_retractable_outputs = True
    requires_time_sorted_input = False
    SEEN = df.CombiningValueStateSpec("seen", sum)

    def process(self, element, seen=df.DoFn.StateParam(SEEN)):
        seen.add(element[1])
        if seen.read() % 3 == 0:
            yield element[0], seen.read()


def written(rows, name, table):
    (
        rows
        | f"{name} row" >> df.Map(lambda pair: {"of": name, "user": pair[0], "value": pair[1]})
        | f"{name} table" >> df.WriteToPostgres(table, columns=COLUMNS, key=["of", "user"])
    )


def version(p, names):
    pairs = (
        p
        | "read" >> df.ReadFromCsv(HERE / "events.csv", event_time=lambda each: float(each["time"]))
        | "pair" >> df.Map(lambda each: (each["user"], int(each["value"])))
        | "windows"
        >> df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(20)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
    )
    functions = {"sums": sum, "lows": min, "tops": max}
    results = []
    for name in names:
        found = pairs | name >> df.CombinePerKey(functions[name])
        if name != "sums":
            found = found | f"slow {name}" >> df.Map(slowly)
        written(found, name, "tops" if name == "tops" else "scores")
        results.append(found)
    if "tops" in names:
        results.append(pairs | "steps" >> df.ParDo(Steps()))
    written(results | "flatten" >> df.Flatten() | "total" >> df.CombinePerKey(sum), "total", "totals")
    # Without "lows" nothing that comes to it can be retracted.
    mixed = [pairs, *results[1:2]] | "mix" >> df.Flatten()
    written(mixed | "mixed" >> df.Sum.PerKey(), "mixed", "mixed")


def first(p):
    version(p, ["sums", "lows", "tops"])


def second(p):
    version(p, ["sums"])
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    rows = [f"user{number % 12},{1e9 + number},{number % 9 + 1}" for number in range(RECORDS)]
    (tmp_path / "events.csv").write_text("\n".join(["user,time,value", *rows]))
    path = tmp_path / "versions.py"
    path.write_text(MODULE)
    return path


def built(module: Path, name: str, runner: Any) -> df.Pipeline:
    pipeline = df.Pipeline(runner)
    runpy.run_path(str(module))[name](pipeline)
    return pipeline


def rows_of(result: df.PipelineResult, table: str) -> list[str]:
    return sorted(str(dict(row)) for row in result.read_table(table))


def check_rows(result: df.PipelineResult, module: Path, dsn: str) -> None:
    """The rows are those of the new pipeline alone, and the table of what is gone is gone."""
    expected = built(module, "second", DirectRunner()).run()
    for table in ("scores", "totals", "mixed"):
        assert rows_of(result, table) == rows_of(expected, table)
    with closing(open_store(dsn)) as store:
        assert [each.name for each in store.result_tables(JOB)] == [
            "public.mixed",
            "public.scores",
            "public.totals",
        ]


def stored(dsn: str) -> JobRow | None:
    with closing(open_store(dsn)) as store:
        return store.read_job(JOB)


def retracted_ranges(dsn: str) -> tuple[int, int]:
    """How many ranges of removed groupings have come to their end, and how many have not."""
    job = stored(dsn)
    if job is None or not is_retracting(job.fingerprint):
        return 0, 0
    marks = [
        decode_retraction_mark(row.position, job.version).is_end
        for range_id, row in job.ranges.items()
        if range_id.computation in ("lows", "tops", "steps")
    ]
    return sum(marks), len(marks) - sum(marks)


class Shell:
    """``dataflow run`` as a shell starts it."""

    def __init__(self, module: Path, dsn: str) -> None:
        self._module, self._log = module, module.parent / "log"
        self._environment = {"PYTHONPATH": str(ROOT), "DATAFLOW_STORE": dsn, "DATAFLOW_JOB": JOB}

    def _command(self, *arguments: str) -> list[str]:
        program = "from runners.cli import main; raise SystemExit(main())"
        stream = ["--runner", "streaming", "--no-show-progress"]
        return [sys.executable, "-c", program, "run", *arguments, *stream]

    @contextmanager
    def started(self, *arguments: str) -> Iterator[None]:
        """A run that is killed at the end, with all of its processes."""
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                self._command(*arguments),
                cwd=self._module.parent,
                env={**os.environ, **self._environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        family = psutil.Process(process.pid)
        try:
            yield
        finally:
            kill([*descendants(family), family])
            process.wait()

    def run(self, *arguments: str) -> str:
        """What it prints."""
        done = subprocess.run(
            self._command(*arguments),
            cwd=self._module.parent,
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_MAX_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def log(self) -> str:
        return self._log.read_text()


@pytest.mark.nightly
def test_an_update_that_was_killed_in_the_middle_goes_on(module: Path, store_dsn: str) -> None:
    """Everything dies when a part is retracted; the same command again retracts the rest, and nothing twice."""
    shell = Shell(module, store_dsn)
    read = """
        SELECT count(*) FROM scores WHERE "of" = 'lows'
    """
    with shell.started("versions:first", "--records-per-second", "400"):
        until(lambda: _count(store_dsn, read) == 12, shell.log)
    retract = ["versions:second", "--retract-removed", "--former", "versions:first"]
    plan = shell.run(*retract, "--plan")
    assert "lows: its panes are retracted from total, mixed, table scores, of up to" in plan
    assert "tops: its panes are retracted from total, of up to" in plan
    assert "steps: its panes are retracted from total, of up to" in plan
    assert "table tops is dropped, with 12 rows" in plan

    slow = module.parent / SLOW
    slow.touch()
    with shell.started(*retract, "--update", "--records-per-second", "400"):
        until(lambda: all(retracted_ranges(store_dsn)), shell.log)
    assert all(retracted_ranges(store_dsn))
    slow.unlink()
    job = stored(store_dsn)
    assert job is not None
    assert (job.version, {"lows", "tops"} <= {*job.computations}) == (1, True)
    assert shell.run(*retract, "--update").endswith(f"job {JOB}: finished\n")
    runner = StreamingRunner(job=JOB, store=store_dsn, show_progress=False)
    check_rows(built(module, "second", runner).run(), module, store_dsn)


def _count(dsn: str, query: str) -> int:

    with psycopg.connect(dsn) as connection:
        try:
            row = connection.execute(query).fetchone()
        except psycopg.errors.UndefinedTable:
            return 0
    return 0 if row is None else int(row[0])


@pytest.mark.nightly
def test_a_job_that_runs_is_updated(module: Path, store_dsn: str, spark_master: str) -> None:
    """It retracts in the same driver, and goes on with the new pipeline."""
    runner = StreamingRunner(
        job=JOB,
        store=store_dsn,
        master=spark_master,
        show_progress=False,
        records_per_second=400,
    )
    job = built(module, "first", runner).run()
    assert isinstance(job, StreamingJob)
    read_on(job, RECORDS // 10)
    job.update(built(module, "second", DirectRunner()), retract_removed=True)
    row = stored(store_dsn)
    assert row is not None
    assert (row.version, {"lows", "tops", "steps"} & {*row.computations}) == (3, set())
    job.wait_until_finish()
    check_rows(job, module, store_dsn)
