"""Faults injected into a running job from outside, and how long its output takes to recover."""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise

import attrs
import psutil

from benchmarks.latency import Line, percentile
from benchmarks.scale.jobs import owners
from benchmarks.scale.latency_job import JOB, start_file
from benchmarks.scale.load import read_start_us
from benchmarks.stores import Server
from benchmarks.task import Task
from runners.registry import open_store
from windowing.timestamps import US_PER_SECOND

READER, COUNTER, RESTART, CRASH = "kill-reader", "kill-counter", "restart-postgres", "kill-postgres"
#: The faults, described for people.
NAMES = {
    READER: "kill -9 of the worker that reads",
    COUNTER: "kill -9 of a worker that does not",
    RESTART: "restart of Postgres",
    CRASH: "kill -9 of Postgres",
}
#: Within how many seconds the job has to have recovered.
LIMITS_S = {READER: 5.0, COUNTER: 5.0, RESTART: 10.0, CRASH: 10.0}
_SOURCE = "read["
#: Percentiles are taken over the records that were created within this time.
_WINDOW_US = US_PER_SECOND
_STEP_US = US_PER_SECOND // 20
#: Of these, so many percent have to be within the bound.
_PERCENT = 95
_POLL_S = 0.02


@attrs.frozen
class Strike:
    """A fault that was injected: when, and, for a fault of the server, how long until it could be used again."""

    at_us: int
    server_s: float | None = None


def strike(fault: str, server: Server, task: Task, ended: Callable[[], bool]) -> Strike | None:
    """Inject a fault when the job has warmed up.  None: the job had ended before."""
    while True:
        start_us = read_start_us(start_file(task))
        if start_us is not None and time.time() >= start_us / US_PER_SECOND + task.warm_up_s:
            break
        if ended():
            return None
        time.sleep(_POLL_S)
    if fault in (READER, COUNTER):
        process = psutil.Process(_victim(task, reads=fault == READER))
        at_us = time.time_ns() // 1_000
        process.kill()
        return Strike(at_us)
    at_us, at_s = time.time_ns() // 1_000, time.monotonic()
    server.restart(signal.SIGKILL if fault == CRASH else signal.SIGINT)
    return Strike(at_us, round(time.monotonic() - at_s, 2))


def _victim(task: Task, *, reads: bool) -> int:
    with closing(open_store(task.store)) as store:
        found = owners(store, JOB)
    reader = next(pid for name, pid in found.items() if name.startswith(_SOURCE))
    return reader if reads else next(pid for pid in found.values() if pid != reader)


@attrs.frozen(kw_only=True)
class Recovery:
    """From a fault on.

    ``before_ms``: what 95 % of the latencies were before it.  ``silent_s``: the longest time without a commit.
    ``recovered_s``: until what is created is committed within the bound again; None: it never was.
    ``most_ms``: the longest latency.
    """

    before_ms: float
    silent_s: float
    recovered_s: float | None
    most_ms: float


def recovery(lines: Sequence[Line], struck_us: int, *, warm_us: int, bound_ms: float) -> Recovery:
    """Compute the recovery from the lines of a run.

    Args:
        lines: of all records: user, count, created, committed.
        struck_us: when the fault was injected.
        warm_us: what was created before does not count.
        bound_ms: a job has recovered when it commits 95 % of what is created within a second as fast as this.
    """
    found = sorted((created, committed) for _, _, created, committed in lines if created >= warm_us)
    before = [(b - a) / 1_000 for a, b in found if b < struck_us]
    after = [(a, b) for a, b in found if b >= struck_us]
    commits = sorted([struck_us, *(b for _, b in after)])
    gaps_us = [later - earlier for earlier, later in pairwise(commits)]
    return Recovery(
        before_ms=round(percentile(sorted(before), _PERCENT), 1) if before else 0.0,
        silent_s=round(max(gaps_us, default=0) / US_PER_SECOND, 2),
        recovered_s=_recovered_s(after, struck_us, bound_ms),
        most_ms=round(max((b - a for a, b in after), default=0) / 1_000, 1),
    )


def _recovered_s(after: Sequence[tuple[int, int]], struck_us: int, bound_ms: float) -> float | None:
    last_us = after[-1][0] if after else struck_us
    for from_us in range(struck_us, last_us - _WINDOW_US, _STEP_US):
        latencies_ms = sorted(
            (b - a) / 1_000 for a, b in after if from_us <= a < from_us + _WINDOW_US
        )
        if latencies_ms and percentile(latencies_ms, _PERCENT) <= bound_ms:
            return round((from_us - struck_us) / US_PER_SECOND + bound_ms / 1_000, 2)
    return None
