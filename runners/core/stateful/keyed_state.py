"""KeyedState: the cell of a stateful DoFn, with all that is kept for one key and window; `MergingState` of a key."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import attrs

from dataflow.paged_state import JoinedBag, Paged, SizeWatch
from dataflow.user_state import EMITTED, HOLD, PAGES, SetTimer, TimerName
from runners.core.ground.timers import TimerQueue
from runners.core.partials.stateful_inputs import Input
from runners.core.stateful.cell_pages import CellPages
from triggers.trigger import TriggerTimers
from windowing.pane import PaneInfo
from windowing.time_domain import TimeDomain
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import Window

_NO_TIMERS = TriggerTimers()
#: Stands for a list that is empty until it is replaced by another one.
_NO_INPUTS: Any = ()
#: Up to this many timers are searched one by one instead of being kept in order.
_FEW = 8
_FIRE_US = itemgetter(0)


def spec_name(timer: TimerName) -> str:
    """The name of a timer's spec; for a timer of a family, that of the family."""
    return timer if isinstance(timer, str) else timer[0]


class _Queue(TimerQueue[TimerName]):
    """The timers of a cell in one time domain."""

    def first(self) -> tuple[int, TimerName] | None:
        """The first timer, and when it fires; of several at one instant the one that was set first."""
        return None if self.next_us() is None else self._heap[0][::2]


class UserTimers(dict[TimerName, SetTimer]):
    """The timers of a cell that are set.

    A few timers are searched one by one; for many, as a family may have, there are queues beside the mapping, which are
    brought up to date when they are read.
    """

    def __init__(self, timers: Mapping[TimerName, SetTimer] | None = None) -> None:
        super().__init__(timers or {})
        self._queues: dict[TimeDomain, _Queue] | None = None
        # The timers that have been set or cleared since the queues were up to date, in that order.
        self._changed: list[TimerName] = []

    def __setitem__(self, timer: TimerName, at: SetTimer) -> None:
        if self._queues is not None:
            self._changed.append(timer)
        super().__setitem__(timer, at)

    def pop(self, timer: TimerName, *default: Any) -> Any:
        """Clear a timer.

        Args:
            timer: its name, or its family and tag.
            *default: returned if it is not set; without it that is a `KeyError`.
        """
        if self._queues is not None:
            self._changed.append(timer)
        return super().pop(timer, *default)

    def first(
        self, domain: TimeDomain, domain_of: Callable[[TimerName], TimeDomain]
    ) -> tuple[int, TimerName] | None:
        """The first timer of a domain, and when it fires; of several at one instant the one that was set first.

        Args:
            domain: the time domain.
            domain_of: returns the time domain of a timer.
        """
        if not self:
            self._queues = None
            return None
        if len(self) <= _FEW:
            self._queues = None
            timers = [(at[0], timer) for timer, at in self.items() if domain_of(timer) is domain]
            return min(timers, key=_FIRE_US, default=None)
        if self._queues is None:
            self._queues, self._changed = {}, list(self)
        changed, self._changed = self._changed, []
        for timer in changed:
            queue = self._queues.setdefault(domain_of(timer), _Queue())
            queue.set(timer, self[timer][0] if timer in self else None)
        return self._queues[domain].first() if domain in self._queues else None

    def may_be_due(self, until_us: int) -> bool:
        """Whether a timer of any domain may fire by an instant (microseconds): a quick check, sometimes too careful."""
        if self._queues is None:
            return any(fire_us <= until_us for fire_us, _ in self.values())
        return bool(self._changed) or any(
            first is not None and first[0] <= until_us
            for first in (queue.first() for queue in self._queues.values())
        )


class _NoTimers(UserTimers):
    """The timers of a cell in which none was ever set; one object for all of them."""

    def __setitem__(self, timer: TimerName, at: SetTimer) -> None:
        raise AssertionError(f"{timer} would be set for every key: use KeyedState.timers_to_set")


_NONE_SET = _NoTimers()


def _timers_of(timers: Mapping[TimerName, SetTimer]) -> UserTimers:
    return timers if isinstance(timers, UserTimers) else UserTimers(timers)


