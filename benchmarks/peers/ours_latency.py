"""S2 of ours: how long a record takes from its creation until the row that it causes is committed in Postgres.

The instant of the commit is Postgres' own: `pg_xact_commit_timestamp` of the transaction that inserted the row, so
nothing is added to the path that is measured.  It is taken when the record of the commit is written, before that is
flushed, so it is early by one flush; the command measures how long a flush takes and prints it beside the table.
"""

import time
from collections.abc import Iterator
from typing import Any

import dataflow as df
from benchmarks.peers.ours_export import export
from benchmarks.peers.ours_load import Created, RateSource
from benchmarks.peers.ours_session import MASTER
from benchmarks.task import Task
from runners.streaming import Guarantees, StreamingRunner

TABLE = "counts"
COLUMNS = {"user_id": int, "count": int, "created_us": int}
#: A variant of the task: neither strong productions nor exactly once.
WEAK = "weak"
#: From planning the job until its first record exists: workers take some of it to start.
LEAD_S = 8

SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())


class CountVisits(df.DoFn):
    """A row for each record: how many its user has had."""

    #: The load ends, but stands for a stream that does not.
    requires_time_sorted_input = False

    def process(
        self,
        element: Created,
        seen: Any = df.DoFn.StateParam(SEEN),
    ) -> Iterator[dict[str, int]]:
        """Count the visit and emit the count."""
        user, created_us = element
        seen.add(1)
        yield {"user_id": user, "count": seen.read(), "created_us": created_us}


def guarantees(task: Task) -> dict[str, Guarantees]:
    """By the label of each computation."""
    if task.variant != WEAK:
        return {}
    neither = Guarantees(strong_productions=False, exactly_once=False)
    return {"read": neither, "count": neither}


def run(task: Task) -> None:
    """Run the pipeline to its end, and leave a line for each row: user, count, created, committed."""
    start_us = time.time_ns() // 1_000 + LEAD_S * 1_000_000
    source = RateSource(start_us=start_us, per_second=task.rate, records=task.records)
    pipeline = df.Pipeline(
        StreamingRunner(
            job="latency",
            store=task.store,
            master=MASTER,
            guarantees=guarantees(task),
            show_progress=False,
        )
    )
    (
        pipeline
        | "read" >> df.Read(source)
        | "count" >> df.ParDo(CountVisits())
        | df.WriteToPostgres(TABLE, columns=COLUMNS)
    )
    pipeline.run().wait_until_finish()
    export_counts(task)
    task.report(rows_for_each_record=True)


def export_counts(task: Task) -> None:
    """Leave a line for each row of the table of counts."""
    export(
        task,
        f"""SELECT user_id, count, created_us,
                   (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint
            FROM {TABLE} ORDER BY created_us""",
    )
