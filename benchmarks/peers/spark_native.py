"""Spark Structured Streaming by its own SQL operators: S1, and S2 as near as they come.

S1: micro-batches of a fifth of the input, state in RocksDB, a checkpoint for each batch, and the file sink that writes
each row once.  S2: a running count by user, which emits one row for each user and micro-batch, not for each record: the
task is easier than ours.  A row counts as committed when `foreachBatch` has it in the driver.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.peers.spark_df import SCHEMA, by_window
from benchmarks.peers.spark_session import warm_session
from benchmarks.task import Task
from benchmarks.workloads import STREAM_FILES, WATERMARK_BOUND_S

FILES_PER_BATCH = STREAM_FILES // 5
STATE = {
    "streaming__stateStore__providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "streaming__stateStore__rocksdb__changelogCheckpointing__enabled": "true",
    "adaptive__enabled": "false",
}


def sums(session: SparkSession, task: Task) -> None:
    """S1."""
    with task.measured():
        events = (
            session.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", FILES_PER_BATCH)
            .json(task.stream)
            .withColumn("ts", f.timestamp_millis("event_time"))
            .withWatermark("ts", f"{WATERMARK_BOUND_S} seconds")
        )
        # The last event is in no answer: its own window is never closed.
        query = (
            by_window(events)
            .writeStream.format("csv")
            .option("path", str(task.rows))
            .option("checkpointLocation", str(task.scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def latency(session: SparkSession, task: Task) -> None:
    """S2."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        command = [sys.executable, "-m", "benchmarks.peers.socket_load", task.to_argument()]
        load = subprocess.Popen([*command, str(listening.fileno())], pass_fds=[listening.fileno()])
    lines = (
        session.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    )
    fields = f.split("value", ",")
    events = lines.select(fields[0].cast("long").alias("user"), fields[1].cast("long").alias("us"))
    counts = events.groupBy("user").agg(f.count("*").alias("count"), f.max("us").alias("us"))
    seen: list[tuple[int, int, int, int]] = []

    def note(frame: Any, number: int) -> None:
        del number  # of the micro-batch
        rows = frame.collect()
        now_us = time.time_ns() // 1_000
        seen.extend((row["user"], row["count"], row["us"], now_us) for row in rows)

    query = (
        counts.writeStream.foreachBatch(note)
        .outputMode("update")
        .option("checkpointLocation", str(task.scratch / "checkpoint"))
        .start()
    )
    load.wait()
    query.processAllAvailable()
    query.stop()
    task.rows.mkdir()
    with Path(task.rows, "latency.csv").open("w") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in seen)
    task.report(rows_for_each_record=False)


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    session = warm_session(task, **STATE)
    (latency if task.case == "S2" else sums)(session, task)
    session.stop()


if __name__ == "__main__":
    main()
