"""What programs that run a Python function for each record have in common: parsing, and sessions of one user."""

import json
from collections.abc import Iterable, Iterator

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS

CountAndSum = tuple[int, int]


def parse(line: str) -> tuple[int, int, int]:
    """User, event time and value of a line."""
    event = json.loads(line)
    return event["user_id"], event["event_time"], event["value"]


def window_of(event_ms: int) -> int:
    """Start of the fixed window of an instant."""
    return event_ms - event_ms % WINDOW_MS


def sliding_windows_of(event_ms: int) -> range:
    """Starts of the sliding windows of an instant."""
    last_ms = event_ms - event_ms % PERIOD_MS
    return range(last_ms, last_ms - WINDOW_MS, -PERIOD_MS)


def add(one: CountAndSum, other: CountAndSum) -> CountAndSum:
    """Merge partial results."""
    return one[0] + other[0], one[1] + other[1]


def sessions(visits: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, count and sum of each session, from the instants and values of one user in any order."""
    start_ms = last_ms = count = total = 0
    for event_ms, value in sorted(visits):
        if count and event_ms - last_ms >= GAP_MS:
            yield start_ms, last_ms + GAP_MS, count, total
            count = total = 0
        if not count:
            start_ms = event_ms
        last_ms, count, total = event_ms, count + 1, total + value
    if count:
        yield start_ms, last_ms + GAP_MS, count, total
