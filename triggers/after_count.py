"""AfterCount, Always and Never: firing by how much has come."""

from collections.abc import Sequence
from typing import Any

import attrs

from triggers.checks import is_positive_size
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


@attrs.frozen
class AfterCount(Trigger):
    """Fire once when at least ``count`` records have come; its state is how many have.

    Records that arrive in one bundle are counted together, so a pane may hold more than ``count``.
    """

    count: int = attrs.field(validator=is_positive_size)

    @property
    def early_firings(self) -> EarlyFirings:
        """One."""
        return EarlyFirings.THEN_FINISHES

    def initial_state(self) -> int:
        """None have come."""
        return 0

    def on_elements(
        self, state: int, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> int:
        """Count."""
        return state + elements.size

    def should_fire(self, state: int, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Whether enough have come."""
        return state >= self.count

    def on_fire(self, state: int, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """Once."""
        return Progress(0, is_finished=True)

    def next_timers(
        self, state: int, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """Time has no part in it."""
        return TriggerTimers()

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """What has come to either has come to both."""
        return sum(states)


@attrs.frozen
class Always(Trigger):
    """Fire whenever a bundle brings something; its state is whether one has."""

    @property
    def early_firings(self) -> EarlyFirings:
        """One for each bundle."""
        return EarlyFirings.REPEATED

    def initial_state(self) -> bool:
        """None has."""
        return False

    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> bool:
        """One has."""
        return True

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Once one has."""
        return bool(state)

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """It never finishes."""
        return Progress(self.initial_state())

    def next_timers(
        self, state: Any, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """Time has no part in it."""
        return TriggerTimers()

    def merge_states(self, states: Sequence[bool], window: Window) -> bool:
        """What has come to either has come to both."""
        return any(states)


@attrs.frozen
class Never(Trigger):
    """Do not fire: everything is said in one pane when the window expires."""

    @property
    def early_firings(self) -> EarlyFirings:
        """None."""
        return EarlyFirings.NEVER

    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> Any:
        """Nothing to remember."""
        return state

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """No."""
        return False

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """Never called."""
        raise AssertionError("Never does not fire")

    def next_timers(
        self, state: Any, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """Time has no part in it."""
        return TriggerTimers()
