"""Code in a process of its own, forked for it, so that the end of that process is observed and survived."""

import ctypes
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable

from dataflow.errors import TransformError
from dataflow.times import in_words
from runners.system_clock import SystemClock

#: Between two looks, where the system cannot report that a process has ended.
_LOOK_INTERVAL_MS = 20
_PR_SET_PDEATHSIG = 1


def fork() -> int:
    """Fork this process, by `os.fork`; the child ends with its parent, where the system can do that (Linux)."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # What runs in the child is user code and an exit: no lock of another thread of ours is taken.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0 and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    return pid


def wait_for(pid: int, timeout_ms: float | None) -> int | None:
    """The status of a child that has ended; None: it has not, after this time.

    Args:
        pid: of the child.
        timeout_ms: how long to wait, in milliseconds; None: until it ends.
    """
    deadline = None if timeout_ms is None else SystemClock().monotonic_ms() + timeout_ms
    if timeout_ms is None:
        return os.waitpid(pid, 0)[1]
    assert deadline is not None
    while True:
        left_ms = deadline - SystemClock().monotonic_ms()
        _wait_a_little(pid, max(0.0, left_ms))
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if left_ms <= 0:
            return None


def _wait_a_little(pid: int, left_ms: float) -> None:
    if not hasattr(os, "pidfd_open"):
        select.select([], [], [], min(left_ms, _LOOK_INTERVAL_MS) / 1_000)
        return
    opened = os.pidfd_open(pid)
    try:
        select.select([opened], [], [], left_ms / 1_000)
    finally:
        os.close(opened)


def ending(status: int) -> str:
    """How a process has ended, as text for people."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"the process ended with signal {number} ({signal.Signals(number).name})"
    return f"the process ended with exit code {os.WEXITSTATUS(status)}"


def kill(pid: int) -> None:
    """End a child that does not end by itself."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


class ForkedTrial:
    """Runs code in a forked process first; see `runners.core.user_code.poison.Trial`.

    What the code does to objects stays there.  What it does to the world happens, as after any failure.

    Args:
        timeout_ms: how long it may take; None: as long as it likes.
        begins: called before each trial, so that a supervisor of this process knows that it lives, and that a trial has
            the time from here on.
        ends: called after each.
    """

    def __init__(
        self, timeout_ms: int | None, begins: Callable[[], None], ends: Callable[[], None]
    ) -> None:
        self._timeout_ms, self._begins, self._ends = timeout_ms, begins, ends

    def renew(self) -> None:
        """Have the supervisor know that this process lives; what it runs next has the time of a trial."""
        self._begins()
        self._ends()

    def __call__(self, run: Callable[[], object]) -> None:
        """Come back when the code has returned or raised there.

        Raises:
            TransformError: it has ended its process, or takes too long.
        """
        self._begins()
        came_back, reports = os.pipe()
        pid = fork()
        if pid == 0:
            _run_and_exit(run, reports)
        os.close(reports)
        try:
            status = wait_for(pid, self._timeout_ms)
            if status is None:
                kill(pid)
                assert self._timeout_ms is not None
                why = f"took longer than {in_words(self._timeout_ms * 1_000)}"
            elif os.read(came_back, 1):
                return
            else:
                why = ending(status)
        finally:
            os.close(came_back)
            self._ends()
        raise TransformError(
            f"user code does not return: {why}",
            detail="it was run in a process of its own, after a worker had ended at the same step",
        )


def _run_and_exit(run: Callable[[], object], reports: int) -> None:
    try:
        run()
    except Exception:  # noqa: BLE001 - it is raised again where it can be handled
        os.write(reports, b"r")
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:  # noqa: BLE001 - it would end a worker, too
        os._exit(1)
    else:
        os.write(reports, b"r")
    os._exit(0)
