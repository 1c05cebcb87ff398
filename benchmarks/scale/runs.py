"""One run of a case of scale: a fresh process and an empty database, measured, checked, and recorded."""

import sys
from collections import Counter
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import attrs

from benchmarks import latency
from benchmarks.answers import rows_below
from benchmarks.harness import Runs
from benchmarks.peers.ours_load import visitors
from benchmarks.reference import OK
from benchmarks.runs import lines_of
from benchmarks.scale import backlog_job, faults, keys_job
from benchmarks.scale.latency_job import start_file
from benchmarks.scale.load import read_start_us
from benchmarks.stores import Server
from benchmarks.tables import Result
from benchmarks.task import Task
from benchmarks.workloads import SEED, event_files, events
from windowing.timestamps import US_PER_SECOND

LATENCY, KEYS, BACKLOG, RECOVERY = "LATENCY", "KEYS", "BACKLOG", "RECOVERY"
DAY_MS = 86_400_000
_MODULES = {
    LATENCY: "benchmarks.scale.latency_job",
    RECOVERY: "benchmarks.scale.latency_job",
    KEYS: "benchmarks.scale.keys_job",
    BACKLOG: "benchmarks.scale.backlog_job",
}
#: On time, and the first pane of its window.
_ON_TIME = ("on_time", "0")


@attrs.frozen(kw_only=True)
class Settings:
    """What all runs have in common.

    ``cache``: where data are kept.  ``bound_ms``: see `faults.recovery`.
    """

    timeout_s: float
    bound_ms: float
    cache: Path


class ScaleBench:
    """Makes runs.

    Args:
        settings: of all.
        server: where they get their databases.
    """

    def __init__(self, settings: Settings, server: Server) -> None:
        self._settings, self._server = settings, server
        self._runs = Runs(server, settings.timeout_s)

    def result(self, task: Task, what: Result) -> Result:
        """Make a run.

        Args:
            task: without places.
            what: identifies the run, and is part of the result; a ``fault`` in it is injected.
        """
        if task.case == BACKLOG:
            task = task._replace(two=str(self._day(task.size).two))
        with (
            self._runs.prepared(task) as prepared,
            _Thrower(what.get("fault"), self._server, prepared) as thrower,
        ):
            module = _MODULES[prepared.case]
            usage, trouble = self._runs.measured(prepared, sys.executable, module)
            struck = thrower.ended()
            result = {"case": task.case, **what, "wall_s": round(usage.wall_s, 1)}
            if trouble := trouble or thrower.trouble:
                return result | {"check": trouble}
            return result | self._figures(prepared, struck)

    def _day(self, size: int) -> Any:
        return event_files(self._settings.cache / "data", size, span_ms=DAY_MS)

    def _figures(self, task: Task, struck: faults.Strike | None) -> Result:
        if task.case == KEYS:
            return keys_figures(task, task.reported())
        if task.case == BACKLOG:
            return backlog_figures(task, task.reported())
        lines = lines_of(task)
        check = latency.check_counts(lines, visitors(task.records, task.keys), has_all=True)
        if task.case == LATENCY:
            figures = latency.spread(latency.latencies_ms(lines, task.warm_up_s))
            return {
                **figures,
                "prepared_s": round(task.reported()["prepared_s"], 1),
                "check": check,
            }
        start_us = read_start_us(start_file(task))
        if start_us is None or struck is None:
            return {"check": "WRONG: the job had ended before the fault"}
        found = faults.recovery(
            lines,
            struck.at_us,
            warm_us=start_us + task.warm_up_s * US_PER_SECOND // 2,
            bound_ms=self._settings.bound_ms,
        )
        return {**attrs.asdict(found), "server_s": struck.server_s, "check": check}


class _Thrower:
    """Injects a fault, if there is one, from a thread of its own while the job runs."""

    def __init__(self, fault: str | None, server: Server, task: Task) -> None:
        self._over = Event()
        self._struck: faults.Strike | None = None
        #: The error that kept the fault from being injected.
        self.trouble: str | None = None
        self._thread = Thread(target=self._run, args=(fault, server, task), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def ended(self) -> faults.Strike | None:
        """The run is over; returns the fault that was injected."""
        self._over.set()
        self._thread.join()
        return self._struck

    def _run(self, fault: str | None, server: Server, task: Task) -> None:
        if fault is None:
            return
        try:
            self._struck = faults.strike(fault, server, task, self._over.is_set)
        except Exception as error:  # noqa: BLE001 - one run has failed, the others may work
            self.trouble = f"FAILED: {fault} could not be thrown: {error!r}"


def keys_figures(task: Task, report: Result) -> Result:
    """The figures that a run with many keys reports."""
    count, size = keys_job.ROUNDS, keys_job.ROUNDS * task.value_bytes
    right = [task.keys, task.keys, count, count, size, size]
    answer = report.pop("answer")
    return {**report, "check": OK if answer == right else f"WRONG: {answer}, not {right}"}


def backlog_figures(task: Task, report: Result) -> Result:
    """The figures of a run over a day; checks that every pane is there once, on time, and as plain loops compute it."""
    panes = list(rows_below(task.rows))
    late = sum(tuple(row[4:]) != _ON_TIME for row in panes)
    answer = {(int(row[0]), int(row[1])): (int(row[2]), int(row[3])) for row in panes}
    figures = {
        "seconds": round(report["seconds"], 2),
        "panes": len(panes),
        "late": late,
        "dropped": report["dropped"],
    }
    return {**figures, "check": _backlog_check(task, len(panes), answer, late + report["dropped"])}


def _backlog_check(task: Task, panes: int, answer: dict[Any, Any], late: int) -> str:
    if late:
        return f"WRONG: {late} panes or records are late"
    if panes != len(answer):
        return f"WRONG: {panes} panes of {len(answer)} windows"
    return OK if answer == day_answer(task.size) else "WRONG: other sums than those of the events"


def day_answer(size: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Count and sum of each user and window of a day of so many events."""
    counts: Counter[tuple[int, int]] = Counter()
    sums: Counter[tuple[int, int]] = Counter()
    for user_id, event_ms, value in events(size, SEED, DAY_MS):
        window = user_id, event_ms - event_ms % backlog_job.WINDOW_MS
        counts[window] += 1
        sums[window] += value
    return {window: (count, sums[window]) for window, count in counts.items()}
