"""Whatever the trigger: it decides when a window fires, never what it has emitted in the end."""

import pytest
from hypothesis import given

import dataflow as df
from tests.oracle import laws
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.hard_streams import HARD_STREAMS
from tests.strategies import on_time_triggers, streams, triggers, windowings

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

#: The streams in which sessions that have fired grow past the watermark.
GROWING = [name for name in HARD_STREAMS if "past the watermark" in name]


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
    """A retraction retracts exactly what was emitted, also for windows that merged since."""
    laws.check_retracting_fold(windowing, arrivals, trigger)


@given(windowing=windowings(), arrivals=streams(), trigger=on_time_triggers())
def test_a_window_fires_when_the_watermark_passes_it(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger
) -> None:
    """Whatever it emitted before, wherever in the trigger `AfterWatermark` stands, and although it may have merged."""
    laws.check_on_time(windowing, arrivals, trigger)


@given(trigger=on_time_triggers())
@pytest.mark.parametrize(
    "name", [name for name in HARD_STREAMS if "grow" in name or "join" in name]
)
def test_a_session_that_has_fired_and_grows_fires_at_its_new_end(
    name: str, trigger: df.Trigger
) -> None:
    """Sessions that have fired and grow, in streams that were written for it."""
    laws.check_on_time(*HARD_STREAMS[name], trigger)
