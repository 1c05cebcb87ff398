"""Directories of processes that are gone are cleared away, those of the living are left alone."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.spark.trials import fork
from runners.temporary_dirs import clear_abandoned_dirs, make_temporary_dir, remove_temporary_dir

PROGRAM = """
import sys, time
from runners.temporary_dirs import make_temporary_dir
print(make_temporary_dir("test-dirs-"), flush=True)
time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def start() -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_leaves_is_cleared_away(place: Path, how: signal.Signals) -> None:
    process, directory = start()
    clear_abandoned_dirs("test-dirs-")
    assert directory.exists()
    process.send_signal(how)
    process.communicate()
    assert directory.exists()
    clear_abandoned_dirs("test-dirs-")

    assert not directory.exists()


def test_what_somebody_else_has_made_is_left_alone(place: Path) -> None:
    """It has no lock, so nobody knows whose it is."""
    foreign = place / "test-dirs-foreign"
    foreign.mkdir()
    clear_abandoned_dirs("test-dirs-")

    assert foreign.exists()


def test_a_process_clears_away_neither_its_own_nor_those_of_its_parent(place: Path) -> None:
    directory = make_temporary_dir("test-dirs-")
    clear_abandoned_dirs("test-dirs-")
    assert directory.exists()
    # To have looked at it has not dropped its lock either.
    looking = "from runners.temporary_dirs import clear_abandoned_dirs as c; c('test-dirs-')"
    subprocess.run([sys.executable, "-c", looking], check=True)
    assert directory.exists()
    pid = fork()
    if pid == 0:
        remove_temporary_dir(directory, os.getppid())
        os._exit(0)
    os.waitpid(pid, 0)
    assert directory.exists()
    remove_temporary_dir(directory, os.getpid())

    assert not directory.exists()
