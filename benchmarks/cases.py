"""What is measured: each case, its input, and the rows that are its answer.

Imports nothing but the standard library, as `benchmarks.workloads`.
"""

from pathlib import Path
from typing import NamedTuple

from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.nexmark import NexmarkCase
from benchmarks.workloads import Dataset, event_files, text_files

WINDOW_MS = 60_000
PERIOD_MS = 10_000
#: Two events of a user that are so far apart, or further, are of two sessions.
GAP_MS = 30_000


class Case(NamedTuple):
    """One.

    ``columns``: of a row of the answer.  ``text``: those of them that are not integers.
    ``title``: what it does, for people.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    text: tuple[str, ...] = ()
    reads_text: bool = False

    def dataset(self, data: Path, size: int) -> Dataset:
        """The input of the case with so many records; made if it is not there."""
        make = text_files if self.reads_text else event_files
        return make(data, size)


_BY_WINDOW = ("user_id", "start_ms", "count", "sum")

#: Cases that end, and whose time is the measure.
THROUGHPUT: dict[str, Case | NexmarkCase] = {
    case.name: case
    for case in (
        Case("B1", "map, filter, count and sum of everything", ("count", "sum")),
        Case("B2", "count and sum by user and minute", _BY_WINDOW),
        Case("B3", "the same over a minute, every ten seconds", _BY_WINDOW),
        Case("B4", "by sessions of 30 seconds", ("user_id", "start_ms", "end_ms", "count", "sum")),
        Case("B5", "count of words", ("word", "count"), text=("word",), reads_text=True),
        Case("S1", "B2 as a stream, exactly once", _BY_WINDOW),
    )
} | NEXMARK
#: Cases whose measure is how long a record takes, at a rate.
LATENCY = {
    "S2": "one shuffle and a stateful row for each record, from its creation until the row is committed",
    "LAG": "a chain of stages; how far the watermark of each is behind the clock (figure 15)",
} | {
    name: f"{case.query.title}, from when a row is complete until it is committed"
    for name, case in NEXMARK_LATENCY.items()
}
