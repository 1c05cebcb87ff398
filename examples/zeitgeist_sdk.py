"""`examples.zeitgeist` in the SDK: windows count, early panes have the counts so far, a stateful DoFn compares.

The buckets are windows, so no code keeps open ones in state or sets timers for their ends, and late queries are
dropped, and kept as late records, by the SDK.  What follows the counts has the same key, the query, so it is one DoFn.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import attrs

import dataflow as df
from examples.zeitgeist_model import (
    AROUND,
    LOW_BUCKETS,
    Anomaly,
    expected_in,
    is_low,
    is_spike,
)
from examples.zeitgeist_queries import BUCKET, DAY, END

WATCHED = df.ReadModifyWriteStateSpec("watched")
ENDS = df.TimerFamilySpec("ends of buckets", df.TimeDomain.EVENT)


@attrs.define
class Watched:
    """What is kept of a query: final counts of the last day, the highest of open buckets, and which were spikes."""

    counts: dict[datetime, int] = attrs.field(factory=dict)
    highest: dict[datetime, int] = attrs.field(factory=dict)
    spikes: set[datetime] = attrs.field(factory=set)
    low: int = 0


class Watch(df.DoFn):
    """From (query, (start of a bucket, count so far)) to anomalies."""

    def process(
        self,
        element: tuple[str, tuple[datetime, int]],
        /,
        at: datetime = df.DoFn.TimestampParam,
        state: Any = df.DoFn.StateParam(WATCHED),
        ends: Any = df.DoFn.TimerParam(ENDS),
    ) -> Iterator[Anomaly]:
        """A pane: more than is expected is a spike already."""
        query, (start, count) = element
        watched: Watched = state.read() or Watched()
        watched.highest[start] = max(count, watched.highest.get(start, 0))
        yield from self._spike(watched, query, start, at)
        ends.get(start.isoformat()).set(start + BUCKET)
        state.write(watched)

    @df.on_timer(ENDS)
    def end(
        self,
        query: str = df.DoFn.KeyParam,
        tag: str = df.DoFn.DynamicTimerTagParam,
        at: datetime = df.DoFn.TimestampParam,
        state: Any = df.DoFn.StateParam(WATCHED),
        ends: Any = df.DoFn.TimerParam(ENDS),
    ) -> Iterator[Anomaly]:
        """The last pane of the bucket has come: less than is expected, again, is a dip."""
        start = datetime.fromisoformat(tag)
        watched: Watched = state.read()
        yield from self._spike(watched, query, start, at)
        expected = expected_in(watched.counts, start)
        count = watched.counts[start] = watched.highest.pop(start, 0)
        watched.low = watched.low + 1 if expected is not None and is_low(count, expected) else 0
        if watched.low == LOW_BUCKETS:
            yield Anomaly("dip", query, start, at)
        watched.spikes.discard(start)
        oldest = start - DAY - AROUND * BUCKET
        watched.counts = {each: watched.counts[each] for each in watched.counts if each > oldest}
        if start + BUCKET < END:
            ends.get((start + BUCKET).isoformat()).set(start + 2 * BUCKET)
        state.write(watched)

    def _spike(
        self, watched: Watched, query: str, start: datetime, at: datetime
    ) -> Iterator[Anomaly]:
        expected = expected_in(watched.counts, start)
        if expected is None or start in watched.spikes:
            return
        if is_spike(watched.highest.get(start, 0), expected):
            watched.spikes.add(start)
            yield Anomaly("spike", query, start, at)


class Zeitgeist(df.PTransform[df.PCollection[dict[str, str]], df.PCollection[Anomaly]]):
    """From queries to anomalies."""

    def expand(self, pcoll: df.PCollection[dict[str, str]]) -> df.PCollection[Anomaly]:
        """Add the transforms."""
        found: df.PCollection[Anomaly] = (
            pcoll
            | "query" >> df.Map(lambda query: (query["query"], query["query"]))
            | "buckets"
            >> df.WindowInto(
                df.FixedWindows(BUCKET),
                trigger=df.AfterWatermark(early=df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode.ACCUMULATING,
                # The event time of a pane is then that of the query that made it.
                timestamp_combiner=df.TimestampCombiner.LATEST,
            )
            | "count" >> df.CombinePerKey(df.CountCombineFn())
            | "with bucket" >> df.Map(_with_bucket)
            | "all time" >> df.WindowInto(df.GlobalWindows())
            | "watch" >> df.ParDo(Watch())
        )
        return found


def _with_bucket(
    pane: tuple[str, int], window: df.Window = df.DoFn.WindowParam
) -> tuple[str, tuple[datetime, int]]:
    return pane[0], (window.start, pane[1])
