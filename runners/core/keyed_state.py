"""KeyedState: the cell of a stateful DoFn, that is, what is kept for one key and window."""

from typing import Any

import attrs

from dataflow.user_state import SetTimer
from triggers.trigger import Wakeup
from windowing.pane import PaneInfo
from windowing.timestamps import MIN_TIMESTAMP_US

#: One element on its way to a stateful DoFn: value, event time, pane, sign.
Input = tuple[Any, int, PaneInfo, int]

_NO_TIMERS = Wakeup()


@attrs.define
class KeyedState:
    """State and timers by their names.

    ``backlog``: elements whose turn in time order has not come, in order of arrival.  ``wakeup``: the engine's timers
    that are set: for each domain the first instant at which something has to happen.
    """

    values: dict[str, Any] = attrs.field(factory=dict)
    timers: dict[str, SetTimer] = attrs.field(factory=dict)
    backlog: list[Input] = attrs.field(factory=list)
    wakeup: Wakeup = _NO_TIMERS
    # The rest is of one step, and not kept.
    #: Elements whose turn is now, the first one last.
    ready: list[Input] = attrs.field(factory=list, eq=False, repr=False)
    #: The watermark as it is here: while there are such elements, at one of them.
    watermark_us: int = attrs.field(default=MIN_TIMESTAMP_US, eq=False, repr=False)
    #: Timers that have fired because the window has expired.
    called: set[str] = attrs.field(factory=set, eq=False, repr=False)
    #: How many timers have fired since the last element.
    firings: int = attrs.field(default=0, eq=False, repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not (self.values or self.timers or self.backlog)

    def __reduce__(self) -> tuple[Any, ...]:
        # As for `WindowState`: a plain call with plain tuples; most cells have no backlog.
        kept = self.values, self.timers, tuple(self.wakeup)
        return _restored, (*kept, self.backlog) if self.backlog else kept


def _restored(
    values: dict[str, Any],
    timers: dict[str, SetTimer],
    wakeup: tuple[int | None, ...],
    backlog: list[Input] | None = None,
) -> KeyedState:
    return KeyedState(values, timers, backlog or [], Wakeup(*wakeup))
