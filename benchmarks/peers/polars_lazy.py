"""Polars, lazily: what one machine can do when nothing is distributed and no record is seen by Python."""

from collections.abc import Callable
from typing import Any

import polars as pl

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.task import Task

SCHEMA = {"user_id": pl.Int64, "event_time": pl.Int64, "value": pl.Int64}
AT, TOTALS = pl.col("event_time"), (pl.len().alias("count"), pl.col("value").sum().alias("sum"))


def everything(events: Any) -> Any:
    """B1."""
    even = events.filter(pl.col("value") % 2 == 0)
    return even.select(pl.len(), (pl.col("value") * 3).sum())


def by_window(events: Any) -> Any:
    """B2."""
    return events.group_by("user_id", (AT - AT % WINDOW_MS).alias("start_ms")).agg(*TOTALS)


def by_sliding_window(events: Any) -> Any:
    """B3."""
    back = pl.lit(list(range(0, WINDOW_MS, PERIOD_MS)), dtype=pl.List(pl.Int64)).alias("back")
    each = events.with_columns(back).explode("back")
    start_ms = (AT - AT % PERIOD_MS - pl.col("back")).alias("start_ms")
    return each.group_by("user_id", start_ms).agg(*TOTALS)


def by_session(events: Any) -> Any:
    """B4."""
    begins = (AT.diff() >= GAP_MS) | (pl.col("user_id").diff() != 0)
    numbered = events.sort("user_id", "event_time").with_columns(
        begins.fill_null(value=True).cum_sum().alias("number")
    )
    found = numbered.group_by("user_id", "number").agg(
        AT.min().alias("start_ms"), (AT.max() + GAP_MS).alias("end_ms"), *TOTALS
    )
    return found.drop("number")


def count_words(lines: Any) -> Any:
    """B5."""
    words = lines.select(pl.col("line").str.split(" ").explode().alias("word"))
    return words.group_by("word").len()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "B1": everything,
    "B2": by_window,
    "B3": by_sliding_window,
    "B4": by_session,
    "B5": count_words,
}


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    task.rows.mkdir()
    with task.measured():
        if task.case == "B5":
            read = pl.scan_csv(
                f"{task.two}/*.txt",
                has_header=False,
                separator="\x01",
                quote_char=None,
                new_columns=["line"],
            )
        else:
            read = pl.scan_ndjson(f"{task.two}/*.jsonl", schema=SCHEMA)
        found = PROGRAMS[task.case](read).collect()
        found.write_csv(task.rows / "rows.csv", include_header=False)


if __name__ == "__main__":
    main()
