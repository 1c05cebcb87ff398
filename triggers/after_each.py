"""AfterEach: triggers one after the other."""

from collections.abc import Sequence
from typing import Any

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.clocks import Clocks
from triggers.parts import checked_parts, signals_of
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


@attrs.frozen(init=False)
class AfterEach(Trigger):
    """Runs the parts one after the other; it has finished when the last part has.

    Its state is a tuple of the states of the parts, up to the part whose turn it is.
    """

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        self.__attrs_init__(checked_parts("AfterEach", parts))

    @property
    def reads_values(self) -> bool:
        """Whether any part reads values."""
        return any(part.reads_values for part in self.parts)

    @property
    def early_firings(self) -> EarlyFirings:
        """The early firings of the parts up to the first that does not finish."""
        for turn, part in enumerate(self.parts):
            firings = part.early_firings
            if firings is EarlyFirings.NEVER and turn:
                return EarlyFirings.THEN_WAITS
            if firings is not EarlyFirings.THEN_FINISHES:
                return firings
        return EarlyFirings.THEN_FINISHES

    def initial_state(self) -> tuple[Any, ...]:
        """The first part begins."""
        return (self.parts[0].initial_state(),)

    def on_elements(
        self, state: tuple[Any, ...], window: Window, elements: Elements, clocks: Clocks
    ) -> tuple[Any, ...]:
        """Pass the elements to the part whose turn it is."""
        *before, inner = state
        inner = self._turn(state).on_elements(inner, window, elements, clocks)
        return (*before, inner)

    @property
    def signals(self) -> frozenset[str]:
        """The signals of all parts."""
        return signals_of(self.parts)

    def on_signal(
        self, state: tuple[Any, ...], window: Window, name: str, clocks: Clocks
    ) -> tuple[Any, ...]:
        """Pass the signal to the part whose turn it is."""
        *before, inner = state
        after = self._turn(state).on_signal(inner, window, name, clocks)
        return state if after is inner else (*before, after)

    def should_fire(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> bool:
        """Whether the part whose turn it is should fire."""
        return self._turn(state).should_fire(state[-1], window, clocks)

    def on_fire(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> Progress:
        """The turn passes to the next part when this one has finished."""
        *before, inner = state
        after = self._turn(state).on_fire(inner, window, clocks)
        states = (*before, after.state)
        if not after.is_finished:
            return Progress(states)
        if len(states) == len(self.parts):
            return Progress(states, is_finished=True)
        return Progress((*states, self.parts[len(states)].initial_state()))

    def next_timers(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> TriggerTimers:
        """The next timers of the part whose turn it is."""
        return self._turn(state).next_timers(state[-1], window, clocks)

    def awaited(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> Awaited:
        """What the part waits for whose turn it is; parts before it are over, and those behind it come later."""
        *before, inner = state
        now = self._turn(state).awaited(inner, window, clocks)
        parts = (
            *(
                part.awaited(kept, window, clocks).over()
                for part, kept in zip(self.parts, before, strict=False)
            ),
            now,
            *(
                part.awaited(part.initial_state(), window, clocks).later()
                for part in self.parts[len(state) :]
            ),
        )
        return Awaited(kind=AwaitedKind.EACH, is_met=now.is_met, parts=parts)

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """Go back to the first part that had finished for the end of the window, if that end is ahead again."""
        states: list[Any] = []
        turns = len(progress.state)
        for turn, (part, inner) in enumerate(zip(self.parts, progress.state, strict=False), 1):
            had_finished = turn < turns or progress.is_finished
            after = part.on_growth(Progress(inner, had_finished), window, clocks)
            states.append(after.state)
            if not after.is_finished:
                return Progress(tuple(states))
        return Progress(tuple(states), is_finished=True)

    def merge_states(self, states: Sequence[tuple[Any, ...]], window: Window) -> tuple[Any, ...]:
        """Go back to the earliest turn, since what came to one of the windows did not come to all of the merged one."""
        earliest = min(states, key=len)
        *before, _ = earliest
        inner = [state[-1] for state in states if len(state) == len(earliest)]
        return (*before, self._turn(earliest).merge_states(inner, window))

    def _turn(self, state: tuple[Any, ...]) -> Trigger:
        return self.parts[len(state) - 1]
