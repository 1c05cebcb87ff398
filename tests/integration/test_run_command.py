"""``dataflow run`` as a shell starts it: workers find the module of the user's where the command did."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
MODULE = """
import dataflow as df


class Twice(df.DoFn):
    def process(self, element):
        yield {"n": 2 * element}


def pipeline(p):
    p | df.Create(range(5)) | df.ParDo(Twice()) | df.WriteToPostgres("doubles", columns={"n": int})
"""


@pytest.fixture
def dataflow(tmp_path: Path, store_dsn: str) -> Callable[..., str]:
    """``dataflow(...)``: what the command prints when it succeeds, or, with ``status=2``, when it does not."""
    environment = {"PYTHONPATH": str(ROOT), "DATAFLOW_STORE": store_dsn, "DATAFLOW_JOB": "doubles"}

    def run(*arguments: str, status: int = 0) -> str:
        program = "from runners.cli import main; raise SystemExit(main())"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.nightly
@pytest.mark.parametrize("runner", ["batch", "streaming"])
def test_a_module_in_this_directory_is_run(
    runner: str, tmp_path: Path, store_dsn: str, dataflow: Callable[..., str]
) -> None:
    (tmp_path / "doubling.py").write_text(MODULE)
    shown = dataflow("run", "doubling:pipeline", "--runner", runner, "--no-show-progress")
    # On a busy machine a worker may be missing for so long that this is logged.
    assert [line for line in shown.splitlines() if line.startswith("job ")] == [
        "job doubles: finished"
    ]
    assert "Traceback" not in shown
    with psycopg.connect(store_dsn) as connection:
        assert sorted(connection.execute("SELECT n FROM doubles").fetchall()) == [
            (n,) for n in range(0, 10, 2)
        ]
    assert '"job": "doubles"' in dataflow("jobs", "--json")
    assert "is forgotten" in dataflow("forget", "doubles", "--yes")
    assert dataflow("jobs", "--json") == ""


VERSIONS = """
import dataflow as df


def first(p):
    events = p | "events" >> df.Create([df.TimestampedValue(("a", 1), 1)])
    minutes = events | "minutes" >> df.WindowInto(df.FixedWindows(60))
    minutes | "sums" >> df.CombinePerKey(sum) | "rows" >> df.Map(lambda pair: {"n": pair[1]}) | (
        "write" >> df.WriteToPostgres("sums", columns={"n": int})
    )
    minutes | "peaks" >> df.CombinePerKey(max)


def second(p):
    events = p | "events" >> df.Create([df.TimestampedValue(("a", 1), 1)])
    minutes = events | "minutes" >> df.WindowInto(df.FixedWindows(60))
    minutes | "totals" >> df.CombinePerKey(sum) | "rows" >> df.Map(lambda pair: {"n": pair[1]}) | (
        "write" >> df.WriteToPostgres("sums", columns={"n": int})
    )
"""


@pytest.mark.nightly
def test_the_plan_of_an_update_is_shown_and_the_update_is_carried_out(
    tmp_path: Path, dataflow: Callable[..., str]
) -> None:
    (tmp_path / "versions.py").write_text(VERSIONS)
    stream = ["--runner", "streaming", "--no-show-progress"]
    none = "job 'doubles' is not there, or runs this pipeline already\n"
    assert dataflow("run", "versions:first", *stream, "--plan") == none
    # A backfill leaves a job that has not ended.
    dataflow(
        "run",
        "versions:first",
        "--runner",
        "backfill",
        "--no-show-progress",
        "--until",
        "1970-01-01T00:00:00Z",
    )
    assert dataflow("run", "versions:first", *stream, "--plan") == none

    renamed = ["--renamed", "sums=totals"]
    plan = dataflow("run", "versions:second", *stream, *renamed, "--plan")
    assert plan.startswith("update of job 'doubles' from version 0 to 1:")
    assert "totals" in plan
    assert "(was sums)" in plan
    assert "is removed" in plan
    refused = dataflow("run", "versions:second", *stream, *renamed, status=2)
    assert "none was asked for" in refused
    updated = dataflow(
        "run", "versions:second", *stream, *renamed, "--update", "--allow-loss", "peaks"
    )
    assert "update of job 'doubles' from version 0 to 1:" in updated
    assert updated.endswith("job doubles: finished\n")
    no_stream = dataflow("run", "versions:first", "--runner", "direct", "--plan", status=2)
    assert "DirectRunner has no jobs that can be updated" in no_stream
