"""The deployments of `deploy`, one after the other, each killed: the job goes on, and every point counts once.

What starts a driver here is what the files say: its command and variables, by an installed wheel in a folder that has
the pipeline alone.  What containers, kubelets and systemd add (users, limits, networks) is not here.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests import deployments
from tests.deployments import DEPLOY, KILLED, Driver
from tests.processes import descendants, in_a_group, is_gone, kill
from tests.waiting import RUN_MAX_S, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(RUN_MAX_S),
]

LINES = 30


class Installation:
    """An installed wheel, the pipeline of `deploy`, a folder for its files, and its store."""

    def __init__(
        self, installed: Path, connection: psycopg.Connection[Any], dsn: str, folder: Path
    ) -> None:
        self._programs, self._connection, self._dsn = installed, connection, dsn
        self._folder = folder
        self.app, self.files = folder / "app", folder / "files"
        shutil.copytree(DEPLOY / "app", self.app)
        self.files.mkdir()
        self.log = folder / "log"
        self.points = 0

    def environment(self, driver: Driver) -> Mapping[str, str]:
        """What a system gives the driver, with the places of this test."""
        outside = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONPATH" and not name.startswith("DATAFLOW_")
        }
        return {
            **outside,
            **driver.environment,
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "DATAFLOW_STORE": self._dsn,
            "DATAFLOW_STATE_DIR": str(self._folder / "state"),
            "SCORES": str(self.files),
        }

    def words(self, driver: Driver, command: Sequence[str]) -> list[str]:
        """A command of a driver in its folder and with its variables, and with no others."""
        variables = [f"{name}={value}" for name, value in self.environment(driver).items()]
        return ["env", "-i", f"--chdir={self.app}", *variables, *command]

    def put(self) -> None:
        """Have a file with points appear, whole; each later than the one before."""
        number = len(list(self.files.iterdir()))
        lines = ["team,points,at"]
        for second in range(LINES):
            points = 1 + (number * LINES + second) % 9
            self.points += points
            at = f"2026-03-02T12:{number:02d}:{second:02d}Z"
            lines.append(f"{('red', 'blue')[second % 2]},{points},{at}")
        hidden = self._folder / "hidden.csv"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(self.files / f"scores-{number:03d}.csv")

    def total(self) -> int:
        """The sum of the table."""
        if self._connection.execute("SELECT to_regclass('points')").fetchone() == (None,):
            return 0
        row = self._connection.execute("SELECT coalesce(sum(points), 0) FROM points").fetchone()
        assert row is not None
        return int(row[0])

    def probe(self, driver: Driver) -> int:
        """The exit status of the probe."""
        return subprocess.run(
            self.words(driver, driver.probe), check=False, capture_output=True
        ).returncode

    def is_refused(self, driver: Driver) -> bool:
        """Whether the probe complains."""
        return self.probe(driver) != 0

    def until_counted(self, driver: Driver, family: psutil.Process) -> None:
        """Wait until all points are in the table, and the probe is content."""

        def complaint() -> str:
            return f"{self.total()} of {self.points}: {self.log.read_text('utf-8', 'replace')[-3_000:]}"

        until(lambda: self.total() == self.points or is_gone(family), complaint)
        assert self.total() == self.points, complaint()
        until(lambda: self.probe(driver) == 0, complaint)


@pytest.mark.nightly
def test_a_job_goes_from_one_deployment_to_the_next(
    installed: Path, store_dsn: str, tmp_path: Path
) -> None:
    """Started by compose, killed, and started again; killed, and taken over by Kubernetes, then systemd; stopped."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        _hand_over(Installation(installed, connection, store_dsn, tmp_path))


def _hand_over(here: Installation) -> None:
    first, second, third = (
        deployments.of_compose(),
        deployments.of_kubernetes(),
        deployments.of_systemd(),
    )
    here.put()
    for driver in (first, first, second):
        with in_a_group(here.words(driver, driver.command), here.log) as family:
            here.until_counted(driver, family)
            here.put()
            here.until_counted(driver, family)
            kill([family, *descendants(family)])
        assert driver.restarts(KILLED)
        until(partial(here.is_refused, driver), here.log.read_text)
        # What comes while nobody runs the job is not lost.
        here.put()
    with ExitStack() as ending:
        family = ending.enter_context(in_a_group(here.words(third, third.command), here.log))
        here.until_counted(third, family)
        below = descendants(family)
        family.send_signal(signal.Signals[third.stop_signal])
        # The supervisor of a session does not wait for it, so it stays a zombie until the end of this block.
        until(lambda: is_gone(family), here.log.read_text)
        _, alive = psutil.wait_procs(below, timeout=60)
        assert alive == []
    assert "interrupted: what job 'scores' has committed stays" in here.log.read_text("utf-8")
    assert here.total() == here.points


def test_a_job_that_was_drained_is_left_alone_by_systemd() -> None:
    driver = deployments.of_systemd()
    assert [driver.restarts(status) for status in (0, 1, 2, 130, KILLED)] == [
        False,
        True,
        True,
        True,
        True,
    ]
