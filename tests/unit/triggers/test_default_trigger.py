"""DefaultTrigger and WindowingStrategy: pure, and a matter of the watermark alone."""

import pytest

import dataflow as df
from triggers.trigger import Elements, Progress, TriggerTimers
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window_fn import FrozenWindows

WINDOW = df.Window(0, 10)


@pytest.mark.parametrize(("watermark_us", "fires"), [(9, False), (10, True), (11, True)])
def test_fires_once_the_watermark_reaches_the_end(watermark_us: int, fires: bool) -> None:
    """Processing time does not matter."""
    trigger = df.DefaultTrigger()
    state = trigger.on_elements(
        trigger.initial_state(), WINDOW, Elements(1), df.Clocks(watermark_us=watermark_us, now_us=0)
    )
    for now_us in (0, MAX_TIMESTAMP_US):
        assert fires == trigger.should_fire(
            state, WINDOW, df.Clocks(watermark_us=watermark_us, now_us=now_us)
        )


def test_is_due_at_the_end_and_keeps_no_state() -> None:
    trigger = df.DefaultTrigger()

    assert TriggerTimers(event_us=10) == trigger.next_timers(
        None, WINDOW, df.Clocks(watermark_us=0, now_us=0)
    )
    assert Progress() == trigger.on_merge(
        [Progress(), Progress()], WINDOW, df.Clocks(watermark_us=0, now_us=0)
    )
    assert Progress() == trigger.on_fire(None, WINDOW, df.Clocks(watermark_us=10, now_us=0))


def test_strategy() -> None:
    """Expiry stops at the end of time; after a grouping windows are frozen, the rest stays."""
    strategy = WindowingStrategy(window_fn=df.Sessions(1), allowed_lateness_us=5)
    frozen = strategy.frozen()

    assert (15, MAX_TIMESTAMP_US) == (
        strategy.expiry_us(WINDOW),
        strategy.expiry_us(df.Window(0, MAX_TIMESTAMP_US)),
    )
    assert (True, False) == (strategy.is_merging, frozen.is_merging)
    assert FrozenWindows() == frozen.window_fn
    assert 5 == frozen.allowed_lateness_us
    assert [False, False, True] == [
        WindowingStrategy(accumulation_mode=mode).is_retracting for mode in df.AccumulationMode
    ]
