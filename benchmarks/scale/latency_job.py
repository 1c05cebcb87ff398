"""S2 with so many workers, key ranges, and keys that have state: latency from a record's creation to its row's commit.

First every key is given state, and the journal is compacted; then the records come at their rate.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dataflow as df
from benchmarks.peers.ours_latency import COLUMNS, SEEN, TABLE, export_counts
from benchmarks.peers.ours_load import Created
from benchmarks.scale.jobs import runner, with_ranges
from benchmarks.scale.load import PREPARES, PreparedRate, write_start_us
from benchmarks.task import Task
from runners.registry import open_store
from runners.streaming.job_thread import StreamingJob
from windowing.timestamps import US_PER_SECOND

JOB = "scale"
#: From the moment that all keys have state until the first record exists.
_LEAD_S = 1.0
_LOOK_INTERVAL_S = 0.3


class CountVisits(df.DoFn):
    """A row for each record but the first of its key: how many there have been since."""

    #: The load ends, but stands for a stream that does not.
    requires_time_sorted_input = False

    def process(
        self,
        element: Created,
        seen: Any = df.DoFn.StateParam(SEEN),
    ) -> Iterator[dict[str, int]]:
        """Count the visit and emit the count."""
        user, created_us = element
        visits = seen.read()
        seen.add(1)
        if created_us != PREPARES:
            yield {"user_id": user, "count": visits, "created_us": created_us}


def start_file(task: Task) -> Path:
    """The file with the time of the first record at the rate."""
    return Path(task.out, "start")


def run(task: Task) -> None:
    """Run the pipeline to its end, and leave a line for each row: user, count, created, committed."""
    source = PreparedRate(
        start_file=str(start_file(task)),
        keys=task.keys,
        per_second=task.rate,
        records=task.records,
    )
    pipeline = df.Pipeline(runner(JOB, task))
    (
        pipeline
        | "read" >> df.Read(source)
        | "count" >> df.ParDo(CountVisits())
        | df.WriteToPostgres(TABLE, columns=COLUMNS)
    )
    with_ranges(JOB, task, pipeline)
    began_s = time.monotonic()
    job = pipeline.run()
    assert isinstance(job, StreamingJob)
    wait_until_prepared(job, task)
    prepared_s = time.monotonic() - began_s
    write_start_us(start_file(task), time.time_ns() // 1_000 + int(_LEAD_S * US_PER_SECOND))
    job.wait_until_finish()
    export_counts(task)
    task.report(rows_for_each_record=True, prepared_s=prepared_s)


def wait_until_prepared(job: StreamingJob, task: Task) -> None:
    """Wait until every key has been read, all its results are compacted in the store, and nothing is on its way."""
    with closing(open_store(task.store)) as store:
        while True:
            time.sleep(_LOOK_INTERVAL_S)
            statistics = job.statistics()
            if statistics is None or statistics.records_read < task.keys:
                continue
            counts = store.statistics(JOB)
            if not (counts["checkpoints"] or counts["journal"]):
                return


if __name__ == "__main__":
    run(Task.from_command_line())
