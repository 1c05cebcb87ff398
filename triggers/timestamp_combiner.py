"""TimestampCombiner: which event time a pane has.  Dataflow Model, section 2.2.2 (GroupAlsoByWindow's timestamp)."""

from enum import Enum


class TimestampCombiner(Enum):
    """The event time of a pane, of all the event times in its window.

    With `EARLIEST` and `LATEST` the watermark behind the grouping waits for windows that have something to say, so that
    what they say is not late there.
    """

    #: The last instant of the window: the watermark need not wait.
    END_OF_WINDOW = "end of window"
    #: That of the earliest record in the pane.
    EARLIEST = "earliest"
    #: That of the latest record in the pane.
    LATEST = "latest"
