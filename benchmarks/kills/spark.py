"""Spark Structured Streaming: into its file sink, or by `foreachBatch` into a table of Postgres.

The second one appends, as the guide's own example of a database does; Spark promises it at least once, and gives the
number of the batch to whoever wants to make it idempotent.
"""

import sys
from os import environ
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.kills.feed import DISORDER_S, WINDOW_S, Settings
from runners.embedded.java import ensure_java_home

TABLE = "counts"


def session(settings: Settings) -> SparkSession:
    """Two cores of this machine."""
    environ["PYSPARK_PYTHON"] = sys.executable
    environ["JAVA_HOME"] = str(ensure_java_home())
    found: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", settings.scratch)
        .getOrCreate()
    )
    return found


def counts(spark: SparkSession, settings: Settings) -> DataFrame:
    """A row for each key and ended window."""
    records = (
        spark.readStream.schema("key STRING, at LONG")
        .json(settings.files)
        .withColumn("ts", f.timestamp_millis("at"))
        .withWatermark("ts", f"{DISORDER_S} seconds")
    )
    found = records.groupBy(f.window("ts", f"{WINDOW_S} seconds"), "key").count()
    return found.select("key", f.unix_timestamp("window.start").alias("start_s"), "count")


def appending(settings: Settings) -> Any:
    """A function for `foreachBatch` that appends the rows of a micro-batch to the table."""

    def append(frame: DataFrame, number: int) -> None:
        del number
        rows = [tuple(each) for each in frame.collect()]
        with psycopg.connect(settings.store) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", rows)

    return append


def main(sink: str) -> None:
    """Count until it is killed.

    Args:
        sink: ``files`` or ``foreach``.
    """
    settings = Settings.from_command_line()
    spark = session(settings)
    writing = counts(spark, settings).writeStream.option(
        "checkpointLocation", f"{settings.scratch}/checkpoint"
    )
    if sink == "files":
        writing = writing.format("csv").option("path", settings.rows)
    else:
        with psycopg.connect(settings.store) as connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} (key text, start_s bigint, count bigint)"
            )
        writing = writing.foreachBatch(appending(settings))
    writing.trigger(processingTime="200 milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[2])
