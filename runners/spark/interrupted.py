"""Interruptions: what they say of a job that is in a store, and where they have to wait."""

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from dataflow.interruption import if_interrupted


def stays_in_store(job: str) -> AbstractContextManager[None]:
    """Have an interruption meanwhile say that the job's commits stay.

    Args:
        job: its name.
    """
    return if_interrupted(
        f"what job {job!r} has committed stays; run it again to go on, or delete it: "
        f"dataflow forget {shlex.quote(job)} --yes"
    )


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Have an interruption wait until this is over: in the middle of a call of Java, py4j would log a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: deferred.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if deferred:
        raise KeyboardInterrupt
