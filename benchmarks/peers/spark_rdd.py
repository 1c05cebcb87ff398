"""Spark RDDs by hand: the least that a Python program on Spark can do for the cases in batch."""

from operator import add as plus
from typing import Any

from pyspark import SparkContext

from benchmarks.peers.events import add, parse, sessions, sliding_windows_of, window_of
from benchmarks.peers.spark_session import CORES, warm_session
from benchmarks.task import Task


def count_words(spark: SparkContext, task: Task) -> Any:
    """B5."""
    words = spark.textFile(task.two, CORES).flatMap(lambda line: line.split(" "))
    counts = words.map(lambda word: (word, 1)).reduceByKey(plus, CORES)
    return counts.map(lambda pair: f"{pair[0]},{pair[1]}")


def everything(events: Any) -> Any:
    """B1."""
    even = events.filter(lambda event: event[2] % 2 == 0).map(lambda event: (1, event[2] * 3))
    count, total = even.fold((0, 0), add)
    return events.context.parallelize([f"{count},{total}"], 1)


def by_window(events: Any) -> Any:
    """B2."""
    keyed = events.map(lambda event: ((event[0], window_of(event[1])), (1, event[2])))
    return _summed(keyed)


def by_sliding_window(events: Any) -> Any:
    """B3."""
    keyed = events.flatMap(
        lambda event: [
            ((event[0], start_ms), (1, event[2])) for start_ms in sliding_windows_of(event[1])
        ]
    )
    return _summed(keyed)


def by_session(events: Any) -> Any:
    """B4."""
    visits = events.map(lambda event: (event[0], (event[1], event[2]))).groupByKey(CORES)
    return visits.flatMap(
        lambda pair: [",".join(map(str, (pair[0], *each))) for each in sessions(pair[1])]
    )


def _summed(keyed: Any) -> Any:
    rows = keyed.reduceByKey(add, CORES)
    return rows.map(lambda row: f"{row[0][0]},{row[0][1]},{row[1][0]},{row[1][1]}")


PROGRAMS = {"B1": everything, "B2": by_window, "B3": by_sliding_window, "B4": by_session}


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    spark = warm_session(task).sparkContext
    with task.measured():
        if task.case == "B5":
            rows = count_words(spark, task)
        else:
            rows = PROGRAMS[task.case](spark.textFile(task.two, CORES).map(parse))
        rows.saveAsTextFile(str(task.rows))
    spark.stop()


if __name__ == "__main__":
    main()
