"""The cases as pipelines of ordinary Python functions, the same for batch and stream.

Rows are appended to a table, each in the transaction that also commits the position in its input.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import attrs

import dataflow as df
from benchmarks.cases import GAP_MS, PERIOD_MS, THROUGHPUT, WINDOW_MS
from benchmarks.task import Task
from benchmarks.workloads import WATERMARK_BOUND_S
from dataflow.io.lines import LineSource
from dataflow.io.text_files import text_of

TABLE = "answers"


@attrs.frozen(kw_only=True)
class LinesSource(LineSource):
    """Lines of text, which the SDK has no transform for."""

    def check_head(self, path: str) -> None:
        """Any file has lines."""

    def records(self, path: str, lines: Sequence[bytes]) -> Sequence[str]:
        """Each line as text, unchanged."""
        return [text_of(path, line) for line in lines]


class CountAndSum(df.CombineFn):
    """How many, and how much."""

    def create_accumulator(self) -> tuple[int, int]:
        """Nothing."""
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], value: int) -> tuple[int, int]:
        """One more."""
        return accumulator[0] + 1, accumulator[1] + value

    def add_inputs(self, accumulator: tuple[int, int], values: Iterable[int]) -> tuple[int, int]:
        """Several more."""
        several = list(values)
        return accumulator[0] + len(several), accumulator[1] + sum(several)

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Add up both."""
        counts, sums = zip(*accumulators, strict=True)
        return sum(counts), sum(sums)

    def extract_output(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Both."""
        return accumulator


def window_row(
    total: tuple[int, tuple[int, int]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, int]:
    """A row of B2, B3 and S1."""
    user_id, (count, amount) = total
    return {"user_id": user_id, "start_ms": window.start_us // 1_000, "count": count, "sum": amount}


def session_row(
    total: tuple[int, tuple[int, int]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, int]:
    """A row of B4."""
    return window_row(total, window) | {"end_ms": window.end_us // 1_000}


def event_time(event: dict[str, int]) -> float:
    """In seconds."""
    return event["event_time"] / 1_000


def build(p: df.Pipeline, task: Task) -> None:
    """The whole pipeline of a case."""
    if task.case == "B5":
        rows = _words(p, task)
    elif task.case == "B1":
        rows = _everything(_events(p, task))
    else:
        rows = _windowed(_events(p, task), task.case)
    case = THROUGHPUT[task.case]
    types = {name: str if name in case.text else int for name in case.columns}
    rows | df.WriteToPostgres(TABLE, columns=types)


def _events(p: df.Pipeline, task: Task) -> df.PCollection[dict[str, int]]:
    max_disorder = WATERMARK_BOUND_S if task.case == "S1" else None
    return p | "read" >> df.ReadFromJsonLines(
        f"{task.two}/*.jsonl", event_time=event_time, max_disorder=max_disorder
    )


def _everything(events: df.PCollection[dict[str, int]]) -> df.PCollection[dict[str, int]]:
    tripled = (
        events
        | "even" >> df.Filter(lambda event: event["value"] % 2 == 0)
        | "triple" >> df.Map(lambda event: ("all", event["value"] * 3))
    )
    totals = tripled | "sum" >> df.CombinePerKey(CountAndSum())
    return totals | "row" >> df.Map(lambda total: {"count": total[1][0], "sum": total[1][1]})


def _windowed(events: df.PCollection[dict[str, int]], case: str) -> df.PCollection[dict[str, int]]:
    windows: dict[str, df.WindowFn] = {
        "B3": df.SlidingWindows(WINDOW_MS / 1_000, period=PERIOD_MS / 1_000),
        "B4": df.Sessions(timedelta(milliseconds=GAP_MS)),
    }
    to_row: Callable[..., dict[str, int]] = session_row if case == "B4" else window_row
    return (
        events
        | "pair" >> df.Map(lambda event: (event["user_id"], event["value"]))
        | "window" >> df.WindowInto(windows.get(case, df.FixedWindows(WINDOW_MS / 1_000)))
        | "sum" >> df.CombinePerKey(CountAndSum())
        | "row" >> df.Map(to_row)
    )


def _words(p: df.Pipeline, task: Task) -> df.PCollection[dict[str, Any]]:
    return (
        p
        | "read" >> df.Read(LinesSource(pattern=f"{task.two}/*.txt"))
        | "split" >> df.FlatMap(lambda line: [(word, 1) for word in line.split()])
        | "count" >> df.CombinePerKey(df.SumCombineFn())
        | "row" >> df.Map(lambda total: {"word": total[0], "count": total[1]})
    )
