"""Composite triggers whose parts run side by side: AfterAny, AfterAll, OrFinally.

Each part runs as if it were alone: a composite passes everything on to its parts and keeps the parts' states side by
side.  The state of a part that has fired for the last time is kept too (`Fired`): when the window grows, the end of the
window for which the part fired may be ahead again, and then the composite has not finished either.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.checks import is_trigger
from triggers.clocks import Clocks
from triggers.parts import Fired, awaited_by, checked_parts, grown, kept, merged, signals_of
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


class _Together(Trigger):
    """Parts that receive everything side by side, and decide together; fires once."""

    parts: tuple[Trigger, ...]
    # How the parts are combined.
    _kind: ClassVar[AwaitedKind]

    @abstractmethod
    def is_enough(self, answers: Iterable[bool]) -> bool:
        """Whether the answers of the parts suffice for the composite to fire."""

    @property
    def reads_values(self) -> bool:
        """Whether any part reads values."""
        return any(part.reads_values for part in self.parts)

    def initial_state(self) -> tuple[Any, ...]:
        """The initial states of the parts."""
        return tuple(part.initial_state() for part in self.parts)

    def on_elements(
        self, state: tuple[Any, ...], window: Window, elements: Elements, clocks: Clocks
    ) -> tuple[Any, ...]:
        """Pass the elements to every part."""
        return tuple(
            inner if type(inner) is Fired else part.on_elements(inner, window, elements, clocks)
            for part, inner in zip(self.parts, state, strict=True)
        )

    @property
    def signals(self) -> frozenset[str]:
        """The signals of all parts."""
        return signals_of(self.parts)

    def on_signal(
        self, state: tuple[Any, ...], window: Window, name: str, clocks: Clocks
    ) -> tuple[Any, ...]:
        """Pass the signal to every part."""
        return tuple(
            inner if type(inner) is Fired else part.on_signal(inner, window, name, clocks)
            for part, inner in zip(self.parts, state, strict=True)
        )

    def should_fire(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> bool:
        """Whether enough parts should fire, or have fired."""
        return self.is_enough(
            type(inner) is Fired or part.should_fire(inner, window, clocks)
            for part, inner in zip(self.parts, state, strict=True)
        )

    def on_fire(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> Progress:
        """It fires once; parts that have fired keep their state, the others begin again if it is called again."""
        states = []
        for part, inner in zip(self.parts, state, strict=True):
            if type(inner) is Fired:
                states.append(inner)
            elif part.should_fire(inner, window, clocks):
                after = part.on_fire(inner, window, clocks)
                states.append(Fired(after.state))
            else:
                states.append(part.initial_state())
        return Progress(tuple(states), is_finished=True)

    def next_timers(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> TriggerTimers:
        """The earliest timers of the parts that are still ahead."""
        waiting = (
            (part, inner)
            for part, inner in zip(self.parts, state, strict=True)
            if type(inner) is not Fired
        )
        return _soonest(waiting, window, clocks)

    def awaited(self, state: tuple[Any, ...], window: Window, clocks: Clocks) -> Awaited:
        """What the parts wait for; those that have fired are over."""
        parts = tuple(
            awaited_by(part, inner, window, clocks)
            for part, inner in zip(self.parts, state, strict=True)
        )
        is_met = self.is_enough(part.is_met for part in parts)
        return Awaited(kind=self._kind, is_met=is_met, parts=parts)

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """It has finished only if enough of the parts for which it fired still have."""
        states = tuple(
            grown(part, inner, window, clocks)
            for part, inner in zip(self.parts, progress.state, strict=True)
        )
        have_fired = (type(inner) is Fired for inner in states)
        return Progress(states, progress.is_finished and self.is_enough(have_fired))

    def merge_states(self, states: Sequence[tuple[Any, ...]], window: Window) -> tuple[Any, ...]:
        """Merge the states of each part."""
        return tuple(
            merged(part, inner, window)
            for part, inner in zip(self.parts, zip(*states, strict=True), strict=True)
        )


@attrs.frozen(init=False)
class AfterAny(_Together):
    """Fires once, as soon as one of the parts should."""

    parts: tuple[Trigger, ...]
    _kind: ClassVar[AwaitedKind] = AwaitedKind.ANY

    def __init__(self, *parts: Trigger) -> None:
        self.__attrs_init__(checked_parts("AfterAny", parts))

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires once, if any part fires."""
        return _once(fires=any(_fires(part) for part in self.parts))

    def is_enough(self, answers: Iterable[bool]) -> bool:
        """Whether any part answers yes."""
        return any(answers)


