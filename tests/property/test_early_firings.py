"""What a trigger declares before it runs is what it does in a window that does not end."""

import pytest
from hypothesis import given

import dataflow as df
import triggers
from tests.strategies import triggers as any_trigger
from triggers import EarlyFirings, Progress
from windowing.window import GLOBAL_WINDOW

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

#: More than the longest cycle of the triggers that are made up here, twice.
ROUNDS = 200
#: Longer than any of their delays.
ROUND_US = 50


def firing_rounds(trigger: df.Trigger) -> tuple[list[int], bool]:
    """In which rounds it fires, and whether it has finished, when a record and all signals come in each.

    The watermark stands still.
    """
    fired, progress = [], Progress(trigger.initial_state())
    for number in range(ROUNDS):
        clocks = df.Clocks(watermark_us=0, now_us=number * ROUND_US)
        seen = trigger.on_elements(progress.state, GLOBAL_WINDOW, df.Elements(1, (0,)), clocks)
        for name in trigger.signals:
            seen = trigger.on_signal(seen, GLOBAL_WINDOW, name, clocks)
        progress = Progress(seen)
        if trigger.should_fire(seen, GLOBAL_WINDOW, clocks):
            fired.append(number)
            progress = trigger.on_fire(seen, GLOBAL_WINDOW, clocks)
        if progress.is_finished:
            break
    return fired, progress.is_finished


@given(trigger=any_trigger())
def test_triggers_do_early_what_they_declare(trigger: df.Trigger) -> None:
    fired, is_finished = firing_rounds(trigger)
    is_still_firing = bool(fired) and fired[-1] > ROUNDS // 2

    assert {
        EarlyFirings.NEVER: (False, False, False),
        EarlyFirings.THEN_WAITS: (True, False, False),
        EarlyFirings.THEN_FINISHES: (True, False, True),
        EarlyFirings.REPEATED: (True, True, False),
    }[trigger.early_firings] == (bool(fired), is_still_firing, is_finished)


@pytest.mark.parametrize(
    "trigger_class",
    [
        each
        for name in triggers.__all__
        if isinstance(each := getattr(triggers, name), type)
        and issubclass(each, df.Trigger)
        and each is not df.Trigger
    ],
)
def test_every_trigger_that_is_shipped_declares_it(trigger_class: type[df.Trigger]) -> None:
    """The inherited answer is a trusting one, for triggers of users."""
    assert trigger_class.early_firings is not df.Trigger.early_firings
