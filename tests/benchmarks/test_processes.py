"""What a run took is what it took, its children's share with it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import environments, processes
from benchmarks.peers.registry import Peer
from tests.waiting import until

ROOT = Path(__file__).parents[2]

CPU_S = 0.6
BURN = f"""
import time
data = b"x" * (64 << 20)
while time.process_time() < {CPU_S}:
    pass
time.sleep(2)
"""
#: The work is done by a child, which is seen only while it lives: also by who looks late, on a busy machine.
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"


@pytest.mark.slow
def test_work_of_a_child_counts(tmp_path: Path) -> None:
    usage = processes.run(
        [sys.executable, "-c", IN_A_CHILD], log=tmp_path / "log", cwd=tmp_path, timeout_s=60
    )

    assert usage.returncode == 0
    assert not usage.is_timeout
    assert CPU_S * 0.9 <= usage.cpu_s < CPU_S + 2
    assert usage.wall_s >= CPU_S
    assert usage.rss_bytes > 64 << 20


@pytest.mark.slow
def test_what_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    marked = f"import time; time.sleep(98)  # {tmp_path}"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {marked!r}])"

    usage = processes.run(
        [sys.executable, "-c", nested], log=tmp_path / "log", cwd=tmp_path, timeout_s=0.7
    )

    assert usage.is_timeout
    assert usage.returncode != 0
    # A process that was sent SIGKILL lives until it is given a processor once more.
    deadline_s = time.monotonic() + 30
    while alive := [
        each for each in psutil.process_iter(["cmdline", "status"]) if _runs(each, marked)
    ]:
        assert time.monotonic() < deadline_s, alive
        time.sleep(0.05)


def test_processor_time_of_a_part_is_what_was_seen_meanwhile() -> None:
    usage = processes.Usage(
        wall_s=4, rss_bytes=0, returncode=0, is_timeout=False,
        samples=[(10.0, 0.0), (11.0, 1.0), (12.0, 1.0), (13.0, 4.0)],
    )  # fmt: skip

    assert usage.cpu_s == 4.0
    assert usage.cpu_between_s(10.5, 12.5) == pytest.approx(2.0)
    assert usage.cpu_between_s(0.0, 100.0) == pytest.approx(4.0)
    assert usage.cpu_between_s(11.0, 12.0) == pytest.approx(0.0)


@pytest.mark.slow
def test_a_peer_that_cannot_be_had_is_reported_in_one_line(tmp_path: Path) -> None:
    peer = Peer(name="nobody", module="m", cases=(), requirements=("nobody @ file:///nowhere",))

    with pytest.raises(environments.UnavailableError, match="nobody cannot be had here") as caught:
        environments.interpreter(peer, tmp_path)

    assert "\n" not in str(caught.value)


def test_a_peer_without_requirements_runs_here(tmp_path: Path) -> None:
    peer = Peer(name="here", module="m", cases=())

    assert environments.interpreter(peer, tmp_path) == sys.executable


def _runs(process: psutil.Process, code: str) -> bool:
    is_zombie = process.info["status"] == psutil.STATUS_ZOMBIE
    return not is_zombie and code in (process.info["cmdline"] or [])


def _is_running(pid: int) -> bool:
    """Tell whether a process has not ended, also where nobody waits for orphans (a container without an init)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_command_that_is_terminated_ends_what_it_has_started(tmp_path: Path) -> None:
    sleeping = (
        "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(98)"
    )
    program = f"""
from pathlib import Path
import sys
from benchmarks.processes import run
from benchmarks.recording import ended_by_signal

path = Path(sys.argv[1])
with ended_by_signal():
    run([sys.executable, "-c", {sleeping!r}, sys.argv[1]], log=path.with_name("log"), cwd=path.parent, timeout_s=98)
"""
    started = tmp_path / "pid"
    command = subprocess.Popen([sys.executable, "-c", program, str(started)], cwd=ROOT)
    until(lambda: started.exists() and started.read_text() != "")

    command.terminate()

    assert command.wait(60) == 128 + signal.SIGTERM
    until(lambda: not _is_running(int(started.read_text())))
