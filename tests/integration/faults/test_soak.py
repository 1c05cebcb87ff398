"""The soak as people run it, for three minutes: every kind of fault, right answers, and an outcome in words."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak.faults import FAULTS

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(900)
def test_answers_are_right_after_every_fault() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "3", "--pause", "3"]
    done = subprocess.run(
        [*command, "--rate", "300", "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )

    assert "every total and every count is right" in done.stdout, done.stdout + done.stderr
    made = {line.partition(" s  ")[2] for line in done.stdout.splitlines()}
    assert {*FAULTS} - {"disk full"} <= made, done.stdout
    # So short a time has no third that is like the one before: growth is printed, and decides nothing here.
    assert "| workers MiB |" in done.stdout
