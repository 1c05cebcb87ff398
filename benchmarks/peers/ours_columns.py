"""This project over typed rows: the same cases with built-in combiners, in columns wherever the runners can."""

from datetime import datetime
from typing import NamedTuple

import dataflow as df
from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.peers import ours_columns_latency, ours_nexmark, ours_nexmark_latency
from benchmarks.peers.ours import run
from benchmarks.peers.ours_pipelines import TABLE
from benchmarks.peers.ours_session import warm_context
from benchmarks.task import Task
from benchmarks.workloads import WATERMARK_BOUND_S

_IN_MS = "(extract(epoch FROM {}) * 1000)::bigint"
#: What the columns of the answers are in the table.
_SELECTED = {"start_ms": _IN_MS.format("start"), "end_ms": _IN_MS.format('"end"')}
WINDOWS: dict[str, df.WindowFn] = {
    "B2": df.FixedWindows(WINDOW_MS / 1_000),
    "B3": df.SlidingWindows(WINDOW_MS / 1_000, period=PERIOD_MS / 1_000),
    "B4": df.Sessions(GAP_MS / 1_000),
    "S1": df.FixedWindows(WINDOW_MS / 1_000),
}


class Event(NamedTuple):
    """A line."""

    user_id: int
    event_time: int
    value: int


def build(p: df.Pipeline, task: Task) -> None:
    """The whole pipeline of a case."""
    events = p | "read" >> df.ReadFromJsonLines(
        f"{task.two}/*.jsonl",
        rows=Event,
        event_time="event_time",
        event_time_unit="ms",
        max_disorder=WATERMARK_BOUND_S if task.case == "S1" else None,
    )
    if task.case == "B1":
        columns: dict[str, type] = {"count": int, "sum": int}
        even = events | df.Filter(df.col("value") % 2 == 0)
        rows = even | df.Select(value=3 * df.col("value")) | _totals()
    else:
        rows = events | df.WindowInto(WINDOWS[task.case]) | _totals("user_id")
        rows = rows | df.WindowStart("start")
        columns = {"user_id": int, "start": datetime, "count": int, "sum": int}
        if task.case == "B4":
            rows = rows | df.WindowEnd("end")
            columns["end"] = datetime
    rows | df.WriteToPostgres(TABLE, columns=columns)


def _totals(*keys: str) -> df.GroupBy:
    counted = df.GroupBy(*keys).aggregate_field("value", df.CountCombineFn(), "count")
    return counted.aggregate_field("value", sum, "sum")


if __name__ == "__main__":
    asked = Task.from_command_line()
    if asked.case == "S2":
        warm_context()
        ours_columns_latency.run(asked)
    elif asked.case in NEXMARK_LATENCY:
        warm_context()
        ours_nexmark_latency.run(asked, in_columns=True)
    elif asked.case in NEXMARK:
        run(asked, ours_nexmark.build_columns, ours_nexmark.selected(asked.case))
    else:
        run(asked, build, _SELECTED)
