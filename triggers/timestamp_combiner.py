"""TimestampCombiner: which event time a pane has.  Dataflow Model, section 2.2.2 (GroupAlsoByWindow's timestamp)."""

from enum import Enum


class TimestampCombiner(Enum):
    """The event time of a pane, of all the event times in its window.

    With `EARLIEST` and `LATEST` only records count that came before the watermark had passed them; a pane of nothing
    but others has the last instant of its window.  In accumulating mode those count that have come since the last
    pane, else all that are in the pane.

    The watermark behind the grouping waits: for a window that has something to say, at the event time that its pane
    will have, so that the pane is not late there; and where panes are taken back, at the event time of what was said,
    plus the allowed lateness, so that no retraction is too late for whoever allows the same lateness.  It waits until
    the window expires: by then the watermark is behind by as much as the window is long, at most.
    """

    #: The last instant of the window: the watermark need not wait.
    END_OF_WINDOW = "end of window"
    #: That of the earliest record in the pane.
    EARLIEST = "earliest"
    #: That of the latest record in the pane.
    LATEST = "latest"
