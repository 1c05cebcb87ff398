"""Answers of the Nexmark queries, for tests: what a pipeline leaves, as its model says it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

import dataflow as df
from dataflow.recording import Recording
from dataflow.signed_sum import signed_sum
from examples.nexmark.answers import Answers
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.generator import FIRST_TIME_MS, GeneratorConfig, events
from examples.nexmark.models import MODELS
from examples.nexmark.queries import QUERIES
from examples.nexmark.source import NexmarkSource, Split

#: Queries whose answers late events change, one grouping behind another, or windows that merge.
CHANGING = ("q4", "q5", "q6", "q7", "q8", "q9", "q11", "q15", "q16", "q17", "q18", "q19")
#: One event in three is late, by up to 25 seconds; at first it is a quarter of a minute to midnight.
LATE = GeneratorConfig(
    seed=3,
    size=2_500,
    events_per_s=50,
    first_time_ms=FIRST_TIME_MS - 15_000,
    disorder=20,
    late_of=3,
    late_by=1_250,
    in_flight_auctions=30,
)


@attrs.frozen
class SmallReads(NexmarkSource):
    """Hands over few events at a time, so that the watermark passes those that are late."""

    reads: int = attrs.field(default=100, kw_only=True)

    def open(self, split: Split, position: int | None, *, fence: int) -> df.SourceReader:
        return _FewAtATime(super().open(split, position, fence=fence), self.reads)


class _FewAtATime(df.SourceReader):
    def __init__(self, reader: df.SourceReader, reads: int) -> None:
        self._reader, self._reads = reader, reads
        self.reads_columns = reader.reads_columns

    def read(self, max_records: int) -> df.SourceBatch:
        return self._reader.read(min(max_records, self._reads))


def expected(name: str, config: GeneratorConfig) -> Counter[tuple[Any, ...]]:
    """The rows of the model."""
    assert config.size is not None
    return Counter(MODELS[name](events(config, np.arange(config.size))))


def found(name: str, rows: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    """Rows of a pipeline, of q12 added up as its model says them."""
    if name != "q12":
        return Counter(map(tuple, rows))
    totals = Counter[int]()
    for bidder, count in rows:
        totals[bidder] += count
    return Counter(totals.items())


@attrs.define
class Recorded:
    """The queries of one pipeline, and all that they emit and retract."""

    config: GeneratorConfig
    recordings: dict[str, Recording] = attrs.field(factory=dict)

    def functions(self, p: df.Pipeline, names: Iterable[str], answers: Answers) -> None:
        """Queries of functions, over one read."""
        read = p | "events" >> df.Read(SmallReads(self.config))
        for name in names:
            self._record(name, read | QUERIES[name](answers))

    def columns(self, p: df.Pipeline, names: Iterable[str]) -> None:
        """Queries in columns, each with a read of the fields that it needs."""
        for name in names:
            query = COLUMN_QUERIES[name]
            source = SmallReads(self.config, query.row_type, reads=1_000)
            event_time = df.ARRIVAL_TIME if query.by_arrival else None
            read = p | f"read {name}" >> df.Read(source, event_time=event_time)
            self._record(name, read | query.build())

    def _record(self, name: str, rows: df.PCollection[Any]) -> None:
        recording = self.recordings[name] = Recording()
        recording.label = f"record {name}"
        rows | recording

    def wrong(self, result: df.PipelineResult) -> dict[str, str]:
        """Queries whose rows are not those of the models, with what is missing and what is too much."""
        complaints = {}
        for name, recording in self.recordings.items():
            rows = [change.value for change in signed_sum(recording.changes(result))]
            are, should = found(name, rows), expected(name, self.config)
            if are != should:
                missing, extra = should - are, are - should
                complaints[name] = (
                    f"{missing.total()} missing {extra.total()} too much, {missing!r:.300} {extra!r:.300}"
                )
        return complaints

    def retracted(self, result: df.PipelineResult) -> dict[str, int]:
        """How many rows of each query were retracted."""
        return {
            name: sum(change.sign < 0 for change in recording.changes(result))
            for name, recording in self.recordings.items()
        }
