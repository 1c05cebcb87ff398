"""AfterBytes, AfterPunctuation and AfterPattern: firing by what the values are.

Dataflow Model, section 2.3 (triggers that respond to data arriving).
Values that arrive in one bundle are seen together, so a pane may hold more than the value that made it fire.
"""

import pickle
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from triggers.checks import is_positive_size
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.errors import WindowError
from windowing.window import Window


class DataDrivenTrigger(Trigger):
    """Base of triggers that fire once, by the values alone: write one by `initial_state`, `is_ready` and `seen`.

    It fires when `is_ready` of its state, again and again inside `Repeatedly`.
    """

    @property
    def reads_values(self) -> bool:
        """Yes."""
        return True

    @property
    def early_firings(self) -> EarlyFirings:
        """Once."""
        return EarlyFirings.THEN_FINISHES

    @abstractmethod
    def seen(self, state: Any, values: Sequence[Any]) -> Any:
        """State after more values, in the order of their arrival."""

    @abstractmethod
    def is_ready(self, state: Any) -> bool:
        """Whether it should fire."""

    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> Any:
        """Look at the values."""
        return self.seen(state, elements.values)

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """When the values say so."""
        return self.is_ready(state)

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """Once."""
        return Progress(self.initial_state(), is_finished=True)

    def next_timers(
        self, state: Any, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """Time has no part in it."""
        return TriggerTimers()


@attrs.frozen
class AfterBytes(DataDrivenTrigger):
    """Fire once when values of at least ``size_bytes`` have come, measured as pickles; its state is how many bytes."""

    size_bytes: int = attrs.field(validator=is_positive_size)

    def initial_state(self) -> int:
        """None."""
        return 0

    def seen(self, state: int, values: Sequence[Any]) -> int:
        """Add the lengths."""
        return state + sum(len(pickle.dumps(value, protocol=5)) for value in values)

    def is_ready(self, state: int) -> bool:
        """Whether enough have come."""
        return state >= self.size_bytes

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """What has come to either has come to both."""
        return sum(states)


@attrs.frozen
class AfterPunctuation(DataDrivenTrigger):
    """Fire once when a value comes that ends something: one for which the predicate is true.

    Args:
        is_punctuation: from a value (without its key) to a truth; deterministic.
    """

    is_punctuation: Callable[[Any], object] = attrs.field()

    @is_punctuation.validator
    def _check(self, _: object, is_punctuation: object) -> None:
        if not callable(is_punctuation):
            raise WindowError(
                f"AfterPunctuation needs a function from a value to a truth, not {is_punctuation!r}",
                hint='e.g. AfterPunctuation(lambda value: value == "end")',
            )

    def initial_state(self) -> bool:
        """It has not come."""
        return False

    def seen(self, state: bool, values: Sequence[Any]) -> bool:  # noqa: FBT001 - the state
        """Ask the predicate."""
        return state or any(map(self.is_punctuation, values))

    def is_ready(self, state: bool) -> bool:  # noqa: FBT001 - the state
        """Whether it has come."""
        return state

    def merge_states(self, states: Sequence[bool], window: Window) -> bool:
        """What has come to either has come to both."""
        return any(states)


@attrs.frozen(init=False)
class AfterPattern(DataDrivenTrigger):
    """Fire once when values have come that match each of the predicates, one after the other in order of arrival.

    Others may come in between.  Its state is how many of the predicates have been matched.
    """

    predicates: tuple[Callable[[Any], object], ...]

    def __init__(self, *predicates: Callable[[Any], object]) -> None:
        if not predicates or not all(map(callable, predicates)):
            raise WindowError(
                f"AfterPattern needs functions from a value to a truth, not {predicates!r}",
                hint='e.g. AfterPattern(lambda v: v == "begin", lambda v: v == "end")',
            )
        self.__attrs_init__(predicates)

    def initial_state(self) -> int:
        """None."""
        return 0

    def seen(self, state: int, values: Sequence[Any]) -> int:
        """Match what can be matched."""
        for value in values:
            if state < len(self.predicates) and self.predicates[state](value):
                state += 1
        return state

    def is_ready(self, state: int) -> bool:
        """Whether all have been matched."""
        return state == len(self.predicates)

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """As far as the furthest: of two windows nobody knows which value came first."""
        return max(states)
