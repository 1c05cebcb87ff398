"""AfterBytes, AfterPunctuation and AfterPattern: triggers that fire by the values of the records.

Dataflow Model, section 2.3 (triggers that respond to data arriving).
Values that arrive in one bundle are seen together, so a pane may contain more than the value that made it fire.
"""

import pickle
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.checks import is_positive_size
from triggers.clocks import Clocks
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.errors import WindowError
from windowing.window import Window


class DataDrivenTrigger(Trigger):
    """Base of triggers that fire once, by the values alone; a subclass defines `initial_state`, `is_ready` and `seen`.

    It fires when `is_ready` of its state is true, and repeatedly inside `Repeatedly`.
    """

    @property
    def reads_values(self) -> bool:
        """True: it reads values."""
        return True

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires once, and has then finished."""
        return EarlyFirings.THEN_FINISHES

    @abstractmethod
    def seen(self, state: Any, values: Sequence[Any]) -> Any:
        """The state after more values, in the order of their arrival.

        Args:
            state: the state before.
            values: without their keys.
        """

    @abstractmethod
    def is_ready(self, state: Any) -> bool:
        """Whether the trigger should fire."""

    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> Any:
        """Pass the values to `seen`."""
        return self.seen(state, elements.values)

    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """Whether the state is ready."""
        return self.is_ready(state)

    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """It fires once, and has then finished."""
        return Progress(self.initial_state(), is_finished=True)

    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """No timers: it does not depend on time."""
        return TriggerTimers()


@attrs.frozen
class AfterBytes(DataDrivenTrigger):
    """Fires once when values of at least ``size_bytes`` have come, measured as pickles; its state is how many bytes."""

    size_bytes: int = attrs.field(validator=is_positive_size)

    def awaited(self, state: int, window: Window, clocks: Clocks) -> Awaited:
        """So many bytes."""
        is_met = self.is_ready(state)
        return Awaited(kind=AwaitedKind.BYTES, is_met=is_met, have=state, need=self.size_bytes)

    def initial_state(self) -> int:
        """No bytes have come."""
        return 0

    def seen(self, state: int, values: Sequence[Any]) -> int:
        """Add the sizes of the values."""
        return state + sum(len(pickle.dumps(value, protocol=5)) for value in values)

    def is_ready(self, state: int) -> bool:
        """Whether enough bytes have come."""
        return state >= self.size_bytes

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """The sum, since the values of all merged windows count."""
        return sum(states)


@attrs.frozen
class AfterPunctuation(DataDrivenTrigger):
    """Fires once when a value comes that ends something: one for which the predicate is true.

    Args:
        is_punctuation: takes a value (without its key), and returns whether it ends something; deterministic.

    Raises:
        WindowError: the predicate cannot be called.
    """

    is_punctuation: Callable[[Any], object] = attrs.field()

    @is_punctuation.validator
    def _check(self, _: object, is_punctuation: object) -> None:
        if not callable(is_punctuation):
            raise WindowError(
                f"AfterPunctuation needs a function of a value that returns True or False, not {is_punctuation!r}",
                hint='e.g. AfterPunctuation(lambda value: value == "end")',
            )

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """A value that ends something."""
        return Awaited(kind=AwaitedKind.VALUES, is_met=bool(state), have=int(bool(state)), need=1)

    def initial_state(self) -> bool:
        """No such value has come."""
        return False

    def seen(self, state: bool, values: Sequence[Any]) -> bool:  # noqa: FBT001 - the state
        """Call the predicate for the values."""
        return state or any(map(self.is_punctuation, values))

    def is_ready(self, state: bool) -> bool:  # noqa: FBT001 - the state
        """Whether such a value has come."""
        return state

    def merge_states(self, states: Sequence[bool], window: Window) -> bool:
        """Whether such a value has come to any of the merged windows."""
        return any(states)


@attrs.frozen(init=False)
class AfterPattern(DataDrivenTrigger):
    """Fires once when values have come that match each of the predicates, one after the other in order of arrival.

    Other values may come in between.  Its state is the number of predicates that have been matched.

    Attributes:
        predicates: each takes a value (without its key), and returns whether it matches; deterministic.

    Raises:
        WindowError: there is no predicate, or one cannot be called.
    """

    predicates: tuple[Callable[[Any], object], ...]

    def __init__(self, *predicates: Callable[[Any], object]) -> None:
        if not predicates or not all(map(callable, predicates)):
            raise WindowError(
                f"AfterPattern needs functions of a value that return True or False, not {predicates!r}",
                hint='e.g. AfterPattern(lambda v: v == "begin", lambda v: v == "end")',
            )
        self.__attrs_init__(predicates)

    def awaited(self, state: int, window: Window, clocks: Clocks) -> Awaited:
        """Values that match all predicates."""
        is_met, need = self.is_ready(state), len(self.predicates)
        return Awaited(kind=AwaitedKind.VALUES, is_met=is_met, have=state, need=need)

    def initial_state(self) -> int:
        """No predicate has been matched."""
        return 0

    def seen(self, state: int, values: Sequence[Any]) -> int:
        """Match the values with the predicates that follow."""
        for value in values:
            if state < len(self.predicates) and self.predicates[state](value):
                state += 1
        return state

    def is_ready(self, state: int) -> bool:
        """Whether all predicates have been matched."""
        return state == len(self.predicates)

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """The furthest state, since it is not known in which order the values of different windows came."""
        return max(states)
