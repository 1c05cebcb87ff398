"""AfterCount, Always and Never: triggers that fire by the number of records."""

from collections.abc import Sequence
from typing import Any

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.checks import is_positive_size
from triggers.clocks import Clocks
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


@attrs.frozen
class AfterCount(Trigger):
    """Fires once when at least ``count`` records have come; its state is the number that have come.

    Records that arrive in one bundle are counted together, so a pane may contain more than ``count``.
    """

    count: int = attrs.field(validator=is_positive_size)

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires once, and has then finished."""
        return EarlyFirings.THEN_FINISHES

    def initial_state(self) -> int:
        """No record has come."""
        return 0

    def on_elements(self, state: int, window: Window, elements: Elements, clocks: Clocks) -> int:
        """Count the records."""
        return state + elements.size

    def should_fire(self, state: int, window: Window, clocks: Clocks) -> bool:
        """Whether enough records have come."""
        return state >= self.count

    def on_fire(self, state: int, window: Window, clocks: Clocks) -> Progress:
        """It fires once, and has then finished."""
        return Progress(0, is_finished=True)

    def next_timers(self, state: int, window: Window, clocks: Clocks) -> TriggerTimers:
        """No timers: it does not depend on time."""
        return TriggerTimers()

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """The sum, since the records of all merged windows count."""
        return sum(states)

    def awaited(self, state: int, window: Window, clocks: Clocks) -> Awaited:
        """So many records."""
        return Awaited(
            kind=AwaitedKind.RECORDS, is_met=state >= self.count, have=state, need=self.count
        )


@attrs.frozen
class Always(Trigger):
    """Fires for every bundle that brings records; its state is whether one has come since the last firing."""

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires for each bundle."""
        return EarlyFirings.REPEATED

    def initial_state(self) -> bool:
        """No record has come."""
        return False

    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> bool:
        """A record has come."""
        return True

    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """Whether a record has come."""
        return bool(state)

    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """It starts again, and never finishes."""
        return Progress(self.initial_state())

    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """No timers: it does not depend on time."""
        return TriggerTimers()

    def merge_states(self, states: Sequence[bool], window: Window) -> bool:
        """Whether a record has come to any of the merged windows."""
        return any(states)

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """A record."""
        return Awaited(kind=AwaitedKind.RECORDS, is_met=bool(state), have=int(bool(state)), need=1)


@attrs.frozen
class Never(Trigger):
    """Never fires: everything is emitted in one pane when the window expires."""

    @property
    def early_firings(self) -> EarlyFirings:
        """It has none."""
        return EarlyFirings.NEVER

    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> Any:
        """The state does not change."""
        return state

    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """It never fires."""
        return False

    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """Never called."""
        raise AssertionError("Never does not fire")

    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """No timers: it does not depend on time."""
        return TriggerTimers()

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """Nothing: it never fires."""
        return Awaited(kind=AwaitedKind.NEVER, is_met=False)
