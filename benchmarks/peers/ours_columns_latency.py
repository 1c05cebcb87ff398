"""S2 of ours in columns: how long a record takes from its creation until a row that counts it is committed.

Columns have groupings and no state of single keys, so this is a count of each user in windows of milliseconds, which
fire once: one shuffle, and in the row all records of a user and window.  Each counts as old as the oldest of them, so
no latency is shown less than it is, and what a record waits for the end of its window is in it.
"""

import time
from functools import lru_cache
from typing import NamedTuple

import attrs
import numpy as np
import pyarrow as pa

import dataflow as df
from benchmarks.peers.ours_export import export
from benchmarks.peers.ours_latency import LEAD_S, TABLE
from benchmarks.peers.ours_load import RateSource, visitors
from benchmarks.peers.ours_session import MASTER
from benchmarks.task import Task
from dataflow.columns import IntColumn, Rows
from runners.streaming import StreamingRunner
from windowing.timestamps import MAX_TIMESTAMP_US, US_PER_SECOND

WINDOW_MS = 5


class Visit(NamedTuple):
    """A record."""

    user_id: int
    created_us: int


@attrs.frozen(kw_only=True)
class RateColumns(RateSource):
    """The records of `RateSource` as columns; all of them are distinct, and of the users of the other cases."""

    reads_columns = True

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a record on."""
        return _ColumnReader(self, position or 0)


class _ColumnReader(df.SourceReader):
    def __init__(self, source: RateColumns, first: int) -> None:
        self._source, self._next = source, first
        self._users = visitor_column(source.records)

    def read(self, max_records: int) -> df.SourceBatch:
        source, first = self._source, self._next
        now_us = time.time_ns() // 1_000
        due = (now_us - source.start_us) * source.per_second // US_PER_SECOND + 1
        self._next = max(first, min(due, source.records, first + max_records))
        index = np.arange(first, self._next, dtype=np.int64)
        created_us = source.start_us + index * US_PER_SECOND // source.per_second
        columns = [pa.array(self._users[first : self._next]), pa.array(created_us)]
        is_finished = self._next == source.records
        watermark_us = min(source.created_us(self._next) - 1, now_us)
        return df.SourceBatch(
            values=Rows.of(Visit, Visit._fields, columns),
            timestamps_us=IntColumn(created_us),
            position=self._next,
            watermark_us=MAX_TIMESTAMP_US if is_finished else watermark_us,
            status=df.SplitStatus.FINISHED if is_finished else df.SplitStatus.ACTIVE,
        )


@lru_cache(maxsize=1)
def visitor_column(records: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The user of each record as an array; made before the first record is due."""
    return np.array(visitors(records), np.int64)


def run(task: Task) -> None:
    """Run the pipeline to its end, and leave a line for each record: user, running count, created, committed."""
    start_us = time.time_ns() // 1_000 + LEAD_S * US_PER_SECOND
    source = RateColumns(start_us=start_us, per_second=task.rate, records=task.records)
    pipeline = df.Pipeline(
        StreamingRunner(job="latency", store=task.store, master=MASTER, show_progress=False)
    )
    counted = df.GroupBy("user_id").aggregate_field("created_us", df.CountCombineFn(), "count")
    (
        pipeline
        | "read" >> df.Read(source)
        | "window" >> df.WindowInto(df.FixedWindows(WINDOW_MS / 1_000))
        | "count" >> counted.aggregate_field("created_us", min, "created_us")
        | df.WriteToPostgres(TABLE, columns={"user_id": int, "count": int, "created_us": int})
    )
    pipeline.run().wait_until_finish()
    export(
        task,
        f"""SELECT user_id, row_number() OVER (PARTITION BY user_id ORDER BY created_us), created_us,
                   (extract(epoch FROM pg_xact_commit_timestamp({TABLE}.xmin)) * 1000000)::bigint
            FROM {TABLE}, generate_series(1, count) ORDER BY created_us""",
    )
    task.report(rows_for_each_record=True)
