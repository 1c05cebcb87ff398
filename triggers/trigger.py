"""Trigger: when a window speaks, as pure transitions over a state that somebody else keeps.

Every verb gets the watermark (event time) and ``now_us`` (processing time) as two arguments: mistaking one
for the other is how a backlog gets labelled late.  A trigger keeps nothing on itself; its state is an immutable value,
None where it needs none.

Dataflow Model, section 2.3.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from windowing.window import Window


class Wakeup(NamedTuple):
    """The next instants at which a trigger wants to be asked again; None: not by time."""

    event_us: int | None = None
    processing_us: int | None = None


class Trigger(ABC):
    """Decides, for one key and window, when a pane is emitted.  Instances are frozen values."""

    def initial_state(self) -> Any:
        """State of a window that has seen nothing."""
        return None

    @abstractmethod
    def on_elements(
        self, state: Any, window: Window, count: int, *, watermark_us: int, now_us: int
    ) -> Any:
        """State after ``count`` more records."""

    @abstractmethod
    def on_merge(self, states: Sequence[Any], window: Window) -> Any:
        """State of ``window``, into which windows with these states have merged."""

    @abstractmethod
    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Whether the window should emit a pane now, given that it has something to say."""

    @abstractmethod
    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Any:
        """State after a pane was emitted."""

    @abstractmethod
    def next_wakeup(self, state: Any, window: Window) -> Wakeup:
        """When to ask `should_fire` again although no record came."""
