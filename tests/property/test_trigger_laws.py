"""Laws of triggers by themselves: deadlines, timers that are not missed, windows that merge in any order."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from tests.oracle.laws import microseconds
from tests.strategies import triggers as any_trigger
from triggers import Progress
from triggers.after_processing_time import AfterProcessingTime, AtPeriod
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

WINDOW = df.Window(0, 50)
INSTANTS_US = st.one_of(
    st.integers(-100, 100),
    st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US),
    st.integers(MAX_TIMESTAMP_US - 100, MAX_TIMESTAMP_US),
)


@given(
    now_us=INSTANTS_US,
    period_us=st.integers(1, 60),
    offset_us=st.integers(-90, 90),
    periods=st.integers(-3, 3),
)
def test_a_period_ends_at_the_next_multiple(
    now_us: int, period_us: int, offset_us: int, periods: int
) -> None:
    """After now: what comes at a multiple waits for the next one."""
    trigger = AtPeriod(microseconds(period_us), offset=microseconds(offset_us))
    for at_us in (now_us, offset_us + periods * period_us):
        deadline_us = trigger.deadline_us(at_us)

        assert at_us < deadline_us <= at_us + period_us
        assert (deadline_us - offset_us) % period_us == 0


@given(
    now_us=INSTANTS_US,
    trigger=st.one_of(
        st.builds(lambda delay: AfterProcessingTime(microseconds(delay)), st.integers(0, 200)),
        st.builds(lambda period: AtPeriod(microseconds(period)), st.integers(1, 200)),
    ),
)
def test_a_deadline_is_an_instant_and_comes(now_us: int, trigger: df.Trigger) -> None:
    """The first record sets it, and at it the trigger fires, and not before; the last is the end of time."""
    clocks = df.Clocks(watermark_us=0, now_us=now_us)
    state = trigger.on_elements(trigger.initial_state(), WINDOW, df.Elements(1), clocks)
    at_us = trigger.next_timers(state, WINDOW, clocks).processing_us

    assert at_us is not None
    assert now_us <= at_us <= MAX_TIMESTAMP_US
    assert trigger.should_fire(state, WINDOW, df.Clocks(watermark_us=0, now_us=at_us))
    assert at_us == now_us or not trigger.should_fire(
        state, WINDOW, df.Clocks(watermark_us=0, now_us=at_us - 1)
    )
    later = trigger.on_elements(
        state,
        WINDOW,
        df.Elements(1),
        df.Clocks(watermark_us=0, now_us=min(now_us + 7, MAX_TIMESTAMP_US)),
    )
    assert state == later


@given(
    nows_us=st.lists(st.none() | INSTANTS_US, min_size=1, max_size=4),
    delay_us=st.integers(0, 200),
    period_us=st.integers(1, 200),
)
def test_a_merged_window_has_the_deadline_of_its_first_record(
    nows_us: list[int | None], delay_us: int, period_us: int
) -> None:
    """Whichever of the windows it came to; one without a record has none."""
    first_us = min((each for each in nows_us if each is not None), default=None)
    for trigger in (
        AfterProcessingTime(microseconds(delay_us)),
        AtPeriod(microseconds(period_us)),
    ):
        states = [_at(trigger, now_us) for now_us in nows_us]

        assert trigger.merge_states(states, WINDOW) == _at(trigger, first_us)


def _at(trigger: df.Trigger, now_us: int | None) -> Any:
    """The state when the first record came at an instant; None: none has come."""
    state = trigger.initial_state()
    if now_us is None:
        return state
    return trigger.on_elements(
        state, WINDOW, df.Elements(1), df.Clocks(watermark_us=0, now_us=now_us)
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 8)),
        st.tuples(st.just("signal"), st.just(0)),
        st.tuples(st.just("watermark"), st.integers(1, 30)),
        st.tuples(st.just("now"), st.integers(1, 30)),
    ),
    max_size=8,
)


class Alone:
    """A trigger in one window, asked as the machine asks it."""

    def __init__(self, trigger: df.Trigger) -> None:
        self.trigger = trigger
        self.progress = Progress(trigger.initial_state())
        self.clocks = df.Clocks(watermark_us=-20, now_us=0)

    def take(self, verb: str, argument: int) -> None:
        trigger, clocks = self.trigger, self.clocks
        if verb in ("watermark", "now"):
            name = f"{verb}_us"
            clocks = self.clocks = attrs.evolve(clocks, **{name: getattr(clocks, name) + argument})
        elif not self.progress.is_finished:
            state = self.progress.state
            if verb == "add":
                elements = df.Elements(1, (argument,))
                state = trigger.on_elements(state, WINDOW, elements, clocks)
            else:
                for name in trigger.signals:
                    state = trigger.on_signal(state, WINDOW, name, clocks)
            self.progress = Progress(state)
        # Again and again, because at one instant several parts of it may be due.
        for _ in range(5):
            if not self.would_fire(clocks):
                break
            self.progress = trigger.on_fire(self.progress.state, WINDOW, clocks)

    def would_fire(self, clocks: df.Clocks) -> bool:
        if self.progress.is_finished:
            return False
        return self.trigger.should_fire(self.progress.state, WINDOW, clocks)


@given(trigger=any_trigger(), steps=STEPS, later=st.tuples(st.integers(0, 90), st.integers(0, 90)))
@example(df.AfterAll(df.AfterProcessingTime(0), df.AfterCount(5)), [("add", 1)], (0, 0))
@example(
    df.AfterAll(df.AfterWatermark(), df.AfterCount(5)), [("add", 1), ("watermark", 70)], (0, 0)
)
def test_nothing_becomes_due_before_the_next_timers(
    trigger: df.Trigger, steps: list[tuple[str, int]], later: tuple[int, int]
) -> None:
    """Nobody asks a trigger in between, so an instant that is not named, or hidden by one that has passed, is lost."""
    alone = Alone(trigger)
    for step in steps:
        alone.take(*step)
    clocks = alone.clocks
    if alone.progress.is_finished or alone.would_fire(clocks):
        return
    due = trigger.next_timers(alone.progress.state, WINDOW, clocks).ahead_of(clocks)
    watermark_us, now_us = clocks.watermark_us + later[0], clocks.now_us + later[1]
    if due.event_us is not None:
        assert clocks.watermark_us < due.event_us
        watermark_us = min(watermark_us, due.event_us - 1)
    if due.processing_us is not None:
        assert clocks.now_us < due.processing_us
        now_us = min(now_us, due.processing_us - 1)

    assert not alone.would_fire(df.Clocks(watermark_us=watermark_us, now_us=now_us))


@given(trigger=any_trigger(), several=st.lists(STEPS, min_size=1, max_size=3), data=st.data())
def test_windows_merge_in_any_order(
    trigger: df.Trigger, several: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    """What a merged window waits for does not depend on which of them came first."""
    alone = [Alone(trigger) for _ in several]
    for each, steps in zip(alone, several, strict=True):
        for step in steps:
            each.take(*step)
    watermark_us = max(each.clocks.watermark_us for each in alone)
    progress = [each.progress for each in alone]
    clocks = df.Clocks(watermark_us=watermark_us, now_us=0)
    merged = trigger.on_merge(progress, WINDOW, clocks)
    other = trigger.on_merge(data.draw(st.permutations(progress)), WINDOW, clocks)

    assert merged.is_finished == other.is_finished == all(each.is_finished for each in progress)
    if not merged.is_finished:
        for now_us in (0, 10, 40, 200):
            clocks = df.Clocks(watermark_us=watermark_us, now_us=now_us)
            assert trigger.should_fire(merged.state, WINDOW, clocks) == trigger.should_fire(
                other.state, WINDOW, clocks
            )
            assert trigger.next_timers(merged.state, WINDOW, clocks) == trigger.next_timers(
                other.state, WINDOW, clocks
            )
