"""AfterWatermark: fires when the watermark passes the window, and optionally early before that and late after it.

Dataflow Model, section 2.3 (completeness estimates, composed with the others).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from triggers.awaited import Awaited, AwaitedKind, Turn, end_awaited
from triggers.checks import check_trigger
from triggers.clocks import Clocks
from triggers.repeatedly import Repeatedly
from triggers.trigger import (
    EarlyFirings,
    Elements,
    Progress,
    Trigger,
    TriggerTimers,
)
from windowing.window import Window


class Phases(NamedTuple):
    """The states of both phases, and whether the on-time pane has been emitted."""

    early: Any
    late: Any
    has_fired_on_time: bool = False


@attrs.frozen(init=False)
class AfterWatermark(Trigger):
    """Fires when the watermark reaches the end of the window; once, unless ``early`` or ``late`` is given.

    Args:
        early: fires repeatedly before that.
        late: fires repeatedly after that; without it, late records are emitted when the window expires.

    The phase depends on the watermark, never on processing time; and a window that has grown past the watermark by
    merging is in its early phase again.
    """

    early: Repeatedly | None
    late: Repeatedly | None

    def __init__(self, *, early: Trigger | None = None, late: Trigger | None = None) -> None:
        for name, phase in (("early", early), ("late", late)):
            if phase is not None:
                check_trigger(f"AfterWatermark ({name})", phase)
        self.__attrs_init__(_repeated(early), _repeated(late))

    @property
    def reads_values(self) -> bool:
        """Whether either phase reads values."""
        return any(phase is not None and phase.reads_values for phase in (self.early, self.late))

    @property
    def early_firings(self) -> EarlyFirings:
        """The early firings of the early phase."""
        return EarlyFirings.NEVER if self.early is None else self.early.early_firings

    def initial_state(self) -> Phases:
        """No pane has been emitted."""
        return Phases(_initial(self.early), _initial(self.late))

    def on_elements(
        self, state: Phases, window: Window, elements: Elements, clocks: Clocks
    ) -> Phases:
        """Pass the elements to the current phase."""
        if state.has_fired_on_time and self.late is not None:
            late = self.late.on_elements(state.late, window, elements, clocks)
            return state._replace(late=late)
        if clocks.watermark_us < window.end_us and self.early is not None:
            early = self.early.on_elements(state.early, window, elements, clocks)
            return state._replace(early=early)
        return state

    @property
    def signals(self) -> frozenset[str]:
        """The signals of both phases."""
        return frozenset().union(
            *(phase.signals for phase in (self.early, self.late) if phase is not None)
        )

    def on_signal(self, state: Phases, window: Window, name: str, clocks: Clocks) -> Phases:
        """Pass the signal to the current phase."""
        if state.has_fired_on_time and self.late is not None:
            late = self.late.on_signal(state.late, window, name, clocks)
            return state._replace(late=late)
        if clocks.watermark_us < window.end_us and self.early is not None:
            early = self.early.on_signal(state.early, window, name, clocks)
            return state._replace(early=early)
        return state

    def should_fire(self, state: Phases, window: Window, clocks: Clocks) -> bool:
        """Whether the trigger of the phase should fire, or the watermark has reached the end between the phases."""
        if state.has_fired_on_time:
            return self.late is not None and self.late.should_fire(state.late, window, clocks)
        if clocks.watermark_us >= window.end_us:
            return True
        return self.early is not None and self.early.should_fire(state.early, window, clocks)

    def on_fire(self, state: Phases, window: Window, clocks: Clocks) -> Progress:
        """After the on-time pane the late phase begins; without one, the trigger has finished."""
        if state.has_fired_on_time:
            assert self.late is not None
            after = self.late.on_fire(state.late, window, clocks)
            return Progress(state._replace(late=after.state))
        if clocks.watermark_us >= window.end_us:
            emitted = self.initial_state()._replace(has_fired_on_time=True)
            return Progress(emitted, is_finished=self.late is None)
        assert self.early is not None
        after = self.early.on_fire(state.early, window, clocks)
        return Progress(state._replace(early=after.state))

    def next_timers(self, state: Phases, window: Window, clocks: Clocks) -> TriggerTimers:
        """Timers at the end of the window, and those of the phase's trigger."""
        trigger, inner = (
            (self.late, state.late) if state.has_fired_on_time else (self.early, state.early)
        )
        end = TriggerTimers(event_us=window.end_us).ahead_of(clocks)
        if trigger is None:
            return end
        timers = trigger.next_timers(inner, window, clocks)
        return end.sooner(timers.ahead_of(clocks))

    def awaited(self, state: Phases, window: Window, clocks: Clocks) -> Awaited:
        """The end of the window; before it what the early phase waits for, and after its pane the late one."""
        end = end_awaited(window, clocks)
        is_early = not state.has_fired_on_time and not end.is_met
        parts = []
        if self.early is not None:
            early = self.early.awaited(state.early, window, clocks).named("early")
            parts.append(early if is_early else early.over())
        parts.append(end.over() if state.has_fired_on_time else end)
        if self.late is not None:
            late = self.late.awaited(state.late, window, clocks).named("late")
            parts.append(late if state.has_fired_on_time else late.later())
        is_met = any(part.is_met for part in parts if part.turn is Turn.NOW)
        return Awaited(kind=AwaitedKind.PHASES, is_met=is_met, parts=tuple(parts))

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """Go back to the early phase, if the on-time pane was emitted for an end of the window that is ahead again."""
        state: Phases = progress.state
        if state.has_fired_on_time and clocks.watermark_us < window.end_us:
            return Progress(self.initial_state())
        early, late = (
            None if phase is None else phase.on_growth(Progress(inner), window, clocks).state
            for phase, inner in ((self.early, state.early), (self.late, state.late))
        )
        return Progress(Phases(early, late, state.has_fired_on_time), progress.is_finished)

    def merge_states(self, states: Sequence[Phases], window: Window) -> Phases:
        """The on-time pane is still ahead unless all of the merged windows have emitted it."""
        return Phases(
            _merged(self.early, [state.early for state in states], window),
            _merged(self.late, [state.late for state in states], window),
            all(state.has_fired_on_time for state in states),
        )


def _repeated(trigger: Trigger | None) -> Repeatedly | None:
    return trigger if trigger is None or isinstance(trigger, Repeatedly) else Repeatedly(trigger)


def _initial(trigger: Trigger | None) -> Any:
    return None if trigger is None else trigger.initial_state()


def _merged(trigger: Trigger | None, states: Sequence[Any], window: Window) -> Any:
    return None if trigger is None else trigger.merge_states(states, window)
