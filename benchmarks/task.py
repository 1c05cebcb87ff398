"""The task that a program under test is given, and the report of how long it took.

A program is started as ``python -m MODULE TASK``, where TASK is this as JSON.  It leaves its answer as text files with
comma-separated rows below ``rows``, and `Task.report` reports everything else.
Imports nothing but the standard library, as `benchmarks.workloads`.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Task(NamedTuple):
    """One run.

    ``case``, ``size``: what, and of how many records.  ``two``, ``stream``: its input, see `workloads.Dataset`.
    ``out``: a folder of its own that is empty, and is deleted when the answer has been checked.
    ``store``: DSN of an empty database, for programs that need one.
    ``variant``: of the program; each knows its own.
    ``rate``, ``seconds``, ``warm_up_s``: of cases of latency: events a second, for how long after warming up.
    ``workers``, ``ranges``, ``keys``: of cases of scale: how many, of each grouping; keys are those that have state.
    ``value_bytes``, ``cache_bytes``: how large a value is, and how much state a worker keeps in memory, -1: all.
    """

    case: str
    size: int
    out: str
    two: str = ""
    stream: str = ""
    store: str = ""
    variant: str = ""
    rate: int = 0
    seconds: int = 0
    warm_up_s: int = 0
    workers: int = 0
    ranges: int = 0
    keys: int = 0
    value_bytes: int = 0
    cache_bytes: int = 0

    @classmethod
    def from_command_line(cls) -> "Task":
        """The task that this process was started for."""
        return cls(**json.loads(sys.argv[1]))

    def to_argument(self) -> str:
        """The task as an argument of the command line."""
        return json.dumps(self._asdict())

    @property
    def rows(self) -> Path:
        """The folder for the answer; it is not created here."""
        return Path(self.out, "rows")

    @property
    def scratch(self) -> Path:
        """A folder for checkpoints and the like; it is created here."""
        path = Path(self.out, "scratch")
        path.mkdir(exist_ok=True)
        return path

    @property
    def records(self) -> int:
        """The number of records in a case of latency."""
        return self.rate * (self.warm_up_s + self.seconds)

    @property
    def report_path(self) -> Path:
        """Where the report goes."""
        return Path(self.out, "report.json")

    def report(self, **figures: Any) -> None:
        """Report what was measured; for throughput ``seconds``, and ``began_s`` on the clock of the machine."""
        self.report_path.write_text(json.dumps(figures), "utf-8")

    def reported(self) -> dict[str, Any]:
        """Read the report that the run has written."""
        found: dict[str, Any] = json.loads(self.report_path.read_text("utf-8"))
        return found

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Report when the block began, and how long it took."""
        began_s, started_s = time.time(), time.perf_counter()
        yield
        self.report(seconds=time.perf_counter() - started_s, began_s=began_s)
