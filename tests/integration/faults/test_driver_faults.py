"""Drivers are frozen and killed while others take over, and two are started for one job at once."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fault_harness import FaultServer, Watch, within
from tests.integration.faults.conftest import JOB, check_output
from tests.processes import descendants, kill
from tests.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[3]
#: What is left of a driver that has lost its job ends by itself within this time.
ORPHANS_S = 20.0

Start = Callable[[int], subprocess.Popen[str]]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Where the file is to be that lets the job read on."""
    return tmp_path / "gate"


@pytest.fixture
def start(fault_dsn: str, gate: Path) -> Iterator[Start]:
    """Starts drivers of the job as programs of their own; what is left of them at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(records: int) -> subprocess.Popen[str]:
        options = {"--store": fault_dsn, "--job": JOB, "--records": records, "--gate": gate}
        words = [str(word) for option in options.items() for word in option]
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.fault_job", *words],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        started.append(driver)
        return driver

    yield start
    for driver in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(driver.pid)
            kill([*descendants(family), family])
        driver.communicate()


def output(driver: subprocess.Popen[str]) -> str:
    """What it printed, when it has ended."""
    return driver.communicate(timeout=WAIT_MAX_S)[0]


def test_a_driver_that_was_frozen_finds_its_job_taken(
    start: Start, watch: Watch, gate: Path
) -> None:
    """SIGSTOP of driver, Java and workers; another is let in by hand and takes over.  Then SIGCONT."""
    records = 1_500
    frozen = start(records)
    watch.wait_for_sources()
    family = psutil.Process(frozen.pid)
    everything = [family, *descendants(family)]
    for process in everything:
        process.send_signal(signal.SIGSTOP)
    try:
        refused = output(start(records))
        assert "JobRunningError" in refused
        session = re.search(r"pg_terminate_backend\((\d+)\)", refused)
        assert session is not None, refused
        watch.terminate(int(session[1]))

        successor = start(records)
        watch.wait_for_sources()
    finally:
        for process in everything:
            process.send_signal(signal.SIGCONT)

    assert "JobRunningError" in output(frozen)
    gate.touch()
    assert output(successor).strip().endswith("finished")
    assert not psutil.wait_procs(everything, timeout=within(ORPHANS_S))[1]
    check_output(watch, records)


def test_the_second_of_two_drivers_is_refused(
    start: Start, watch: Watch, fault_server: FaultServer, gate: Path
) -> None:
    """Of two started at once one has the job, even if the server forgets who; killed in COMMIT, it can be run again."""
    records = 7_200
    drivers = [start(records), start(records)]
    watch.wait_for_sources()
    watch.wait(lambda: any(each.poll() for each in drivers), what="refusal")
    loser, winner = sorted(drivers, key=lambda each: each.poll() is None)
    message = output(loser)
    assert message.startswith(f"JobRunningError: job {JOB!r} is being run by another driver"), (
        message
    )
    assert f":{winner.pid}," in message

    fault_server.stop(signal.SIGINT)
    fault_server.start()
    # Who is quicker has the job, so the newcomer should not be.
    watch.wait(lambda: winner.pid in watch.drivers(), what="driver")
    assert "JobRunningError" in output(start(records))

    with watch.closed_gate():
        watch.wait_for_commits(1)
        kill([psutil.Process(winner.pid)])
    started_s = time.monotonic()
    last = start(records)
    watch.wait(lambda: bool(watch.drivers() - {winner.pid}), what="driver")
    claimed_s = time.monotonic() - started_s
    watch.wait_for_sources(5)
    print(
        f"a driver started again has the job after {claimed_s:.2f} s and commits after "
        f"{time.monotonic() - started_s:.2f} s"
    )
    gate.touch()
    assert output(last).strip().endswith("finished")
    check_output(watch, records)
