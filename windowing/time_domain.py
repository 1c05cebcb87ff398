"""TimeDomain: the two clocks that a timer can follow.  Dataflow Model, section 1.3."""

from enum import StrEnum


class TimeDomain(StrEnum):
    """Event time is what the watermark measures; processing time is what the clock on the wall does."""

    EVENT = "event"
    PROCESSING = "processing"
