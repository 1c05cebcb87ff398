"""Latency of the queries of Nexmark by this project: rows of a stream whose event time is the clock."""

import time
from typing import Any

import attrs

import dataflow as df
from benchmarks.nexmark import LATENCY
from benchmarks.peers.ours_export import export
from benchmarks.peers.ours_latency import LEAD_S
from benchmarks.peers.ours_nexmark import answer, answer_in_columns, selected
from benchmarks.peers.ours_pipelines import TABLE
from benchmarks.peers.ours_session import MASTER
from benchmarks.task import Task
from benchmarks.workloads import SEED
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.generator import GeneratorConfig
from examples.nexmark.source import NexmarkSource, Split
from runners.streaming import StreamingRunner
from windowing.timestamps import MAX_TIMESTAMP_US, US_PER_SECOND


@attrs.frozen
class PacedNexmarkSource(NexmarkSource):
    """The events of a configuration, each from the instant on at which it happens."""

    def open(self, split: Split, position: int | None, *, fence: int) -> df.SourceReader:
        """Read on; a position is how many events of the split have been read."""
        return _PacedReader(self, split, position or 0, super().open(split, position, fence=fence))


class _PacedReader(df.SourceReader):
    def __init__(
        self, source: PacedNexmarkSource, split: Split, position: int, events: df.SourceReader
    ) -> None:
        self._config, self._split, self._position = source.config, split, position
        self._events = events
        self.reads_columns = source.row_type is not None

    def read(self, max_records: int) -> df.SourceBatch:
        config, (number, step) = self._config, self._split
        now_us = time.time_ns() // 1_000
        # An event happens in the millisecond of its time, which has begun for all numbers below this one.
        elapsed_ms = now_us // 1_000 - config.first_time_ms
        happened = -(-(elapsed_ms + 1) * config.events_per_s // 1_000) if elapsed_ms >= 0 else 0
        due = -(-max(0, happened - number) // step)
        batch = self._events.read(min(max_records, max(0, due - self._position)))
        self._position = batch.position
        if batch.watermark_us == MAX_TIMESTAMP_US:
            return batch
        return attrs.evolve(batch, watermark_us=min(batch.watermark_us, now_us))


def config_of(task: Task, first_time_ms: int) -> GeneratorConfig:
    """The events of a task, of which the first happens at an instant."""
    return GeneratorConfig(
        seed=SEED, size=task.records, events_per_s=task.rate, first_time_ms=first_time_ms
    )


def build(p: df.Pipeline, task: Task, first_time_ms: int, *, in_columns: bool) -> None:
    """The whole pipeline of a case."""
    query = LATENCY[task.case].query.name
    row_type: Any = COLUMN_QUERIES[query].row_type if in_columns else None
    events = p | "read" >> df.Read(PacedNexmarkSource(config_of(task, first_time_ms), row_type))
    (answer_in_columns if in_columns else answer)(events, query)


def run(task: Task, *, in_columns: bool = False) -> None:
    """Run the pipeline to its end; leave its rows, each with when it was complete (ms) and committed (us)."""
    first_time_ms = (time.time_ns() // 1_000 + LEAD_S * US_PER_SECOND) // 1_000
    case = LATENCY[task.case]
    pipeline = df.Pipeline(
        StreamingRunner(job="latency", store=task.store, master=MASTER, show_progress=False)
    )
    build(pipeline, task, first_time_ms, in_columns=in_columns)
    pipeline.run().wait_until_finish()
    given = selected(case.query.name)
    columns = ", ".join(given.get(name, name) for name in case.query.columns)
    export(
        task,
        f"""SELECT {columns}, {case.complete_ms},
                   (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint
            FROM {TABLE}""",
    )
    task.report(first_time_ms=first_time_ms)
