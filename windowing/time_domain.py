"""TimeDomain: the clocks that a timer can follow.  Dataflow Model, section 1.3."""

from enum import StrEnum


class TimeDomain(StrEnum):
    """Event time is measured by the watermark; processing time by the clock of the machine.

    ``PERCENTILE`` is event time as measured by a percentile watermark; for triggers, not for DoFns.
    """

    EVENT = "event"
    PROCESSING = "processing"
    PERCENTILE = "percentile"
