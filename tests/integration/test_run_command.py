"""``dataflow run`` as a shell starts it: workers find the module of the user's where the command did."""

import os
import subprocess
import sys
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


@pytest.mark.parametrize("runner", ["batch", "streaming"])
def test_a_module_in_this_directory_is_run(runner: str, tmp_path: Path, store_dsn: str) -> None:
    (tmp_path / "doubling.py").write_text(MODULE)

    def dataflow(*arguments: str) -> str:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from runners.cli import main; raise SystemExit(main())",
                *arguments,
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "DATAFLOW_STORE": store_dsn,
                "DATAFLOW_JOB": "doubles",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    shown = dataflow("run", "doubling:pipeline", "--runner", runner, "--no-show-progress")
    assert shown == "job doubles: finished\n"
    with psycopg.connect(store_dsn) as connection:
        assert sorted(connection.execute("SELECT n FROM doubles").fetchall()) == [
            (n,) for n in range(0, 10, 2)
        ]
    assert '"job": "doubles"' in dataflow("jobs", "--json")
    assert "is forgotten" in dataflow("forget", "doubles", "--yes")
    assert dataflow("jobs", "--json") == ""
