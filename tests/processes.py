"""Processes that come and go: finding and ending them."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.waiting import until

#: As arguments by themselves: the command that starts Spark names the first one, too, within a setting.
_DAEMONS = frozenset(("runners.python_daemon", "pyspark.daemon"))


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Everything below a process that is alive."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def spark_workers(driver: psutil.Process) -> list[psutil.Process]:
    """The Python processes that run Spark's tasks: forked by a daemon, ours or, on a cluster, Spark's.

    Of a task that has its work done in a process of its own (`runners.streaming.supervised`), that one.
    """
    daemons = {
        each.pid: each for each in descendants(driver) if not _DAEMONS.isdisjoint(_command(each))
    }
    parents = {pid: _parent(each) for pid, each in daemons.items()}
    forked = {pid for pid, parent in parents.items() if parent in daemons}
    return [daemons[pid] for pid in forked if pid not in parents.values()]


def workers_of(driver: psutil.Process, complaint: Callable[[], str] = str) -> list[psutil.Process]:
    """The workers of a process, once there are some: those that were ended are replaced after a while.

    ``complaint``: the message if there never are any.
    """
    found: list[psutil.Process] = []

    def are_there() -> bool:
        found[:] = spark_workers(driver)
        return bool(found)

    until(are_there, complaint)
    return found


def kill(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL, and wait until they are gone."""
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=10)


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended, whoever waits for it or does not."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@contextmanager
def in_a_group(words: Sequence[str], log: Path) -> Iterator[psutil.Process]:
    """A command in a process group of its own; whatever is left of it at the end is killed."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            words,
            cwd=Path(__file__).parents[1],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        family = psutil.Process(process.pid)
        try:
            yield family
        finally:
            kill([*descendants(family), family])
            process.wait()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie counts as gone
        return []


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0
