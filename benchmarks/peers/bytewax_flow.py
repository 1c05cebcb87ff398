"""Bytewax in one process: the cases in batch, and S1 with recovery, all with Python functions.

In S1 it takes a snapshot every second, and its text files may have a row twice after a failure.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.peers.events import add, parse
from benchmarks.task import Task
from benchmarks.workloads import BASE_MS, WATERMARK_BOUND_S

#: Before every event, and a whole window.
ORIGIN_MS = BASE_MS - 100 * WINDOW_MS
NEVER_LATE = timedelta(days=2)
EPOCH = timedelta(seconds=1)
LINES_PER_TURN = 1_000

Event = tuple[int, int, int]
Totals = tuple[int, int]
Visit = tuple[int, int, int, int]


def event_time(event: Event) -> datetime:
    """The event time of an event, as the datetime that Bytewax wants."""
    return datetime.fromtimestamp(event[1] / 1_000, UTC)


def _no_clock(_: datetime) -> None:
    return None


def clock(case: str) -> Any:
    """Event time only: past events must not be compared with the system's clock."""
    wait = timedelta(seconds=WATERMARK_BOUND_S) if case == "S1" else NEVER_LATE
    return windowing.EventClock(event_time, wait, to_system_utc=_no_clock)


def by_window(keyed: Any, case: str) -> Any:
    """B2, B3 and S1."""
    origin = datetime.fromtimestamp(ORIGIN_MS / 1_000, UTC)
    length, period_ms = timedelta(milliseconds=WINDOW_MS), WINDOW_MS
    windower: Any = windowing.TumblingWindower(length=length, align_to=origin)
    if case == "B3":
        period_ms = PERIOD_MS
        windower = windowing.SlidingWindower(
            length=length, offset=timedelta(milliseconds=period_ms), align_to=origin
        )

    def fold(totals: Totals, event: Event) -> Totals:
        return totals[0] + 1, totals[1] + event[2]

    found = windowing.fold_window(
        "total", keyed, clock(case), windower, lambda: (0, 0), fold, add, ordered=False
    )

    def row(item: Any) -> tuple[str, str]:
        user, (number, (count, total)) = item
        return user, f"{user},{ORIGIN_MS + number * period_ms},{count},{total}"

    return op.map("row", found.down, row)


def by_session(keyed: Any) -> Any:
    """B4."""

    def merge(one: Visit | None, other: Visit | None) -> Visit | None:
        if one is None or other is None:
            return one or other
        first, last = min(one[0], other[0]), max(one[1], other[1])
        return first, last, one[2] + other[2], one[3] + other[3]

    def fold(visit: Visit | None, event: Event) -> Visit | None:
        return merge(visit, (event[1], event[1], 1, event[2]))

    windower = windowing.SessionWindower(gap=timedelta(milliseconds=GAP_MS))
    found = windowing.fold_window(
        "total", keyed, clock("B4"), windower, lambda: None, fold, merge, ordered=False
    )

    def row(item: Any) -> tuple[str, str]:
        user, (_, (first_ms, last_ms, count, total)) = item
        return user, f"{user},{first_ms},{last_ms + GAP_MS},{count},{total}"

    return op.map("row", found.down, row)


def everything(events: Any) -> Any:
    """B1."""
    even = op.filter("even", events, lambda event: event[2] % 2 == 0)
    tripled = op.map("triple", even, lambda event: ("all", (1, event[2] * 3)))
    total = op.reduce_final("total", tripled, add)
    return op.map("row", total, lambda pair: (pair[0], f"{pair[1][0]},{pair[1][1]}"))


def count_words(lines: Any) -> Any:
    """B5."""
    words = op.flat_map("split", lines, lambda line: line.split(" "))
    counts = op.count_final("count", words, lambda word: word)
    return op.map("row", counts, lambda pair: (pair[0], f"{pair[0]},{pair[1]}"))


def flow(task: Task) -> Any:
    """The whole program."""
    whole = Dataflow("benchmark")
    # The files are read by turns: a turn that is long in event time would make the other file late.
    lines_per_turn = max(1, min(LINES_PER_TURN, task.size // LINES_PER_TURN))
    lines = op.input("read", whole, DirSource(Path(task.two), batch_size=lines_per_turn))
    if task.case == "B5":
        rows = count_words(lines)
    elif task.case == "B1":
        rows = everything(op.map("parse", lines, parse))
    else:
        keyed = op.key_on("key", op.map("parse", lines, parse), lambda each: str(each[0]))
        rows = by_session(keyed) if task.case == "B4" else by_window(keyed, task.case)
    op.output("write", rows, DirSink(task.rows, 2))
    return whole


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    task.rows.mkdir()
    recovery = None
    if task.case == "S1":
        init_db_dir(task.scratch, 1)
        recovery = RecoveryConfig(str(task.scratch))
    with task.measured():
        cli_main(
            flow(task),
            epoch_interval=EPOCH if recovery else None,
            recovery_config=recovery,
        )


if __name__ == "__main__":
    main()
