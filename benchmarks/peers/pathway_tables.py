"""Pathway in one process with two threads: the cases in batch, by its own operators but for splitting lines."""

import csv
from os import environ
from pathlib import Path
from typing import Any

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.task import Task

environ["PATHWAY_THREADS"] = "2"  # read when Pathway is imported

import pathway as pw


class Event(pw.Schema):  # type: ignore[misc]
    """A line."""

    user_id: int
    event_time: int
    value: int


def windowed(events: Any, case: str) -> Any:
    """B2 to B4; a session of Pathway joins what is exactly a gap apart, hence the millisecond less."""
    windows = {
        "B2": lambda: pw.temporal.tumbling(duration=WINDOW_MS),
        "B3": lambda: pw.temporal.sliding(hop=PERIOD_MS, duration=WINDOW_MS),
        "B4": lambda: pw.temporal.session(max_gap=GAP_MS - 1),
    }
    grouped = events.windowby(events.event_time, window=windows[case](), instance=events.user_id)
    columns = {"user_id": pw.this._pw_instance, "start_ms": pw.this._pw_window_start}  # noqa: SLF001 - its names
    if case == "B4":
        columns["end_ms"] = pw.this._pw_window_end + GAP_MS  # noqa: SLF001 - as above
    return grouped.reduce(**columns, count=pw.reducers.count(), sum=pw.reducers.sum(pw.this.value))


def answer(task: Task) -> Any:
    """The table of a case."""
    if task.case == "B5":
        lines = pw.io.plaintext.read(task.two, mode="static")
        split = pw.apply_with_type(lambda line: tuple(line.split(" ")), tuple[str, ...], lines.data)
        words = lines.select(word=split).flatten(pw.this.word)
        return words.groupby(words.word).reduce(words.word, count=pw.reducers.count())
    events = pw.io.jsonlines.read(task.two, schema=Event, mode="static")
    if task.case == "B1":
        even = events.filter(events.value % 2 == 0)
        tripled = even.select(value=even.value * 3)
        return tripled.reduce(count=pw.reducers.count(), sum=pw.reducers.sum(tripled.value))
    return windowed(events, task.case)


def plain_rows(changes: Path, rows: Path) -> None:
    """Pathway writes a header, and with each row when it came and whether it stays; the check wants rows only."""
    with changes.open(newline="") as source, rows.open("w", newline="") as target:
        _, *lines = csv.reader(source)
        csv.writer(target, lineterminator="\n").writerows(line[:-2] for line in lines)
    changes.unlink()


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    task.rows.mkdir()
    changes = task.scratch / "changes.csv"
    with task.measured():
        pw.io.csv.write(answer(task), str(changes))
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    plain_rows(changes, task.rows / "rows.csv")


if __name__ == "__main__":
    main()
