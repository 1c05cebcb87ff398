"""Zeitgeist, the running example of the MillWheel paper (section 2): queries that spike or dip, found as they do.

Its topology is the paper's figure 1, on the Computation API: queries are counted in buckets of time, a model of each
query is made of the counts, and two detectors compare the counts with the model.  A spike is clear as soon as there are
too many, so it is found without waiting; a dip only when the low watermark shows that the missing ones are not late.
Late queries are dropped and counted, as in the paper.

`examples.zeitgeist_sdk` is the same with windows and triggers.  Run both with ``python -m examples.zeitgeist``.
"""

from collections import Counter
from datetime import UTC, datetime

from dataflow.computations import Computation, Record, Timer, Topology
from examples.zeitgeist_model import (
    AROUND,
    LOW_BUCKETS,
    Anomaly,
    Count,
    Prediction,
    bucket_of,
    expected_a_day_after,
    is_low,
    is_spike,
)
from examples.zeitgeist_queries import BUCKET, DAY, END


def query_of(query: dict[str, str]) -> str:
    """The key of a query where queries are counted."""
    return query["query"]


def region_of(query: dict[str, str]) -> str:
    """Its key where regions are."""
    return query["region"]


def named_query(message: Count | Prediction) -> str:
    """The key of everything that is about a query."""
    return message.query


class WindowCounter(Computation):
    """Emits the count of each bucket of a query: after every query, and finally when no more will come.

    A bucket without queries counts as well.  The state is the counts of open buckets by their starts.
    """

    inputs = {"queries": query_of}
    outputs = ["running_counts", "window_counts", "late_queries"]
    initial_state = Counter

    def process_record(self, record: Record) -> None:
        """One more."""
        start = bucket_of(record.timestamp)
        if start + BUCKET <= self.low_watermark:
            self.produce(record.value, "late_queries")
            return
        self.state[start] += 1
        self.set_timer(start.isoformat(), start + BUCKET)
        self.produce(Count(record.key, start, self.state[start]), "running_counts")

    def process_timer(self, timer: Timer) -> None:
        """All queries of the bucket are there."""
        start = datetime.fromisoformat(timer.tag)
        self.produce(Count(timer.key, start, self.state.pop(start, 0)), "window_counts")
        if start + BUCKET < END:
            self.set_timer((start + BUCKET).isoformat(), start + 2 * BUCKET)


class ModelCalculator(Computation):
    """Makes predictions for the next day; the state is the counts of the last few buckets."""

    inputs = {"window_counts": named_query}
    outputs = ["model_updates"]
    initial_state = dict

    def process_record(self, record: Record) -> None:
        """A bucket is known: a prediction can be made of the one in the middle of the last few."""
        count: Count = record.value
        counts = {**self.state, count.start: count.count}
        middle = count.start - AROUND * BUCKET
        expected = expected_a_day_after(counts, middle)
        if expected is not None:
            self.produce(Prediction(count.query, middle + DAY, expected), "model_updates")
        self.state = {each: counts[each] for each in counts if each > middle - AROUND * BUCKET}


class SpikeDetector(Computation):
    """Compares the count so far with the count that is expected for the whole bucket.

    The state is, by buckets, what is expected, the highest count and when it was reached, and whether that was a spike.
    Either of the two inputs may come first and waits for the other: two streams are seen in the order of arrival.
    """

    inputs = {"model_updates": named_query, "running_counts": named_query}
    outputs = ["anomalies"]
    initial_state = dict

    def process_record(self, record: Record) -> None:
        """A bucket has more, or is expected to have."""
        start = record.value.start
        expected, highest, reached, is_found = self.state.get(start, (None, 0, start, False))
        if isinstance(record.value, Prediction):
            expected = record.value.expected
        elif record.value.count > highest:
            highest, reached = record.value.count, record.timestamp
        if expected is not None and not is_found and is_spike(highest, expected):
            is_found = True
            self.produce(Anomaly("spike", record.key, start, reached), "anomalies")
        self.state[start] = expected, highest, reached, is_found
        self.set_timer(start.isoformat(), max(start + BUCKET, record.timestamp))

    def process_timer(self, timer: Timer) -> None:
        """The bucket is over, and every result for it has been emitted: delete its state."""
        self.state.pop(datetime.fromisoformat(timer.tag))


class DipDetector(Computation):
    """Compares the final count with the expected one, one bucket after the other (figure 9).

    The state is what is expected by buckets, the counts that wait for their turn, and how many were low in a row.
    """

    inputs = {"model_updates": named_query, "window_counts": named_query}
    outputs = ["anomalies"]

    @staticmethod
    def initial_state() -> tuple[dict[datetime, float], dict[datetime, int], int]:
        """Nothing is expected, and nothing was low."""
        return {}, {}, 0

    def process_record(self, record: Record) -> None:
        """Remember it until the low watermark has passed the bucket, so that all records about the bucket have come."""
        expected, counts, _ = self.state
        if isinstance(record.value, Prediction):
            expected[record.value.start] = record.value.expected
        else:
            counts[record.value.start] = record.value.count
            self.set_timer(record.value.start.isoformat(), record.timestamp)

    def process_timer(self, timer: Timer) -> None:
        """Low for the second time is a dip."""
        start = datetime.fromisoformat(timer.tag)
        expected, counts, low = self.state
        count, normal = counts.pop(start), expected.pop(start, None)
        low = low + 1 if normal is not None and is_low(count, normal) else 0
        if low == LOW_BUCKETS:
            self.produce(Anomaly("dip", timer.key, start, timer.timestamp), "anomalies")
        self.state = expected, counts, low


class DailyTotals(Computation):
    """Queries of a region by the day: another consumer of the same stream, by another key (figure 5)."""

    inputs = {"queries": region_of}
    outputs = ["daily_totals"]
    initial_state = Counter

    def process_record(self, record: Record) -> None:
        """Count it, late or not."""
        day = record.timestamp.date()
        self.state[day] += 1
        self.set_timer(day.isoformat(), datetime(day.year, day.month, day.day, tzinfo=UTC) + DAY)

    def process_timer(self, timer: Timer) -> None:
        """The day is over: emit its total, and a new one if late queries have come since the last time."""
        day = datetime.fromisoformat(timer.tag).date()
        self.produce((timer.key, day, self.state[day]), "daily_totals")


def zeitgeist() -> Topology:
    """The topology, without its input, the stream ``queries``."""
    return (
        Topology()
        .computation("window_counter", WindowCounter())
        .computation("model_calculator", ModelCalculator())
        .computation("spike_detector", SpikeDetector())
        .computation("dip_detector", DipDetector())
        .computation("daily_totals", DailyTotals())
    )


if __name__ == "__main__":
    # Under their own names, not __main__'s: workers import what they run, and pickles name it.
    import sys

    from examples.zeitgeist_cli import main

    sys.exit(main())
