"""The tests are tested: a machine of stateful DoFns that is broken on purpose must fail its laws."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from dataflow.user_state import TimerMap, TimerName
from runners.core.stateful import keyed_state
from runners.core.stateful.keyed_state import KeyedState
from runners.core.stateful.stateful_do_fn import _Step
from runners.core.stateful.stateful_invoker import Call, StatefulInvoker
from runners.core.user_code.handled import Handled
from tests.property import test_failed_calls
from tests.property.test_stateful_do_fns import (
    EVENTS,
    Event,
    check_in_which_order,
    check_what_is_emitted,
)
from tests.simulation import test_periodic_sequences
from windowing.time_domain import TimeDomain

#: Far more than any of the mutations needs to be found.
EXAMPLES_MAX = 500

Patch = pytest.MonkeyPatch


def timers_fire_twice(patch: Patch) -> None:
    """A timer is still set after it has fired."""
    fire = _Step._fire

    def broken(step: _Step, cell_id: Any, cell: KeyedState, timer: str) -> None:
        was_set = cell.timers[timer]
        fire(step, cell_id, cell, timer)
        if cell.firings == 1:
            cell.timers[timer] = cell.timers.get(timer, was_set)

    patch.setattr(_Step, "_fire", broken)


def latest_timer_first(patch: Patch) -> None:
    """Of several due timers the last one fires first."""

    def broken(step: _Step, cell: KeyedState, domain: TimeDomain) -> Any:
        timers = [
            (fire_us, name)
            for name, (fire_us, _) in cell.timers.items()
            if step._domain(name) is domain and name not in cell.called
        ]
        return max(timers, key=lambda each: (each[0], repr(each[1])), default=None)

    patch.setattr(_Step, "_first", broken)


def due_timers_wait_for_the_elements(patch: Patch) -> None:
    """A timer that is set for the past fires after the bundle."""
    patch.setattr(_Step, "_may_be_due", lambda *_: False)


def windows_share_their_state(patch: Patch) -> None:
    """State is of a key only."""
    process = StatefulInvoker.process

    def broken(invoker: StatefulInvoker, cell: KeyedState, value: Any, call: Call) -> list[Any]:
        kept = invoker.__dict__.setdefault("kept", {})
        cell.values = kept.setdefault(call.key, cell.values)
        return process(invoker, cell, value, call)

    patch.setattr(StatefulInvoker, "process", broken)


def state_outlives_its_window(patch: Patch) -> None:
    """Cells are not freed."""
    finish = _Step.finish

    def broken(step: _Step) -> Any:
        before = dict(step._cells)
        effects = finish(step)
        step._cells.update(before)
        return effects

    patch.setattr(_Step, "finish", broken)


def tags_share_a_timer(patch: Patch) -> None:
    """The timers of a family are not distinguished."""
    get = TimerMap.get
    patch.setattr(TimerMap, "get", lambda timers, _: get(timers, "1"))


def a_queue_forgets_what_was_moved(patch: Patch) -> None:
    """Where there are many timers, one that is moved stays where it was in time."""
    set_timer = keyed_state._Queue.set

    def broken(queue: keyed_state._Queue, timer: TimerName, fire_us: int | None) -> None:
        if fire_us is None or timer not in queue._set:
            set_timer(queue, timer, fire_us)

    patch.setattr(keyed_state, "_FEW", 0)
    patch.setattr(keyed_state._Queue, "set", broken)


def state_of_a_failed_call_is_kept(patch: Patch) -> None:
    """What is tried again finds what the try before has written."""
    tried = StatefulInvoker._tried

    def broken(invoker: StatefulInvoker, run: Any, cell: KeyedState, *args: Any) -> list[Any]:
        def noted() -> list[Any]:
            try:
                return run()  # type: ignore[no-any-return]
            finally:
                written.update(cell.values)

        written: dict[str, Any] = {}
        outputs = tried(invoker, noted, cell, *args)
        cell.values = written
        return outputs

    patch.setattr(StatefulInvoker, "_tried", broken)


def timers_of_a_failed_call_are_kept(patch: Patch) -> None:
    """They fire for an element that is a dead letter."""
    tried = StatefulInvoker._tried

    def broken(invoker: StatefulInvoker, run: Any, cell: KeyedState, *args: Any) -> list[Any]:
        def noted() -> list[Any]:
            try:
                return run()  # type: ignore[no-any-return]
            finally:
                left.update(cell.timers)

        left: dict[Any, Any] = {}
        outputs = tried(invoker, noted, cell, *args)
        for timer, at in left.items():
            cell.timers.setdefault(timer, at)
        return outputs

    patch.setattr(StatefulInvoker, "_tried", broken)


def a_handled_call_is_not_undone(patch: Patch) -> None:
    """State and timers of a call whose failure is an output stay as it has left them."""
    outputs = Handled.outputs
    patch.setattr(Handled, "outputs", lambda handled, *args: outputs(handled, *args[:2]))


def no_window_is_kept(patch: Patch) -> None:
    """A window expires although a timer that is set keeps it."""
    patch.setattr(_Step, "_is_kept", lambda *_: False)


def timers_hold_nothing(patch: Patch) -> None:
    """The watermark passes the output timestamps of timers."""
    patch.setattr(_Step, "_set_hold", lambda *_: None)


def what_keeps_a_window_fires_once(patch: Patch) -> None:
    """A timer that is set again when its window has expired does not fire again."""
    fire = _Step._fire

    def broken(step: _Step, cell_id: Any, cell: KeyedState, timer: TimerName) -> None:
        fire(step, cell_id, cell, timer)
        cell.called |= {timer}

    patch.setattr(_Step, "_fire", broken)


MUTATIONS: list[Callable[[Patch], None]] = [
    timers_fire_twice,
    latest_timer_first,
    due_timers_wait_for_the_elements,
    windows_share_their_state,
    state_outlives_its_window,
    tags_share_a_timer,
    a_queue_forgets_what_was_moved,
]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_broken_machine_is_found(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """Each mutation makes a law fail, whatever else it does."""
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        look_for_a_counterexample()


@settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
@given(EVENTS)
def look_for_a_counterexample(events: list[Event]) -> None:
    """Among random programs."""
    check_what_is_emitted(events)
    check_in_which_order(events)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        state_of_a_failed_call_is_kept,
        timers_of_a_failed_call_are_kept,
        a_handled_call_is_not_undone,
    ],
)
def test_a_machine_that_keeps_what_a_failed_call_has_left_is_found(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """Only calls that fail can show it, so by their law."""
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        look_for_a_failed_call()


@settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
@given(test_failed_calls.EVENTS)
def look_for_a_failed_call(events: list[Any]) -> None:
    """Among random programs that fail, each the first so many times that it is run."""
    again = deepcopy(events)
    test_failed_calls.check_failed_calls(events)
    test_failed_calls.check_handled_calls(again)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate", [no_window_is_kept, timers_hold_nothing, what_keeps_a_window_fires_once]
)
def test_a_machine_that_does_not_wait_for_a_timer_is_found(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """In a stream alone, whose clock goes on when its input has ended."""
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        test_periodic_sequences.check_instants(0.0, [(0, 9, 0.5), (1, 4, 1)], 7)
