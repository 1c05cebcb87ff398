"""A signal changes only what has something new, and nothing that has finished."""

from typing import Any

import pytest

import dataflow as df
from runners.core.ground.cells import CellId, WindowState
from runners.core.panes.signal_delivery import on_signal
from runners.core.stages.stage_clocks import StageClocks
from tests.simulation.test_signals import EverySecond
from triggers.trigger import Progress
from windowing.window import GLOBAL_WINDOW

CELL: CellId = ("k", GLOBAL_WINDOW)
CLOCKS: Any = StageClocks.of_source(watermark_us=0, now_us=0)


class Equal(EverySecond):
    """A trigger with a state that is another object after each signal, and equal."""

    def on_signal(self, state: Any, window: df.Window, name: str, clocks: df.Clocks) -> Any:
        return [*state]


def notified(trigger: df.Trigger, progress: Progress) -> tuple[bool, Progress]:
    """Whether a window is touched by a signal, and how far its trigger is then."""
    state = WindowState(trigger=progress)
    effects = on_signal(trigger, lambda *_: None, {CELL: state}, [CELL], "flush", CLOCKS)
    return CELL in effects.touched, state.trigger


@pytest.mark.parametrize(
    ("trigger", "before", "expected"),
    [
        (EverySecond(), Progress(0), (True, Progress(1))),
        (Equal(), Progress([1]), (False, Progress([1]))),
        (EverySecond(), Progress(0, is_finished=True), (False, Progress(0, is_finished=True))),
    ],
    ids=["moves", "is equal", "has finished"],
)
def test_what_a_signal_touches(
    trigger: df.Trigger, before: Progress, expected: tuple[bool, Progress]
) -> None:
    assert notified(trigger, before) == expected
