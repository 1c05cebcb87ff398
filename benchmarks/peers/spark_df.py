"""Spark DataFrames: the cases in batch by Spark's own SQL operators; no Python function sees a record."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.peers import nexmark_sql
from benchmarks.peers.spark_session import warm_session
from benchmarks.task import Task

SCHEMA = "user_id long, event_time long, value long"


def milliseconds(length_ms: int) -> str:
    """A length of time in the words of Spark."""
    return f"{length_ms} milliseconds"


def totals(frame: Any, window: Any) -> Any:
    """Count and sum of each user and window."""
    found = frame.groupBy("user_id", window.alias("w")).agg(
        f.count("*").alias("count"), f.sum("value").alias("sum")
    )
    return found.withColumns(
        {"start_ms": f.unix_millis("w.start"), "end_ms": f.unix_millis("w.end")}
    )


def everything(frame: Any) -> Any:
    """B1."""
    tripled = frame.filter("value % 2 = 0").select((f.col("value") * 3).alias("value"))
    return tripled.agg(f.count("*"), f.sum("value"))


def by_window(frame: Any) -> Any:
    """B2."""
    found = totals(frame, f.window("ts", milliseconds(WINDOW_MS)))
    return found.select("user_id", "start_ms", "count", "sum")


def by_sliding_window(frame: Any) -> Any:
    """B3."""
    window = f.window("ts", milliseconds(WINDOW_MS), milliseconds(PERIOD_MS))
    return totals(frame, window).select("user_id", "start_ms", "count", "sum")


def by_session(frame: Any) -> Any:
    """B4; Spark joins events that are exactly a gap apart."""
    found = totals(frame, f.session_window("ts", milliseconds(GAP_MS)))
    return found.select("user_id", "start_ms", "end_ms", "count", "sum")


def count_words(session: SparkSession, task: Task) -> Any:
    """B5."""
    words = session.read.text(task.two).select(f.explode(f.split("value", " ")).alias("word"))
    return words.groupBy("word").count()


def nexmark(session: SparkSession, task: Task) -> Any:
    """A query of Nexmark."""
    events = session.read.schema(nexmark_sql.FIELDS).json(task.two)
    events.withColumn("ts", f.timestamp_millis("date_time_ms")).createOrReplaceTempView("events")
    for name, query in nexmark_sql.VIEWS.items():
        session.sql(query).createOrReplaceTempView(name)
    if task.case == "q13":
        table = nexmark_sql.SIDE_INPUT.format(numbers="range(10000)")
        session.sql(table).createOrReplaceTempView("side_input")
    return session.sql(nexmark_sql.SPARK[task.case])


PROGRAMS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"B1": everything, "B2": by_window, "B3": by_sliding_window, "B4": by_session}
)


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    session = warm_session(task)
    with task.measured():
        if task.case == "B5":
            found = count_words(session, task)
        elif task.case in NEXMARK:
            found = nexmark(session, task)
        else:
            events = session.read.schema(SCHEMA).json(task.two)
            found = PROGRAMS[task.case](events.withColumn("ts", f.timestamp_millis("event_time")))
        folders = nexmark_sql.FOLDERS if task.case == "q10" else ()
        found.write.partitionBy(*folders).csv(str(task.rows))
    session.stop()


if __name__ == "__main__":
    main()
