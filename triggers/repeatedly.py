"""Repeatedly: a trigger that is started again whenever it has finished."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.checks import is_trigger
from triggers.clocks import Clocks
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


class Finished(NamedTuple):
    """Stands for the state of a part that is about to start again; keeps the state that the part finished with.

    It is kept because the end of the window for which the part may have finished is ahead again when the window grows.
    """

    state: Any


@attrs.frozen
class Repeatedly(Trigger):
    """Starts the part again whenever it has finished; never finishes itself."""

    part: Trigger = attrs.field(validator=is_trigger)

    @property
    def reads_values(self) -> bool:
        """Whether the part reads values."""
        return self.part.reads_values

    @property
    def early_firings(self) -> EarlyFirings:
        """The early firings of the part, repeated unless the part waits."""
        part = self.part.early_firings
        return EarlyFirings.REPEATED if part is EarlyFirings.THEN_FINISHES else part

    def initial_state(self) -> Any:
        """The initial state of the part."""
        return self.part.initial_state()

    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> Any:
        """Pass the elements to the part."""
        return self.part.on_elements(self._running(state), window, elements, clocks)

    @property
    def signals(self) -> frozenset[str]:
        """The signals of the part."""
        return self.part.signals

    def on_signal(self, state: Any, window: Window, name: str, clocks: Clocks) -> Any:
        """Pass the signal to the part."""
        running = self._running(state)
        after = self.part.on_signal(running, window, name, clocks)
        return state if after is running else after

    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """Whether the part should fire."""
        return self.part.should_fire(self._running(state), window, clocks)

    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """The part starts again if it has finished."""
        after = self.part.on_fire(self._running(state), window, clocks)
        if not after.is_finished:
            return after
        # Most parts finish for good, even if the window grows.
        is_final = type(self.part).on_growth is Trigger.on_growth
        return Progress(self.initial_state() if is_final else Finished(after.state))

    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """The timers of the part."""
        return self.part.next_timers(self._running(state), window, clocks)

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """What the part waits for."""
        part = self.part.awaited(self._running(state), window, clocks)
        return Awaited(kind=AwaitedKind.REPEATEDLY, is_met=part.is_met, parts=(part,))

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """The progress of the part; before its last firing, if that was for an end that is ahead again."""
        has_finished = type(progress.state) is Finished
        part = Progress(
            progress.state.state if has_finished else progress.state,
            is_finished=has_finished or progress.is_finished,
        )
        after = self.part.on_growth(part, window, clocks)
        if not after.is_finished:
            return Progress(after.state)
        return Progress(Finished(after.state), progress.is_finished)

    def merge_states(self, states: Sequence[Any], window: Window) -> Any:
        """The merged state of the windows where the part is running; those where it is to start again add nothing."""
        running = [state for state in states if type(state) is not Finished]
        return self.part.merge_states(running, window) if running else states[0]

    def _running(self, state: Any) -> Any:
        return self.part.initial_state() if type(state) is Finished else state
