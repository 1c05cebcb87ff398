"""A program that depends on the order of a key's elements and timers: one element of each key within a minute."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import dataflow as df

SEEN = df.ReadModifyWriteStateSpec("seen")
FORGET = df.TimerSpec("forget", df.TimeDomain.EVENT)
MINUTE = 60


class Deduplicated(df.DoFn):
    """Emits an element, and then none of its key for a minute."""

    def process(
        self,
        element: tuple[str, Any],
        /,
        at: datetime = df.DoFn.TimestampParam,
        seen: Any = df.DoFn.StateParam(SEEN),
        forget: Any = df.DoFn.TimerParam(FORGET),
    ) -> Iterator[Any]:
        if seen.read() is None:
            yield element
            seen.write(True)
            forget.set(at + timedelta(seconds=MINUTE))

    @df.on_timer(FORGET)
    def forget(self, seen: Any = df.DoFn.StateParam(SEEN)) -> None:
        seen.clear()


class DeduplicatedInOrder(Deduplicated):
    requires_time_sorted_input = True


class DeduplicatedOnArrival(Deduplicated):
    requires_time_sorted_input = False


def expected(elements: Iterable[tuple[str, int, int]]) -> list[tuple[str, int]]:
    """What it emits for ``(key, value, second)`` in the order of event times, worked out by hand, sorted."""
    free_from: dict[str, int] = {}
    emitted = []
    for key, value, second in sorted(elements, key=lambda each: (each[2], each[1])):
        # A timer for an instant is before the elements of that instant.
        if second >= free_from.get(key, second):
            emitted.append((key, value))
            free_from[key] = second + MINUTE
    return sorted(emitted)
