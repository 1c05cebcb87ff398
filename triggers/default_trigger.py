"""DefaultTrigger: fires when the watermark passes the window, and again for later records."""

from typing import Any

import attrs

from triggers.awaited import Awaited, end_awaited
from triggers.clocks import Clocks
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


@attrs.frozen
class DefaultTrigger(Trigger):
    """Fires when the watermark reaches the end of the window, then on every late arrival.

    It needs no state: whether the window has ended depends on the watermark alone, so merging cannot make it wrong.
    """

    @property
    def early_firings(self) -> EarlyFirings:
        """It has none."""
        return EarlyFirings.NEVER

    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> Any:
        """The state does not change."""
        return state

    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """Whether the watermark has reached the end of the window."""
        return clocks.watermark_us >= window.end_us

    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """It never finishes."""
        return Progress(state)

    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """A timer at the end of the window."""
        return TriggerTimers(event_us=window.end_us)

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """The end of the window."""
        return end_awaited(window, clocks)

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """A composite for which it has fired runs it again, if the end of the window is ahead again."""
        return Progress(None, progress.is_finished and clocks.watermark_us >= window.end_us)
