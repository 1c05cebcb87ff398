"""DefaultTrigger: fires when the watermark passes the window, and again for later records."""

from typing import Any

import attrs

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

    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> Any:
        """The state does not change."""
        return state

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Whether the watermark has reached the end of the window."""
        return watermark_us >= window.end_us

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """It never finishes."""
        return Progress(state)

    def next_timers(
        self, state: Any, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """A timer at the end of the window."""
        return TriggerTimers(event_us=window.end_us)

    def on_growth(self, progress: Progress, window: Window, *, watermark_us: int) -> Progress:
        """A composite for which it has fired runs it again, if the end of the window is ahead again."""
        return Progress(None, progress.is_finished and watermark_us >= window.end_us)
