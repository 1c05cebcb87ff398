"""Trigger: when a window speaks, as pure transitions over a state that somebody else keeps.

Every verb gets the watermark (event time) and ``now_us`` (processing time) as two arguments: mistaking one
for the other is how a backlog gets labelled late.  A trigger keeps nothing on itself; its state is an immutable value,
None where it needs none.

A trigger that has *finished* does not fire again; what comes afterwards is kept, and said when the window expires.

Dataflow Model, section 2.3.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from windowing.errors import WindowError
from windowing.window import Window


class TriggerTimers(NamedTuple):
    """The next instants at which a trigger wants to be asked again; None: not by time."""

    event_us: int | None = None
    processing_us: int | None = None

    def ahead_of(self, watermark_us: int, now_us: int) -> "TriggerTimers":
        """Without the instants that have passed: whoever waited for them has been asked already."""
        event_us, processing_us = self
        return TriggerTimers(
            None if event_us is None or event_us <= watermark_us else event_us,
            None if processing_us is None or processing_us <= now_us else processing_us,
        )

    def sooner(self, other: "TriggerTimers") -> "TriggerTimers":
        """The earlier of the two in each time domain; both should be ahead."""
        return TriggerTimers(
            _sooner(self.event_us, other.event_us), _sooner(self.processing_us, other.processing_us)
        )


class Progress(NamedTuple):
    """How far a trigger is in one window: its state, and whether it has finished."""

    state: Any = None
    is_finished: bool = False


class EarlyFirings(Enum):
    """What a trigger does as long as the watermark has not reached the end of the window.

    Where that end never comes, as in the global window of an input without end, it is all that is ever said.
    """

    #: Nothing: it waits for the end of the window.
    NEVER = "never"
    #: It fires, and from then on waits for the end of the window.
    THEN_WAITS = "then waits"
    #: It fires, and has then finished.
    THEN_FINISHES = "then finishes"
    #: It fires again and again.
    REPEATED = "repeated"


class Elements(NamedTuple):
    """Records that have come: how many, and, for a trigger that `reads_values`, the values."""

    size: int
    values: Sequence[Any] = ()


class Trigger(ABC):
    """Decides, for one key and window, when a pane is emitted.  Instances are frozen values.

    Write one of your own by overriding the abstract verbs.  Override `merge_states` too, if its state is not None;
    `early_firings`, if it waits for the watermark or finishes; `on_growth`, if it fires for the end of the window; and
    `signals` with `on_signal`, if it hears signals.
    """

    @property
    def early_firings(self) -> EarlyFirings:
        """What it does before the watermark reaches the end of the window, if everything that can come comes.

        Known without running it, so that a pipeline that could never say anything is refused when it is built.
        """
        return EarlyFirings.REPEATED

    @property
    def reads_values(self) -> bool:
        """Whether `on_elements` needs the values.

        They are then not combined before the shuffle, so only say so where it is so.
        """
        return False

    @property
    def signals(self) -> frozenset[str]:
        """The names of the signals that `on_signal` wants to hear of; it hears of no other ones."""
        return frozenset()

    def initial_state(self) -> Any:
        """State of a window that has seen nothing."""
        return None

    def on_signal(
        self, state: Any, window: Window, name: str, *, watermark_us: int, now_us: int
    ) -> Any:
        """State after a signal has reached the job.

        The same object again means that it makes no difference here.
        """
        return state

    @abstractmethod
    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> Any:
        """State after more records."""

    @abstractmethod
    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Whether the window should emit a pane now."""

    @abstractmethod
    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """How far the trigger is after a pane was emitted because `should_fire` said so."""

    @abstractmethod
    def next_timers(
        self, state: Any, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """When to ask `should_fire` again although no record came; instants that have passed do not matter."""

    def merge_states(self, states: Sequence[Any], window: Window) -> Any:
        """State of ``window``, into which windows with these states (one or more) have merged.

        Raises:
            WindowError: there are several that are not None, and the trigger does not override this.
        """
        if len(states) > 1 and any(state is not None for state in states):
            raise WindowError(
                f"trigger {self!r} does not say how the states of windows that merge become one",
                detail=f"states of windows that merge into {window}: {', '.join(map(repr, states))}",
                hint="override merge_states(states, window); for a count it is sum(states)",
            )
        return states[0]

    def on_growth(self, progress: Progress, window: Window, *, watermark_us: int) -> Progress:
        """How far the trigger is in ``window``, which was smaller when it was so far.

        Override it where the trigger waits for the end of the window: the end for which it has fired may be ahead
        again.  A trigger that is made of others asks each of them.

        Args:
            progress: how far it was; finished also if it is part of a trigger that asks it no more.
            window: as it is now; it covers what it was.
            watermark_us: of event time.
        """
        return progress

    def on_merge(
        self,
        sources: Sequence[Progress],
        window: Window,
        *,
        watermark_us: int,
    ) -> Progress:
        """How far the trigger is in ``window``, into which windows that were so far have merged.

        Each of them has first grown.  It has finished only where it then has in all of them, so a closed window does
        not silence the others.
        """
        grown = [self.on_growth(source, window, watermark_us=watermark_us) for source in sources]
        open_states = [each.state for each in grown if not each.is_finished]
        if len(grown) == 1 or not open_states:
            return grown[0]
        return Progress(self.merge_states(open_states, window))


def _sooner(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
