"""Windows: the finite pieces of event time that grouping happens in.

A window is a half-open interval ``[start, end)``; nobody here means anything else.
Windows are tuples because they are dictionary keys on every record's path, and tuples hash and compare in C.

Dataflow Model, sections 1.2 and 2.2.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import NamedTuple

from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    format_timestamp,
    to_datetime,
)


class Window(NamedTuple):
    """Half-open interval of event time, in microseconds since the epoch.

    Window functions of your own return these, or a subclass with the same two fields first.
    """

    start_us: int
    end_us: int

    @property
    def start(self) -> datetime:
        """First instant inside."""
        return to_datetime(self.start_us)

    @property
    def end(self) -> datetime:
        """First instant after."""
        return to_datetime(self.end_us)

    @property
    def max_timestamp_us(self) -> int:
        """Last instant inside: the event time of what the window emits."""
        return self.end_us - 1

    def __contains__(self, timestamp_us: object) -> bool:
        return isinstance(timestamp_us, int) and self.start_us <= timestamp_us < self.end_us

    def __str__(self) -> str:
        return f"[{format_timestamp(self.start_us)}, {format_timestamp(self.end_us)})"


def windows_of(starts_us: Iterable[int], ends_us: Iterable[int]) -> Iterator[Window]:
    """A window for each pair of bounds; several times as fast as a call for each."""
    return map(partial(tuple.__new__, Window), zip(starts_us, ends_us, strict=True))


#: All of event time: what every element is in until `WindowInto` says otherwise.
GLOBAL_WINDOW = Window(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)
