"""Run a program in a process of its own, and measure the processor time and the memory of all that it starts.

Both are sampled five times a second, so processor time is known for a part of the run too, to a fifth of a second.
Memory is the sum of the resident sizes of the tree; pages that processes share count in each.  Processor time is what
each process had used when it was last seen.  Servers that serve the program but are not its children (Postgres) are
named beside it, and count with what they use meanwhile.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import psutil

_LOOK_INTERVAL_S = 0.2


@attrs.frozen(kw_only=True)
class Usage:
    """What a run took: on the clock, of processors, and of memory at its peak.

    ``samples``: by the clock of the machine, in seconds, the processor time until then.
    """

    wall_s: float
    rss_bytes: int
    returncode: int
    is_timeout: bool
    samples: Sequence[tuple[float, float]]

    @property
    def cpu_s(self) -> float:
        """Processor time of the whole run, in seconds."""
        return self.samples[-1][1] if self.samples else 0.0

    def cpu_between_s(self, begin_s: float, end_s: float) -> float:
        """Processor time of a part of the run, by the clock of the machine, in seconds."""
        return self._cpu_until_s(end_s) - self._cpu_until_s(begin_s)

    def _cpu_until_s(self, now_s: float) -> float:
        before_s, before_cpu_s = self.samples[0] if self.samples else (now_s, 0.0)
        for at_s, cpu_s in self.samples:
            if at_s >= now_s:
                share = (now_s - before_s) / (at_s - before_s) if at_s > before_s else 1.0
                return before_cpu_s + (cpu_s - before_cpu_s) * max(share, 0.0)
            before_s, before_cpu_s = at_s, cpu_s
        return before_cpu_s


class Watch:
    """Sums up a process, its descendants, and some servers."""

    def __init__(self, pid: int, servers: Sequence[int]) -> None:
        self._pid, self._servers = pid, servers
        self._servers_before_s = sum(map(server_cpu_s, servers))
        self._cpu_s: dict[tuple[int, float], float] = {}
        self.samples: list[tuple[float, float]] = []
        self.rss_bytes = 0

    def look(self) -> None:
        """Look at the processes once."""
        rss_bytes = 0
        for process in family(self._pid):
            with contextlib.suppress(psutil.Error), process.oneshot():
                rss_bytes += process.memory_info().rss
                times = process.cpu_times()
                self._cpu_s[process.pid, process.create_time()] = times.user + times.system
        for server in self._servers:
            for process in family(server):
                with contextlib.suppress(psutil.Error):
                    rss_bytes += process.memory_info().rss
        self.rss_bytes = max(self.rss_bytes, rss_bytes)
        servers_s = sum(map(server_cpu_s, self._servers)) - self._servers_before_s
        self.samples.append((time.time(), sum(self._cpu_s.values()) + servers_s))


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants that live now."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def server_cpu_s(pid: int) -> float:
    """Processor time of a server since it started, with its living children and those that it has collected."""
    total = 0.0
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
            if process.pid == pid:
                total += times.children_user + times.children_system
    return total


def run(
    command: Sequence[str], *, log: Path, cwd: Path, timeout_s: float, servers: Sequence[int] = ()
) -> Usage:
    """Run a program to its end, or to the timeout, and return what it used.

    Args:
        command: the program and its arguments.
        log: the file for its output.
        cwd: its working directory, which is also its ``PYTHONPATH``.
        timeout_s: in seconds; it is stopped then.
        servers: ids of processes that serve it without being its children; they count with what they use meanwhile.
    """
    started_s = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(cwd)},
        )
    watch, over = Watch(process.pid, servers), threading.Event()

    def keep_looking() -> None:
        watch.look()
        while not over.wait(_LOOK_INTERVAL_S):
            watch.look()

    looking = threading.Thread(target=keep_looking, daemon=True)
    looking.start()
    try:
        process.wait(timeout_s)
        is_timeout = False
    except subprocess.TimeoutExpired:
        is_timeout = True
    finally:
        # Its own session only: what it has left behind, and itself when it has to be stopped.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wall_s = time.perf_counter() - started_s
        over.set()
        looking.join()
    return Usage(
        wall_s=wall_s,
        rss_bytes=watch.rss_bytes,
        returncode=process.returncode,
        is_timeout=is_timeout,
        samples=watch.samples,
    )
