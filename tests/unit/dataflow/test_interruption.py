"""What an interrupted run shows where nobody catches it: one line, and everything else as before."""

import subprocess
import sys

import pytest

from dataflow.interruption import InterruptedRun, if_interrupted

PROGRAM = """
import atexit, sys
from dataflow.interruption import if_interrupted

atexit.register(print, "stopped as ever")
kind = {"interrupted": KeyboardInterrupt, "failed": ValueError}[sys.argv[1]]
with if_interrupted("outer"), if_interrupted("all of it stays"):
    try:
        with if_interrupted("what was there stays"):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    raise kind("a text")
"""


def run(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_it_is_one_line_and_the_program_ends_as_ever() -> None:
    done = run("interrupted")
    assert (130, "interrupted: all of it stays\n") == (done.returncode, done.stderr)
    assert done.stdout == "stopped as ever\n"


@pytest.mark.slow
def test_other_errors_are_shown_as_before() -> None:
    """Also when an interruption was caught before."""
    done = run("failed")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ValueError: a text\n")


def test_notebooks_show_the_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)  # put back at the end
    with pytest.raises(KeyboardInterrupt) as caught, if_interrupted("it stays"):
        raise KeyboardInterrupt
    assert isinstance(caught.value, InterruptedRun)
    assert caught.value._render_traceback_() == ["interrupted: it stays"]
