"""TimeDomain: the clocks that a timer can follow.  Dataflow Model, section 1.3."""

from enum import StrEnum


class TimeDomain(StrEnum):
    """Event time is what the watermark measures; processing time is what the clock on the wall does.

    ``PERCENTILE`` is event time again, as measured by a percentile watermark; for triggers, not for DoFns.
    """

    EVENT = "event"
    PROCESSING = "processing"
    PERCENTILE = "percentile"
