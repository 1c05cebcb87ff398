"""Trigger: decides when a window fires, as pure transitions over a state that the caller keeps.

Every method that depends on time gets the `Clocks`: the watermark (event time) and the processing time, as two named
fields.  A trigger object has no state of its own; the state of a window is an immutable value, None where a trigger
needs none.

A trigger that has *finished* does not fire again; records that come afterwards are kept, and emitted when the window
expires.

Dataflow Model, section 2.3.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from triggers.awaited import Awaited, AwaitedKind
from triggers.clocks import Clocks
from windowing.errors import WindowError
from windowing.window import Window


class TriggerTimers(NamedTuple):
    """The next instants at which a trigger wants to be called again, in microseconds; None: not by time."""

    event_us: int | None = None
    processing_us: int | None = None

    def ahead_of(self, clocks: Clocks) -> "TriggerTimers":
        """The timers without the instants that have passed, as they have fired already.

        Args:
            clocks: the clocks.
        """
        event_us, processing_us = self
        return TriggerTimers(
            None if event_us is None or event_us <= clocks.watermark_us else event_us,
            None if processing_us is None or processing_us <= clocks.now_us else processing_us,
        )

    def sooner(self, other: "TriggerTimers") -> "TriggerTimers":
        """The earlier timer in each time domain; both should be ahead."""
        return TriggerTimers(
            _sooner(self.event_us, other.event_us), _sooner(self.processing_us, other.processing_us)
        )


class Progress(NamedTuple):
    """The progress of a trigger in one window: its state, and whether it has finished."""

    state: Any = None
    is_finished: bool = False


class EarlyFirings(Enum):
    """What a trigger does as long as the watermark has not reached the end of the window.

    Where that end never comes, as in the global window of an unbounded input, nothing else is ever emitted.
    """

    #: Nothing: it waits for the end of the window.
    NEVER = "never"
    #: It fires, and from then on waits for the end of the window.
    THEN_WAITS = "then waits"
    #: It fires, and has then finished.
    THEN_FINISHES = "then finishes"
    #: It fires repeatedly.
    REPEATED = "repeated"


class Elements(NamedTuple):
    """Records that have come: how many, and, for a trigger that `reads_values`, the values."""

    size: int
    values: Sequence[Any] = ()


class Trigger(ABC):
    """Decides, for one key and window, when a pane is emitted.  Instances are frozen values.

    To write one, override the abstract methods.  Override `merge_states` too, if its state is not None;
    `early_firings`, if it waits for the watermark or finishes; `on_growth`, if it fires for the end of the window; and
    `signals` with `on_signal`, if it listens to signals; and `awaited`, to show people what it waits for.
    """

    @property
    def early_firings(self) -> EarlyFirings:
        """The firings before the watermark reaches the end of the window, if all possible records and signals come.

        It is known without running the trigger, so that a pipeline that could never emit anything is refused when it is
        built.
        """
        return EarlyFirings.REPEATED

    @property
    def reads_values(self) -> bool:
        """Whether `on_elements` needs the values.

        They are then not combined before the shuffle, so return True only if they are needed.
        """
        return False

    @property
    def signals(self) -> frozenset[str]:
        """The names of the signals that `on_signal` receives; it does not receive others."""
        return frozenset()

    def initial_state(self) -> Any:
        """The state of a window that has received no record."""
        return None

    def on_signal(self, state: Any, window: Window, name: str, clocks: Clocks) -> Any:
        """The state after a signal has reached the job.

        If the signal makes no difference, it must return the same object again.

        Args:
            state: the state before.
            window: the window.
            name: of the signal.
            clocks: the clocks.
        """
        return state

    @abstractmethod
    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> Any:
        """The state after more records.

        Args:
            state: the state before.
            window: the window.
            elements: the records.
            clocks: the clocks.
        """

    @abstractmethod
    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """Whether the window should fire now.

        Args:
            state: the state of the trigger.
            window: the window.
            clocks: the clocks.
        """

    @abstractmethod
    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """The progress of the trigger after the window has fired because `should_fire` was true.

        Args:
            state: the state before.
            window: the window.
            clocks: the clocks.
        """

    @abstractmethod
    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """When to call `should_fire` again even if no record comes; instants that have passed do not matter.

        Args:
            state: the state of the trigger.
            window: the window.
            clocks: the clocks.
        """

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """What it waits for, for people; met exactly if `should_fire` is true.

        Override it to show conditions of your own; it is not needed to run.

        Args:
            state: the state of the trigger.
            window: the window.
            clocks: the clocks.
        """
        is_met = self.should_fire(state, window, clocks)
        return Awaited(kind=AwaitedKind.OWN, is_met=is_met, name=repr(self))

    def merge_states(self, states: Sequence[Any], window: Window) -> Any:
        """The state of ``window``, into which windows with these states (one or more) have merged.

        Args:
            states: of the windows that merged.
            window: the window that they merged into.

        Raises:
            WindowError: several of them are not None, and the trigger does not override this method.
        """
        if len(states) > 1 and any(state is not None for state in states):
            raise WindowError(
                f"trigger {self!r} does not define how the states of windows that merge become one",
                detail=f"states of windows that merge into {window}: {', '.join(map(repr, states))}",
                hint="override merge_states(states, window); for a count it is sum(states)",
            )
        return states[0]

    def on_growth(self, progress: Progress, window: Window, clocks: Clocks) -> Progress:
        """The progress of the trigger in ``window``, which has grown since the trigger made this progress.

        Override it if the trigger waits for the end of the window: the end for which it has fired may be ahead again.
        A composite trigger calls it for each of its parts.

        Args:
            progress: before the window grew; finished also if the trigger is a part that a composite does not call any
                more.
            window: as it is now; it covers the former one.
            clocks: the clocks.
        """
        return progress

    def on_merge(self, sources: Sequence[Progress], window: Window, clocks: Clocks) -> Progress:
        """The progress of the trigger in ``window``, into which windows with this progress have merged.

        Each of them has first grown (`on_growth`).  The trigger has finished only if it then has in all of them, so a
        window that has finished does not keep the others from firing.

        Args:
            sources: the progress in each of the windows that merged.
            window: the window that they merged into.
            clocks: the clocks.
        """
        grown = [self.on_growth(source, window, clocks) for source in sources]
        open_states = [each.state for each in grown if not each.is_finished]
        if len(grown) == 1 or not open_states:
            return grown[0]
        return Progress(self.merge_states(open_states, window))


def _sooner(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
