"""TimestampCombiner: the event time of a pane.  Dataflow Model, section 2.2.2 (GroupAlsoByWindow's timestamp)."""

from enum import Enum


class TimestampCombiner(Enum):
    """Chooses the event time of a pane from all the event times in its window.

    With `EARLIEST` and `LATEST` only records count that were not behind the watermark when they came; a pane that has
    only late records gets the last instant of its window.  In accumulating mode the records count that have come since
    the last pane, otherwise all that are in the pane.

    The window holds the watermark behind the grouping: while it has a pane to emit, at the event time that the pane
    will have, so that the pane is not late there; and where panes are retracted, at the event time of what was emitted,
    plus the allowed lateness, so that no retraction is too late for a consumer that allows the same lateness.  It holds
    it until the window expires: by then the watermark is behind by as much as the window is long, at most.
    """

    #: The last instant of the window: the watermark need not be held.
    END_OF_WINDOW = "end of window"
    #: The event time of the earliest record in the pane.
    EARLIEST = "earliest"
    #: The event time of the latest record in the pane.
    LATEST = "latest"
    #: The same, by the names of Beam's Python SDK.
    OUTPUT_AT_EOW = END_OF_WINDOW
    OUTPUT_AT_EARLIEST = EARLIEST
    OUTPUT_AT_LATEST = LATEST
