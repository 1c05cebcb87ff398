"""Composite triggers: Repeatedly, AfterEach, AfterAny, AfterAll, OrFinally.

Each part believes it is alone: a composite hands on what it is told and keeps the parts' states side by side.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from triggers.checks import is_trigger
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, Wakeup
from windowing.errors import WindowError
from windowing.window import Window


@attrs.frozen
class Repeatedly(Trigger):
    """Start the part again whenever it has finished; never finishes itself."""

    part: Trigger = attrs.field(validator=is_trigger)

    @property
    def reads_values(self) -> bool:
        """If the part does."""
        return self.part.reads_values

    @property
    def early_firings(self) -> EarlyFirings:
        """The part's, over and over unless it gets stuck."""
        part = self.part.early_firings
        return EarlyFirings.REPEATED if part is EarlyFirings.THEN_FINISHES else part

    def initial_state(self) -> Any:
        """The part's."""
        return self.part.initial_state()

    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> Any:
        """The part's."""
        return self.part.on_elements(
            state, window, elements, watermark_us=watermark_us, now_us=now_us
        )

    @property
    def signals(self) -> frozenset[str]:
        """Those of the part."""
        return self.part.signals

    def on_signal(
        self, state: Any, window: Window, name: str, *, watermark_us: int, now_us: int
    ) -> Any:
        """The part's."""
        return self.part.on_signal(state, window, name, watermark_us=watermark_us, now_us=now_us)

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """When the part does."""
        return self.part.should_fire(state, window, watermark_us=watermark_us, now_us=now_us)

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """The part starts again when it has finished."""
        after = self.part.on_fire(state, window, watermark_us=watermark_us, now_us=now_us)
        return Progress(self.initial_state()) if after.is_finished else after

    def next_wakeup(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Wakeup:
        """The part's."""
        return self.part.next_wakeup(state, window, watermark_us=watermark_us, now_us=now_us)

    def merge_states(self, states: Sequence[Any], window: Window) -> Any:
        """The part's."""
        return self.part.merge_states(states, window)


@attrs.frozen(init=False)
class AfterEach(Trigger):
    """The parts one after the other; finished when the last has.  Its state: which part, and that part's state."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        self.__attrs_init__(_checked("AfterEach", parts))

    @property
    def reads_values(self) -> bool:
        """If any part does."""
        return any(part.reads_values for part in self.parts)

    @property
    def early_firings(self) -> EarlyFirings:
        """Those of the parts up to the first that does not finish."""
        for turn, part in enumerate(self.parts):
            firings = part.early_firings
            if firings is EarlyFirings.NEVER and turn:
                return EarlyFirings.THEN_WAITS
            if firings is not EarlyFirings.THEN_FINISHES:
                return firings
        return EarlyFirings.THEN_FINISHES

    def initial_state(self) -> tuple[int, Any]:
        """At the first part."""
        return 0, self.parts[0].initial_state()

    def on_elements(
        self,
        state: tuple[int, Any],
        window: Window,
        elements: Elements,
        *,
        watermark_us: int,
        now_us: int,
    ) -> tuple[int, Any]:
        """Seen by the part whose turn it is."""
        turn, inner = state
        inner = self.parts[turn].on_elements(
            inner, window, elements, watermark_us=watermark_us, now_us=now_us
        )
        return turn, inner

    @property
    def signals(self) -> frozenset[str]:
        """Those of all the parts."""
        return _heard_by(self.parts)

    def on_signal(
        self, state: tuple[int, Any], window: Window, name: str, *, watermark_us: int, now_us: int
    ) -> tuple[int, Any]:
        """Heard by the part whose turn it is."""
        turn, inner = state
        inner = self.parts[turn].on_signal(
            inner, window, name, watermark_us=watermark_us, now_us=now_us
        )
        return turn, inner

    def should_fire(
        self, state: tuple[int, Any], window: Window, *, watermark_us: int, now_us: int
    ) -> bool:
        """When the part does whose turn it is."""
        turn, inner = state
        return self.parts[turn].should_fire(inner, window, watermark_us=watermark_us, now_us=now_us)

    def on_fire(
        self, state: tuple[int, Any], window: Window, *, watermark_us: int, now_us: int
    ) -> Progress:
        """The next part's turn comes when this one has finished."""
        turn, inner = state
        after = self.parts[turn].on_fire(inner, window, watermark_us=watermark_us, now_us=now_us)
        if not after.is_finished:
            return Progress((turn, after.state))
        if turn + 1 == len(self.parts):
            return Progress(state, is_finished=True)
        return Progress((turn + 1, self.parts[turn + 1].initial_state()))

    def next_wakeup(
        self, state: tuple[int, Any], window: Window, *, watermark_us: int, now_us: int
    ) -> Wakeup:
        """That of the part whose turn it is."""
        turn, inner = state
        return self.parts[turn].next_wakeup(inner, window, watermark_us=watermark_us, now_us=now_us)

    def merge_states(self, states: Sequence[tuple[int, Any]], window: Window) -> tuple[int, Any]:
        """Back to the earliest turn: what has come to only one of the windows has not come to all of the merged one."""
        turn = min(each for each, _ in states)
        inner = [each for other, each in states if other == turn]
        return turn, self.parts[turn].merge_states(inner, window)


class _Together(Trigger):
    """Parts that see everything side by side and are asked together; fires once."""

    parts: tuple[Trigger, ...]

    @property
    def reads_values(self) -> bool:
        """If any part does."""
        return any(part.reads_values for part in self.parts)

    def initial_state(self) -> tuple[Any, ...]:
        """The parts'."""
        return tuple(part.initial_state() for part in self.parts)

    def on_elements(
        self,
        state: tuple[Any, ...],
        window: Window,
        elements: Elements,
        *,
        watermark_us: int,
        now_us: int,
    ) -> tuple[Any, ...]:
        """Seen by every part."""
        return tuple(
            part.on_elements(inner, window, elements, watermark_us=watermark_us, now_us=now_us)
            for part, inner in zip(self.parts, state, strict=True)
        )

    @property
    def signals(self) -> frozenset[str]:
        """Those of all the parts."""
        return _heard_by(self.parts)

    def on_signal(
        self, state: tuple[Any, ...], window: Window, name: str, *, watermark_us: int, now_us: int
    ) -> tuple[Any, ...]:
        """Heard by every part."""
        return tuple(
            part.on_signal(inner, window, name, watermark_us=watermark_us, now_us=now_us)
            for part, inner in zip(self.parts, state, strict=True)
        )

    def answers(
        self, state: tuple[Any, ...], window: Window, *, watermark_us: int, now_us: int
    ) -> list[bool]:
        """What each part says to `should_fire`."""
        return [
            part.should_fire(inner, window, watermark_us=watermark_us, now_us=now_us)
            for part, inner in zip(self.parts, state, strict=True)
        ]

    def on_fire(
        self, state: tuple[Any, ...], window: Window, *, watermark_us: int, now_us: int
    ) -> Progress:
        """Once."""
        return Progress(self.initial_state(), is_finished=True)

    def next_wakeup(
        self, state: tuple[Any, ...], window: Window, *, watermark_us: int, now_us: int
    ) -> Wakeup:
        """The soonest that is still ahead."""
        return _soonest(zip(self.parts, state, strict=True), window, watermark_us, now_us)

    def merge_states(self, states: Sequence[tuple[Any, ...]], window: Window) -> tuple[Any, ...]:
        """Part by part."""
        return tuple(
            part.merge_states(inner, window)
            for part, inner in zip(self.parts, zip(*states, strict=True), strict=True)
        )


@attrs.frozen(init=False)
class AfterAny(_Together):
    """Fire once, as soon as one of the parts would."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        self.__attrs_init__(_checked("AfterAny", parts))

    @property
    def early_firings(self) -> EarlyFirings:
        """One, if any part has one."""
        return _once(fires=any(_fires(part) for part in self.parts))

    def should_fire(
        self, state: tuple[Any, ...], window: Window, *, watermark_us: int, now_us: int
    ) -> bool:
        """Whether any part would."""
        return any(self.answers(state, window, watermark_us=watermark_us, now_us=now_us))


@attrs.frozen(init=False)
class AfterAll(_Together):
    """Fire once, when all of the parts would; in whatever order their conditions come true."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        self.__attrs_init__(_checked("AfterAll", parts))

    @property
    def early_firings(self) -> EarlyFirings:
        """One, if every part has one."""
        return _once(fires=all(_fires(part) for part in self.parts))

    def should_fire(
        self, state: tuple[Any, ...], window: Window, *, watermark_us: int, now_us: int
    ) -> bool:
        """Whether every part would."""
        return all(self.answers(state, window, watermark_us=watermark_us, now_us=now_us))


@attrs.frozen
class OrFinally(Trigger):
    """Fire as ``part`` does until ``until`` fires; then once more, and finished.  Its state: both states."""

    part: Trigger = attrs.field(validator=is_trigger)
    until: Trigger = attrs.field(validator=is_trigger)

    @property
    def reads_values(self) -> bool:
        """If either does."""
        return self.part.reads_values or self.until.reads_values

    @property
    def early_firings(self) -> EarlyFirings:
        """The part's, unless ``until`` ends them."""
        return _once(fires=True) if _fires(self.until) else self.part.early_firings

    def initial_state(self) -> tuple[Any, Any]:
        """Both."""
        return self.part.initial_state(), self.until.initial_state()

    def on_elements(
        self,
        state: tuple[Any, Any],
        window: Window,
        elements: Elements,
        *,
        watermark_us: int,
        now_us: int,
    ) -> tuple[Any, Any]:
        """Seen by both."""
        part, until = (
            trigger.on_elements(inner, window, elements, watermark_us=watermark_us, now_us=now_us)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )
        return part, until

    @property
    def signals(self) -> frozenset[str]:
        """Those of both."""
        return self.part.signals | self.until.signals

    def on_signal(
        self, state: tuple[Any, Any], window: Window, name: str, *, watermark_us: int, now_us: int
    ) -> tuple[Any, Any]:
        """Heard by both."""
        part, until = (
            trigger.on_signal(inner, window, name, watermark_us=watermark_us, now_us=now_us)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )
        return part, until

    def should_fire(
        self, state: tuple[Any, Any], window: Window, *, watermark_us: int, now_us: int
    ) -> bool:
        """When either does."""
        return any(
            trigger.should_fire(inner, window, watermark_us=watermark_us, now_us=now_us)
            for trigger, inner in zip((self.part, self.until), state, strict=True)
        )

    def on_fire(
        self, state: tuple[Any, Any], window: Window, *, watermark_us: int, now_us: int
    ) -> Progress:
        """Finished when ``until`` has fired, or ``part`` has finished."""
        part, until = state
        if self.until.should_fire(until, window, watermark_us=watermark_us, now_us=now_us):
            return Progress(state, is_finished=True)
        after = self.part.on_fire(part, window, watermark_us=watermark_us, now_us=now_us)
        return Progress((after.state, until), after.is_finished)

    def next_wakeup(
        self, state: tuple[Any, Any], window: Window, *, watermark_us: int, now_us: int
    ) -> Wakeup:
        """The soonest that is still ahead."""
        both = zip((self.part, self.until), state, strict=True)
        return _soonest(both, window, watermark_us, now_us)

    def merge_states(self, states: Sequence[tuple[Any, Any]], window: Window) -> tuple[Any, Any]:
        """Each for itself."""
        parts, untils = zip(*states, strict=True)
        return self.part.merge_states(parts, window), self.until.merge_states(untils, window)


def _heard_by(parts: Iterable[Trigger]) -> frozenset[str]:
    return frozenset().union(*(part.signals for part in parts))


def _fires(trigger: Trigger) -> bool:
    return trigger.early_firings is not EarlyFirings.NEVER


def _once(*, fires: bool) -> EarlyFirings:
    return EarlyFirings.THEN_FINISHES if fires else EarlyFirings.NEVER


def _soonest(
    parts: Iterable[tuple[Trigger, Any]], window: Window, watermark_us: int, now_us: int
) -> Wakeup:
    soonest = Wakeup()
    for part, state in parts:
        wakeup = part.next_wakeup(state, window, watermark_us=watermark_us, now_us=now_us)
        # A part whose time has come must not hide one whose time is still ahead.
        soonest = soonest.sooner(wakeup.ahead_of(watermark_us, now_us))
    return soonest


def _checked(name: str, parts: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    if not parts or not all(isinstance(part, Trigger) for part in parts):
        raise WindowError(
            f"{name} needs triggers, not {parts!r}",
            hint=f"e.g. df.{name}(df.AfterCount(10), ...); classes must be called",
        )
    return parts
