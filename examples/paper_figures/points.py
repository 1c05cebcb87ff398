"""The paper's figure 5: ten data points, and the watermark that the pipeline had of them.

In the paper they are a picture.  The points here agree with every number in its text.  So does the watermark, whose
path the text leaves mostly open; this much of it is given:

* only the 9 is late: when any other point arrives, the watermark has not passed its event time;
* "having observed the 5", the watermark passes the 9 before the 9 comes (figure 12);
* the 5 and the 7 are first emitted "at the first one-minute processing-time boundary" (figure 14), so at 12:06:00 the
  session of the 5, which ends at 12:01:30, has not been passed;
* the 8 arrives, then the watermark passes 12:05:25, the end of the session that the 8 made, and then the 9 arrives
  (figure 14); and it does so before 12:08:00, where the clock alone would have made the session fire.

Dataflow Model, section 2.4.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import attrs

import dataflow as df
from dataflow.testing import TestStream

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def _at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2015-08-31T{clock}").replace(tzinfo=UTC)


NOON = _at("12:00:00")
#: What the pictures show of processing time: it begins before the first arrival and ends after the last.
BEGIN, END = _at("12:05:00"), _at("12:09:00")


@attrs.frozen
class Point:
    """A value, when it happened and when the pipeline saw it."""

    value: int
    event_time: datetime = attrs.field(converter=_at)
    arrival: datetime = attrs.field(converter=_at)


#: In the order of arrival.
POINTS = (
    Point(5, "12:00:30", "12:05:15"),
    Point(7, "12:02:10", "12:05:40"),
    Point(3, "12:03:40", "12:06:10"),
    Point(4, "12:03:55", "12:06:25"),
    Point(3, "12:04:25", "12:06:40"),
    Point(8, "12:03:00", "12:07:05"),
    Point(3, "12:06:40", "12:07:20"),
    Point(9, "12:01:20", "12:08:20"),
    Point(8, "12:07:20", "12:08:35"),
    Point(1, "12:07:45", "12:08:50"),
)

#: The watermark, as processing times and the event times it had reached by then; straight lines in between.
WATERMARK = tuple(
    (_at(processing_time), _at(event_time))
    for processing_time, event_time in (
        ("12:05:00", "12:00:00"),
        ("12:05:15", "12:00:08"),
        ("12:05:40", "12:00:35"),
        ("12:06:00", "12:01:10"),
        ("12:06:20", "12:02:00"),
        ("12:06:45", "12:02:25"),
        ("12:07:05", "12:02:40"),
        ("12:07:20", "12:03:35"),
        ("12:07:35", "12:05:20"),
        ("12:07:50", "12:06:10"),
        ("12:08:20", "12:06:35"),
        ("12:08:35", "12:06:50"),
        ("12:08:50", "12:07:10"),
        ("12:08:55", "12:07:25"),
        ("12:09:00", "12:08:20"),
    )
)


def watermark_at(now: datetime) -> datetime:
    """How far the watermark has come at a processing time between `BEGIN` and `END`."""
    for (before, low), (after, high) in pairwise(WATERMARK):
        if now <= after:
            return low + (high - low) * ((now - before) / (after - before))
    raise ValueError(f"the path ends before {now}")


def is_late(point: Point) -> bool:
    """Whether the watermark had passed the point when it arrived."""
    return watermark_at(point.arrival) > point.event_time


def ten_points() -> TestStream:
    """The points as a stream: as each arrives, the clock goes on by the second and the watermark with it."""
    stream, now = TestStream(), BEGIN
    while now <= END:
        stream = stream.advance_processing_time_to(now)
        for point in POINTS:
            if point.arrival == now:
                stream = stream.add_elements([_element(point)])
        stream = stream.advance_watermark_to(watermark_at(now))
        now += SECOND
    return stream.advance_watermark_to_infinity()


def ten_points_at_rest() -> "df.Create[Any]":
    """The points as a bounded input, for figures 6 and 10."""
    elements: list[Any] = [_element(point) for point in POINTS]
    return df.Create(elements)


def _element(point: Point) -> df.TimestampedValue:
    """With a key: the paper assumes one key for all."""
    return df.TimestampedValue(("key", point.value), point.event_time)