@attrs.frozen(init=False)
class AfterAll(_Together):
    """Fires once, when all of the parts should, in whatever order their conditions become true."""

    parts: tuple[Trigger, ...]
    _kind: ClassVar[AwaitedKind] = AwaitedKind.ALL

    def __init__(self, *parts: Trigger) -> None:
        self.__attrs_init__(checked_parts("AfterAll", parts))

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires once, if every part fires."""
        return _once(fires=all(_fires(part) for part in self.parts))

    def is_enough(self, answers: Iterable[bool]) -> bool:
        """Whether all parts answer yes."""
        return all(answers)


@attrs.frozen
class OrFinally(Trigger):
    """Fires as ``part`` does until ``until`` fires; then it has finished.  Its state is a pair of both states.

    Args:
        part: the trigger that fires until then.
        until: the trigger that ends it, and fires itself once.
    """

    part: Trigger = attrs.field(validator=is_trigger)
    until: Trigger = attrs.field(validator=is_trigger)

    @property
    def reads_values(self) -> bool:
        """Whether either trigger reads values."""
        return self.part.reads_values or self.until.reads_values

    @property
    def early_firings(self) -> EarlyFirings:
        """The early firings of the part, unless ``until`` ends them."""
        return _once(fires=True) if _fires(self.until) else self.part.early_firings

    def initial_state(self) -> tuple[Any, Any]:
        """The initial states of both triggers."""
        return self.part.initial_state(), self.until.initial_state()

    def on_elements(
        self, state: tuple[Any, Any], window: Window, elements: Elements, clocks: Clocks
    ) -> tuple[Any, Any]:
        """Pass the elements to both triggers."""
        part, until = (
            trigger.on_elements(inner, window, elements, clocks)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )
        return part, until

    @property
    def signals(self) -> frozenset[str]:
        """The signals of both triggers."""
        return self.part.signals | self.until.signals

    def on_signal(
        self, state: tuple[Any, Any], window: Window, name: str, clocks: Clocks
    ) -> tuple[Any, Any]:
        """Pass the signal to both triggers."""
        part, until = (
            trigger.on_signal(inner, window, name, clocks)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )
        return part, until

    def should_fire(self, state: tuple[Any, Any], window: Window, clocks: Clocks) -> bool:
        """Whether either trigger should fire."""
        return any(
            trigger.should_fire(inner, window, clocks)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )

    def on_fire(self, state: tuple[Any, Any], window: Window, clocks: Clocks) -> Progress:
        """It has finished when ``until`` has fired, or ``part`` has finished."""
        part, until = state
        if self.part.should_fire(part, window, clocks):
            part = kept(self.part.on_fire(part, window, clocks))
        is_over = self.until.should_fire(until, window, clocks)
        if is_over:
            until = Fired(self.until.on_fire(until, window, clocks).state)
        return Progress((part, until), is_over or type(part) is Fired)

    def next_timers(self, state: tuple[Any, Any], window: Window, clocks: Clocks) -> TriggerTimers:
        """The earliest timers of both triggers that are still ahead."""
        both = zip((self.part, self.until), state, strict=True)
        return _soonest(both, window, clocks)

    def awaited(self, state: tuple[Any, Any], window: Window, clocks: Clocks) -> Awaited:
        """What both triggers wait for."""
        part, until = (
            awaited_by(trigger, inner, window, clocks)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )
        return Awaited(
            kind=AwaitedKind.ANY,
            is_met=part.is_met or until.is_met,
            parts=(part, until.named("finally")),
        )

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """It has finished only if the trigger for which it finished still has."""
        part, until = progress.state
        if progress.is_finished and type(part) is not Fired and type(until) is not Fired:
            # The composite around this one has counted the last firing, which was that of the part, as its own.
            part = Fired(part)
        part, until = (
            grown(trigger, inner, window, clocks)
            for trigger, inner in zip((self.part, self.until), (part, until), strict=True)
        )
        have_fired = type(part) is Fired or type(until) is Fired
        return Progress((part, until), progress.is_finished and have_fired)

    def merge_states(self, states: Sequence[tuple[Any, Any]], window: Window) -> tuple[Any, Any]:
        """Merge the states of each trigger by itself."""
        parts, untils = zip(*states, strict=True)
        return merged(self.part, parts, window), merged(self.until, untils, window)


def _fires(trigger: Trigger) -> bool:
    return trigger.early_firings is not EarlyFirings.NEVER


def _once(*, fires: bool) -> EarlyFirings:
    return EarlyFirings.THEN_FINISHES if fires else EarlyFirings.NEVER


def _soonest(parts: Iterable[tuple[Trigger, Any]], window: Window, clocks: Clocks) -> TriggerTimers:
    soonest = TriggerTimers()
    for part, state in parts:
        timers = part.next_timers(state, window, clocks)
        # A part whose instant has passed must not hide one whose instant is still ahead.
        soonest = soonest.sooner(timers.ahead_of(clocks))
    return soonest
