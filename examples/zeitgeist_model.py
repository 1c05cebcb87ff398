"""What is normal, and what is not: the model of `examples.zeitgeist`, which knows nothing of streams.

As many queries are expected in a bucket of time as there were at this time yesterday, give or take half an hour.
So "television listings" in the early evening are no surprise.
"""

from collections.abc import Mapping
from datetime import datetime
from math import sqrt

import attrs

from examples.zeitgeist_queries import BUCKET, DAY, START

#: Buckets before and after the one of yesterday that are looked at, too.
AROUND = 2
#: So many deviations above what is expected is a spike.
SPIKE_DEVIATIONS, SPIKE_SPARE = 6, 5
#: Below this share of what is expected traffic is low, where as much is expected; and a dip when it is low repeatedly.
LOW_SHARE, LOW_EXPECTED_MIN, LOW_BUCKETS = 0.4, 20, 2


@attrs.frozen
class Count:
    """How often a query was asked for in the bucket that starts then: so far, or altogether."""

    query: str
    start: datetime
    count: int


@attrs.frozen
class Prediction:
    """How often a query should be asked for in the bucket that starts then."""

    query: str
    start: datetime
    expected: float


@attrs.frozen
class Anomaly:
    """``kind`` is ``spike`` or ``dip``, ``start`` that of the bucket, ``found`` the event time when it was clear."""

    kind: str
    query: str
    start: datetime
    found: datetime


def bucket_of(time: datetime) -> datetime:
    """The start of the bucket that an instant is in."""
    return time - (time - START) % BUCKET


def expected_a_day_after(counts: Mapping[datetime, int], middle: datetime) -> float | None:
    """The count expected a day later, from the counts around a bucket; None while not all of them are there.

    Args:
        counts: of one query, by the starts of their buckets.
        middle: the start of the bucket.
    """
    around = [counts.get(middle + step * BUCKET) for step in range(-AROUND, AROUND + 1)]
    known = [count for count in around if count is not None]
    return sum(known) / len(known) if len(known) == len(around) else None


def expected_in(counts: Mapping[datetime, int], start: datetime) -> float | None:
    """The count expected in a bucket, from the counts of the day before; None while not all of them are there.

    Args:
        counts: of one query, by the starts of their buckets.
        start: of the bucket.
    """
    return expected_a_day_after(counts, start - DAY)


def is_spike(count: int, expected: float) -> bool:
    """Whether a count so far is a spike; more data only add to it, so the end of the bucket need not be awaited."""
    return count > expected + SPIKE_DEVIATIONS * sqrt(expected) + SPIKE_SPARE


def is_low(count: int, expected: float) -> bool:
    """Whether a count is low; valid only when all data of the bucket are there."""
    return expected >= LOW_EXPECTED_MIN and count < LOW_SHARE * expected