# It is changed on every record's path, and there may be millions: what most cells do not have takes no room in them.
@attrs.define(on_setattr=attrs.setters.NO_OP)
class KeyedState:
    """State and timers by their names.

    Attributes:
        backlog: elements that the watermark has not passed yet, in order of arrival.
        engine_timers: the engine's timers that are set: for each domain the first instant at which the cell has
            something to do.
        ready: elements that are to be processed now, the first one last.
        watermark_us: the watermark of the cell: while elements are ready, the event time of one of them.
        called: timers that have fired because the window has expired.
        firings: the number of timers that have fired since the last element.
        is_over: whether the method for the expiration of the window has been called.
        pages: the pages of ``values``; None: it has none.
        sizes: of state that is not in pages and has some entries, by name; None: there is none.
    """

    values: dict[Any, Any] = attrs.field(factory=dict)
    timers: UserTimers = attrs.field(default=_NONE_SET, converter=_timers_of)
    backlog: list[Input] = attrs.field(default=_NO_INPUTS, eq=tuple)
    engine_timers: TriggerTimers = _NO_TIMERS
    # The rest belongs to one step, and is not stored.
    ready: list[Input] = attrs.field(default=_NO_INPUTS, eq=False, repr=False)
    watermark_us: int = attrs.field(default=MIN_TIMESTAMP_US, eq=False, repr=False)
    called: frozenset[TimerName] = attrs.field(default=frozenset(), eq=False, repr=False)
    firings: int = attrs.field(default=0, eq=False, repr=False)
    is_over: bool = attrs.field(default=False, eq=False, repr=False)
    pages: CellPages | None = attrs.field(default=None, eq=False, repr=False)
    sizes: dict[Any, SizeWatch] | None = attrs.field(default=None, eq=False, repr=False)

    def timers_to_set(self) -> UserTimers:
        """The timers, for whoever may set some."""
        # By the class: a copy of a cell has another object of it.
        if isinstance(self.timers, _NoTimers):
            self.timers = UserTimers()
        return self.timers

    def find_pages(self) -> None:
        """Have state in pages find its pages, after the values have been read."""
        if any(isinstance(value, Paged) for value in self.values.values()):
            if self.pages is None:
                self.pages = CellPages()
            self.pages.bind(self.values)

    def drop_pages(self) -> None:
        """Delete the pages of all values, which go with them."""
        if self.pages is None:
            return
        for value in self.values.values():
            if isinstance(value, Paged):
                value.drop()

    @property
    def hold_us(self) -> int | None:
        """The first hold on the watermark behind the DoFn, in microseconds."""
        first_us = None
        for name in self.values:
            if type(name) is tuple and name[0] == HOLD:
                hold_us = self.values[name]
                first_us = hold_us if first_us is None else min(first_us, hold_us)
        return first_us

    @property
    def has_state(self) -> bool:
        """Whether there is anything of the user's code, beside what it has emitted."""
        return len(self.values) > (EMITTED in self.values)

    @property
    def is_empty(self) -> bool:
        """Whether the cell has nothing to keep."""
        return not (self.values or self.timers or self.backlog)


def _last_number(values: dict[Any, Any]) -> int:
    """The largest number under which a window has pages: its own, or one of a window whose bag it has taken over."""
    numbers: list[int] = [0, values.get(PAGES, 0)]
    for each in values.values():
        if isinstance(each, JoinedBag):
            numbers += [name[-1] for name, *_ in each.runs]
    return max(numbers)


#: An element that waits, as an `Input`, with the window that it was assigned.
Waiting = tuple[Any, int, PaneInfo, int, Window]


@attrs.define
class MergingState:
    """The cell of a key whose windows merge.

    Attributes:
        windows: the state of each open window; that without state too, as what comes may merge with it.
        backlog: elements that the watermark has not passed yet, in order of arrival.
        engine_timers: the engine's timers that are set: for each domain the first instant at which the cell has
            something to do.
        ready: elements that are to be processed now, the first one last.
        watermark_us: the watermark of the cell: while elements are ready, the event time of one of them.
        pages: the pages of all windows; None: they have none.
    """

    windows: dict[Window, KeyedState] = attrs.field(factory=dict)
    backlog: list[Waiting] = attrs.field(factory=list)
    engine_timers: TriggerTimers = _NO_TIMERS
    # The rest belongs to one step, and is not stored.
    ready: list[Waiting] = attrs.field(factory=list, eq=False, repr=False)
    watermark_us: int = attrs.field(default=MIN_TIMESTAMP_US, eq=False, repr=False)
    pages: CellPages | None = attrs.field(default=None, eq=False, repr=False)

    def find_pages(self) -> None:
        """Have state in pages find its pages, after the windows have been read."""
        for state in self.windows.values():
            if state.pages is not None:
                self.pages = self.pages or CellPages()
                state.pages = self.pages
                state.find_pages()

    def pages_of(self, state: KeyedState) -> CellPages:
        """The pages of a window, which has none yet; another window may have some.

        Args:
            state: of the window; given the number of its pages.
        """
        self.pages = state.pages = self.pages or CellPages()
        if PAGES not in state.values:
            known = (_last_number(each.values) for each in self.windows.values())
            state.values[PAGES] = 1 + max(known, default=0)
        return state.pages

    @property
    def is_empty(self) -> bool:
        """Whether the cell has nothing to keep."""
        return not (self.windows or self.backlog)

    def move_to(self, watermark_us: int) -> None:
        """Move the watermark of the cell, and of all its windows, to an instant (microseconds)."""
        self.watermark_us = watermark_us
        for state in self.windows.values():
            state.watermark_us = watermark_us
