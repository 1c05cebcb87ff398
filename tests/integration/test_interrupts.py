"""Ctrl-C on every runner: one line of ours, exit status 130, nothing left running, and what was committed stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.processes import descendants
from tests.waiting import until

ROOT = Path(__file__).parents[2]
RECORDS = 200
#: Slow until a file is there; says by another one that it has begun.
PROGRAM = f"""
import sys, time
from pathlib import Path
import dataflow as df

begun, fast = map(Path, sys.argv[1:3])
runner, job = sys.argv[3:5]


def slow(number):
    begun.touch()
    if not fast.exists():
        time.sleep(0.1)
    return {{"n": number}}


with df.Pipeline(runner, job=job, show_progress=False) as p:
    p | df.Create(range({RECORDS})) | df.Map(slow) | df.WriteToPostgres("seen", columns={{"n": int}}, key="n")
"""
_ON_SPARK = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def _start(directory: Path, runner: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    program = directory / "program.py"
    program.write_text(PROGRAM)
    files = [str(directory / name) for name in ("begun", "fast")]
    return subprocess.Popen(
        [sys.executable, str(program), *files, runner, "a job"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # What a shell starts in the background ignores Ctrl-C, and so does what that starts: the tests, often.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )


def _interrupted(directory: Path, runner: str, environment: dict[str, str]) -> str:
    """What a program prints when Ctrl-C is typed while its pipeline runs."""
    process = _start(directory, runner, environment)
    try:
        until((directory / "begun").exists)
        family = descendants(psutil.Process(process.pid))
        # As a terminal does: to all processes of the group at once.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    assert output == ""
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    return errors


@pytest.mark.slow
def test_of_a_run_in_memory_nothing_stays(tmp_path: Path) -> None:
    assert (
        _interrupted(tmp_path, "direct", {})
        == "interrupted: nothing stays of a run in memory; run it again to begin anew\n"
    )


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param("batch", marks=[*_ON_SPARK, pytest.mark.nightly]),
        pytest.param("streaming", marks=_ON_SPARK),
        pytest.param("backfill-then-live", marks=[*_ON_SPARK, pytest.mark.nightly]),
    ],
)
def test_what_is_in_the_store_stays_and_goes_on(
    runner: str, tmp_path: Path, store_dsn: str
) -> None:
    environment = {"DATAFLOW_STORE": store_dsn}
    line = (
        "interrupted: what job 'a job' has committed stays; run it again to go on, or delete it: "
        "dataflow forget 'a job' --yes"
    )
    # On a machine under load Java may report a task that it ends before it falls silent.
    assert _interrupted(tmp_path, runner, environment).splitlines().count(line) == 1
    (tmp_path / "fast").touch()
    process = _start(tmp_path, runner, environment)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    with psycopg.connect(store_dsn) as connection:
        rows = connection.execute("SELECT n FROM seen").fetchall()
    assert sorted(rows) == [(n,) for n in range(RECORDS)]
