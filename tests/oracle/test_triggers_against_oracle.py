"""Whatever the trigger: it decides when a window speaks, never what it has said in the end."""

import pytest
from hypothesis import given

import dataflow as df
from tests.oracle import laws
from tests.oracle.evaluator import Arrivals, Windowing
from tests.strategies import after_watermark, streams, triggers, windowings

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)


@given(windowing=windowings(), arrivals=streams(), trigger=triggers())
def test_discarding_panes_add_up_to_the_oracle(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger
) -> None:
    """Every record is in exactly one pane of its window, whenever panes come; nothing is lost at expiry."""
    laws.check_discarding(windowing, arrivals, trigger)


@given(windowing=windowings(), arrivals=streams(), trigger=triggers())
def test_the_last_accumulating_pane_is_the_oracle(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger
) -> None:
    """The last pane of each window has everything."""
    laws.check_accumulating(windowing, arrivals, trigger)


@given(windowing=windowings(), arrivals=streams(), trigger=triggers())
def test_retracting_panes_fold_to_the_oracle(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger
) -> None:
    """A retraction takes back exactly what was said, also of windows that merged since."""
    laws.check_retracting_fold(windowing, arrivals, trigger)


@given(windowing=windowings(), arrivals=streams(), trigger=after_watermark())
def test_a_window_speaks_when_the_watermark_passes_it(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.AfterWatermark
) -> None:
    """Whatever it said before, and although it may have merged."""
    laws.check_on_time(windowing, arrivals, trigger)
