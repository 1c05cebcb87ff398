"""Looking at processes that come and go, and ending them."""

import signal
from collections.abc import Sequence

import psutil


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Everything below a process that is alive."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def spark_workers(driver: psutil.Process) -> list[psutil.Process]:
    """The Python processes that run Spark's tasks: forked by a daemon, ours or, on a cluster, Spark's."""
    names = ("runners.python_daemon", "pyspark.daemon")
    daemons = {
        each.pid: each
        for each in descendants(driver)
        if any(name in _command(each) for name in names)
    }
    return [each for each in daemons.values() if _parent(each) in daemons]


def kill(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL, and wait until they are gone."""
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=10)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie counts as gone
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0
