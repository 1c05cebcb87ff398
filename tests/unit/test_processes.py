"""Whom the tests may kill as "a worker": what Spark's daemon has forked, and nobody who only mentions it."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.processes import kill, spark_workers

DAEMON = "runners.python_daemon"
#: Prints a line when it has a child.
WITH_A_CHILD = """
import os, sys, time
if os.fork():
    print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def family(request: pytest.FixtureRequest) -> Iterator[psutil.Process]:
    """A process with a child, below this one; its command ends with the arguments given."""
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_A_CHILD, *request.param], stdout=subprocess.PIPE
    )
    above = psutil.Process(process.pid)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield above
    finally:
        kill([*above.children(), above])
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("family", [[DAEMON], ["pyspark.daemon", "pyspark.worker"]], indirect=True)
def test_what_a_daemon_has_forked_is_a_worker(family: psutil.Process) -> None:
    assert spark_workers(psutil.Process()) == family.children()


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [["--conf", f"spark.python.daemon.module={DAEMON}"]], indirect=True
)
def test_what_starts_spark_is_none(family: psutil.Process) -> None:
    assert family.children()
    assert spark_workers(psutil.Process()) == []
