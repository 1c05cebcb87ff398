"""The tests are tested: merging of state that is broken on purpose must fail its law."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from runners.core.ground.active_windows import ActiveWindows, Bridged
from runners.core.stateful import stateful_invoker
from runners.core.stateful.merging_do_fn import _MergingStep
from runners.core.stateful.stateful_invoker import StatefulInvoker
from tests.property.test_merging_state import Event, check_sessions, events

#: Far more than any of the mutations needs to be found.
EXAMPLES_MAX = 500

Patch = pytest.MonkeyPatch


def state_of_later_windows_is_lost(patch: Patch) -> None:
    """Of several windows the earliest keeps its state, and no other."""
    patch.setattr(stateful_invoker, "merge_state", lambda *_: None)


def timers_of_later_windows_are_lost(patch: Patch) -> None:
    """The timers of the earliest window fire, and no others."""
    patch.setattr(stateful_invoker, "merge_timers", lambda *_: None)


def windows_merge_when_elements_arrive(patch: Patch) -> None:
    """What waits has the window that all of its elements have together."""
    begin = _MergingStep._begin

    def broken(step: _MergingStep, cell_id: Any, cell: Any) -> None:
        windows = [each[4] for each in cell.backlog]
        for merged, sources, _ in step._machine.active.bridged((), list(dict.fromkeys(windows))):
            cell.backlog = [
                (*each[:4], merged if each[4] in sources else each[4]) for each in cell.backlog
            ]
        begin(step, cell_id, cell)

    patch.setattr(_MergingStep, "_begin", broken)


def windows_close_before_their_last_timers(patch: Patch) -> None:
    """What is set, and the method for the expiration, are never called."""
    due = _MergingStep._due_in_windows

    def broken(step: _MergingStep, cell_id: Any, cell: Any) -> Any:
        step._close_windows(cell_id, cell)
        return due(step, cell_id, cell)

    patch.setattr(_MergingStep, "_due_in_windows", broken)


def late_elements_are_dropped_before_they_merge(patch: Patch) -> None:
    """An open window could have saved them."""
    see = _MergingStep._see

    def broken(step: _MergingStep, cell_id: Any, cell: Any, element: Any) -> None:
        if step._machine.strategy.expiry_us(element[4]) > cell.watermark_us:
            see(step, cell_id, cell, element)

    patch.setattr(_MergingStep, "_see", broken)


def windows_merge_for_what_fails(patch: Patch) -> None:
    """A dead letter has opened or extended its window."""
    process_merging = StatefulInvoker.process_merging

    def broken(invoker: StatefulInvoker, *args: Any) -> tuple[list[Any], bool]:
        return process_merging(invoker, *args)[0], True

    patch.setattr(StatefulInvoker, "process_merging", broken)


def failed_calls_change_what_merges(patch: Patch) -> None:
    """State is merged in place, although the element may fail."""
    patch.setattr(stateful_invoker, "loads", lambda before: before)
    patch.setattr(stateful_invoker, "dumps", lambda before: before)


def holds_of_merged_windows_stay(patch: Patch) -> None:
    """The watermark behind is held for ever."""

    def broken(step: _MergingStep, cell_id: Any, cell: Any) -> None:
        for window, hold_us in step._machine.holds(cell_id, cell):
            step._effects.holds[cell_id, window] = hold_us

    patch.setattr(_MergingStep, "_set_holds", broken)


def windows_that_touch_merge_with_the_first_alone(patch: Patch) -> None:
    """An element that bridges two windows belongs to one of them."""
    bridged = ActiveWindows.bridged

    def broken(active: ActiveWindows, windows: Any, arrived: Any) -> Any:
        for each in bridged(active, windows, arrived):
            yield Bridged(each.merged, each.sources, each.present[:1])

    patch.setattr(ActiveWindows, "bridged", broken)


MUTATIONS: list[Callable[[Patch], None]] = [
    state_of_later_windows_is_lost,
    timers_of_later_windows_are_lost,
    windows_merge_when_elements_arrive,
    windows_close_before_their_last_timers,
    late_elements_are_dropped_before_they_merge,
    windows_merge_for_what_fails,
    failed_calls_change_what_merges,
    holds_of_merged_windows_stay,
    windows_that_touch_merge_with_the_first_alone,
]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_broken_merging_is_found(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """Each mutation makes the law fail."""
    mutate(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        look_for_a_counterexample()


@settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
@given(events(), st.sampled_from([0, 5, 40]), st.booleans(), st.sampled_from([None, 2]))
def look_for_a_counterexample(
    happening: list[Event], lateness: int, is_sorted: bool, tries: int | None
) -> None:
    """Among random streams."""
    check_sessions(happening, lateness, is_sorted, tries)
