"""The states of the parts of composite triggers, as a composite keeps them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from triggers.awaited import Awaited
from triggers.clocks import Clocks
from triggers.trigger import Progress, Trigger
from windowing.errors import WindowError
from windowing.window import Window


class Fired(NamedTuple):
    """Stands for the state of a part that has fired and is not called again; keeps the state that the part had then.

    It is kept because the part may have fired for an end of the window that is ahead again when the window has grown.
    """

    state: Any


def progress_of(state: Any) -> Progress:
    """The progress of a part, from the state that its composite keeps."""
    return Progress(state.state, is_finished=True) if type(state) is Fired else Progress(state)


def kept(progress: Progress) -> Any:
    """The state to keep of a part, from its progress; the inverse of `progress_of`."""
    return Fired(progress.state) if progress.is_finished else progress.state


def grown(part: Trigger, state: Any, window: Window, clocks: Clocks) -> Any:
    """The state to keep of a part whose window has grown.

    Args:
        part: the part.
        state: the state that was kept of it.
        window: as it is now.
        clocks: the clocks.
    """
    return kept(part.on_growth(progress_of(state), window, clocks))


def merged(part: Trigger, states: Sequence[Any], window: Window) -> Any:
    """The state to keep of a part whose windows have merged: it has fired only if it had in all of them.

    Args:
        part: the part.
        states: the state that was kept of it in each window.
        window: the merged window.
    """
    waiting = [state for state in states if type(state) is not Fired]
    return part.merge_states(waiting, window) if waiting else states[0]


def awaited_by(part: Trigger, state: Any, window: Window, clocks: Clocks) -> Awaited:
    """What a part waits for; one that has fired is over.

    Args:
        part: the part.
        state: the state that was kept of it.
        window: the window.
        clocks: the clocks.
    """
    if type(state) is Fired:
        return part.awaited(state.state, window, clocks).over()
    return part.awaited(state, window, clocks)


def signals_of(parts: Iterable[Trigger]) -> frozenset[str]:
    """The names of the signals that any of the parts receives."""
    return frozenset().union(*(part.signals for part in parts))


def checked_parts(name: str, parts: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    """Check the parts of a composite trigger, and return them.

    Args:
        name: of the composite, for the error.
        parts: its arguments.

    Raises:
        WindowError: one of them is not a trigger, or there are none.
    """
    if not parts or not all(isinstance(part, Trigger) for part in parts):
        raise WindowError(
            f"{name} needs triggers, not {parts!r}",
            hint=f"e.g. df.{name}(df.AfterCount(10), ...); classes must be called",
        )
    return parts
