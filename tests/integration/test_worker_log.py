"""What user code logs in Spark's workers is on the terminal of the driver, with transform and worker."""

import os
import subprocess
import sys
from pathlib import Path

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

with df.Pipeline(sys.argv[1], job="logs", show_progress=False) as p:
    p | df.Create([("k", 7)]) | "look" >> df.Map(seen) | df.GroupByKey()
"""


@pytest.mark.parametrize("level", ["INFO", "ERROR"])
@pytest.mark.parametrize("runner", ["batch", "streaming"])
def test_it_is_on_the_drivers_terminal(
    runner: str, level: str, store_dsn: str, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DATAFLOW_STORE": store_dsn,
        "DATAFLOW_LOG_LEVEL": level,
    }
    done = subprocess.run(
        [sys.executable, str(script), runner],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    worker = "batch " if runner == "batch" else "slot "
    assert f"ERROR mine [transform 'look', {worker}" in done.stderr
    assert (f"INFO mine [transform 'look', {worker}" in done.stderr) is (level == "INFO")
