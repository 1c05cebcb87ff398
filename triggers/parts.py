"""Parts of composite triggers, as each composite keeps them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from triggers.trigger import Progress, Trigger
from windowing.errors import WindowError
from windowing.window import Window


class Fired(NamedTuple):
    """In place of the state of a part that has fired and is not asked again: the state that it had then.

    Kept because the part may have fired for an end of the window that is ahead again when the window has grown.
    """

    state: Any


def progress_of(state: Any) -> Progress:
    """How far a part is of which this is kept."""
    return Progress(state.state, is_finished=True) if type(state) is Fired else Progress(state)


def kept(progress: Progress) -> Any:
    """What to keep of a part that is so far; the inverse of `progress_of`."""
    return Fired(progress.state) if progress.is_finished else progress.state


def grown(part: Trigger, state: Any, window: Window, watermark_us: int) -> Any:
    """What to keep of a part of which this was kept, now that its window has grown."""
    return kept(part.on_growth(progress_of(state), window, watermark_us=watermark_us))


def merged(part: Trigger, states: Sequence[Any], window: Window) -> Any:
    """What to keep of a part of whose windows these were kept: it has fired only if it had in all of them."""
    waiting = [state for state in states if type(state) is not Fired]
    return part.merge_states(waiting, window) if waiting else states[0]


def signals_of(parts: Iterable[Trigger]) -> frozenset[str]:
    """The names of the signals that any of the parts wants to hear of."""
    return frozenset().union(*(part.signals for part in parts))


def checked_parts(name: str, parts: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    """The parts of the composite of that name.

    Raises:
        WindowError: something among them is no trigger, or there are none.
    """
    if not parts or not all(isinstance(part, Trigger) for part in parts):
        raise WindowError(
            f"{name} needs triggers, not {parts!r}",
            hint=f"e.g. df.{name}(df.AfterCount(10), ...); classes must be called",
        )
    return parts
