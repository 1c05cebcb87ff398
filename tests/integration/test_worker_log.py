"""What user code logs reaches the driver's `logging`, or its terminal, with transform, worker and job."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRIPT = """
import logging
import sys

import dataflow as df

def seen(pair):
    logging.getLogger("mine").info("element %s", pair[1])
    logging.getLogger("mine").error("bad %s", pair[1])
    return pair

class Mine(logging.Handler):
    def emit(self, record):
        where = record.dataflow_transform, record.dataflow_job, bool(record.dataflow_worker)
        print("mine:", record.levelname, record.getMessage(), *where)

more = {}
if len(sys.argv) > 2:
    logging.getLogger("mine").addHandler(Mine())
    logging.getLogger("mine").propagate = False
    more["log_level"] = sys.argv[2]

with df.Pipeline(sys.argv[1], job="logs", show_progress=False, **more) as p:
    p | df.Create([("k", 7)]) | "look" >> df.Map(seen) | df.GroupByKey()
"""


def run(
    script: Path, store: str, level: str, *arguments: str, **more: str
) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        **more,
        "PYTHONPATH": str(ROOT),
        "DATAFLOW_STORE": store,
        "DATAFLOW_LOG_LEVEL": level,
    }
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    "runner", ["direct", pytest.param("batch", marks=pytest.mark.nightly), "streaming"]
)
def test_it_is_what_the_drivers_own_handlers_get(
    runner: str, store_dsn: str, tmp_path: Path
) -> None:
    """On every runner, with the level that the runner was given."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = run(script, store_dsn, "ERROR", runner, "INFO")

    lines = [line for line in done.stdout.splitlines() if line.startswith("mine:")]
    assert lines == ["mine: INFO element 7 look logs True", "mine: ERROR bad 7 look logs True"]


@pytest.mark.parametrize(
    ("runner", "level"),
    [("batch", "INFO"), pytest.param("streaming", "ERROR", marks=pytest.mark.nightly)],
)
def test_it_is_on_the_drivers_terminal(
    runner: str, level: str, store_dsn: str, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = run(script, store_dsn, level, runner)
    assert ", job 'logs'] bad 7" in done.stderr
    worker = "batch " if runner == "batch" else "slot "
    assert f"ERROR mine [transform 'look', {worker}" in done.stderr
    assert (f"INFO mine [transform 'look', {worker}" in done.stderr) is (level == "INFO")


@pytest.mark.nightly
@pytest.mark.parametrize("runner", ["batch", "streaming"])
def test_it_is_one_json_object_a_line(runner: str, store_dsn: str, tmp_path: Path) -> None:
    """With where it was, and of a stream the production; nothing of ours is another line."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = run(script, store_dsn, "INFO", runner, DATAFLOW_LOG_FORMAT="json")
    lines = [line for line in done.stderr.splitlines() if "mine" in line or "dataflow" in line]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    [bad] = [each for each in found if each["message"] == "bad 7"]
    assert (bad["level"], bad["transform"], bad["job"]) == ("ERROR", "look", "logs")
    assert bad["worker"]
    if runner == "streaming":
        [place] = {bad["ranges"]}
        assert bad["production"].startswith(place)
