"""The list of jobs, of drivers that are processes of their own."""

import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import dataflow as df
from runners.cli import main
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.registry import open_store
from runners.testing.scripted_source import ScriptedSource
from tests.waiting import WAIT_MAX_S

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
_HOLDS_JOB = """
import sys, time
from runners.millwheel.store.postgres.job_lock import JobLock
lock = JobLock(sys.argv[1], "scores")
lock.hold()
print("holds", flush=True)
time.sleep(600)
"""


def test_a_driver_that_lives_is_in_the_list_of_jobs_and_one_that_was_killed_is_not(
    store_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shown by host and process, beside its own job and no other one."""

    def drivers() -> dict[str, str]:
        assert main(["jobs", "--store", store_dsn]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        at = head.index("driver")
        return {line.split()[0]: line[at:].split()[0] for line in lines}

    p = df.Pipeline(DirectRunner())
    p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
    execution = plan(p.graph())
    with closing(open_store(store_dsn)) as store:
        for job in ("scores", "others"):
            spec = job_spec(job, "streaming", execution, splits_desired=1, ranges_per_grouping=1)
            store.open_job(spec)
    assert drivers() == {"scores": "-", "others": "-"}
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS_JOB, store_dsn], stdout=subprocess.PIPE, cwd=ROOT
    ) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == b"holds\n"
            assert drivers() == {
                "scores": f"{socket.gethostname()}:{driver.pid}",
                "others": "-",
            }
        finally:
            driver.kill()
    until_s = time.monotonic() + WAIT_MAX_S
    while drivers()["scores"] != "-":
        assert time.monotonic() < until_s, "the server has not noticed"
        time.sleep(0.1)
