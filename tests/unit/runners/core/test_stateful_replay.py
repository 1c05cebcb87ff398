"""Elements in the order of their event times: they wait for the watermark, and are replayed when it has passed them."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from tests.stateful_programs import Engine
from tests.unit.runners.core.test_stateful_do_fn import (
    CLOCK,
    END,
    US,
    W1,
    W2,
    Countdown,
    fixed,
    rung,
)
from windowing.pane import NO_FIRING


class InOrder(Countdown):
    requires_time_sorted_input = True

    def process(  # type: ignore[override]
        self,
        element: Any,
        /,
        at: datetime = df.DoFn.TimestampParam,
        sign: int = df.DoFn.SignParam,
        end: Any = df.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        yield element[1], at.timestamp(), sign

    handles_retractions = True


def test_in_time_order_elements_wait_for_the_watermark() -> None:
    """For one that is past them: at the watermark itself there may be more."""
    engine = Engine.of(InOrder(), fixed())
    engine.add(("a", W1, "x", 5 * US), ("a", W1, "y", 3 * US))
    assert [] == engine.outputs
    engine.advance(3 * US)
    assert [] == engine.outputs
    engine.add(("a", W1, "z", 3 * US))
    engine.advance(3 * US + 1)
    assert [("y", 3.0, 1), ("z", 3.0, 1)] == rung(engine)
    engine.add(("a", W1, "late", 1 * US))
    engine.advance(10 * US)

    assert [("late", 1.0, 1), ("x", 5.0, 1)] == rung(engine)[2:]
    assert ({}, 0) == (engine.cells, len(engine.timers))


class Chime(df.DoFn):
    """A timer of event time sets one of processing time, which is due at once; "now" sets it directly."""

    requires_time_sorted_input = True

    def process(
        self,
        element: Any,
        /,
        at: datetime = df.DoFn.TimestampParam,
        end: Any = df.DoFn.TimerParam(END),
        clock: Any = df.DoFn.TimerParam(CLOCK),
    ) -> Iterator[Any]:
        yield "element", at.timestamp()
        if element[1] == "first":
            end.set(at + timedelta(seconds=2))
        if element[1] == "now":
            clock.set_after(0)

    @df.on_timer(END)
    def ended(
        self, at: datetime = df.DoFn.TimestampParam, clock: Any = df.DoFn.TimerParam(CLOCK)
    ) -> Iterator[Any]:
        yield "event", at.timestamp()
        clock.set_after(0)

    @df.on_timer(CLOCK)
    def rang(self, at: datetime = df.DoFn.TimestampParam) -> Iterator[Any]:
        yield "clock", at.timestamp()


def test_what_is_due_on_the_way_fires_before_the_next_element() -> None:
    """In a replay too: at the watermark of the next element, before the element."""
    engine = Engine.of(Chime(), fixed())
    engine.add(("a", W1, "second", 5 * US), ("a", W1, "first", 1 * US))
    engine.advance(9 * US)

    assert [("element", 1), ("event", 3), ("clock", 5), ("element", 5)] == rung(engine)


def test_what_is_replayed_keeps_the_order_of_a_key_across_its_windows() -> None:
    """Timers and elements alike, although each window is replayed by itself."""
    engine = Engine.of(Chime(), fixed(lateness=30))
    engine.add(("a", W2, "first", 12 * US), ("a", W1, "first", 9 * US), ("a", W1, "", 13 * US))
    engine.advance(19 * US)

    assert [
        ("element", 9),
        ("event", 11),
        ("element", 12),
        ("clock", 13),
        ("element", 13),
        ("event", 14),
        ("clock", 19),
    ] == rung(engine)


def test_an_event_time_behind_the_end_of_its_window_is_no_excuse() -> None:
    """Event times may be changed after the window was given; it is processed before the window expires."""
    engine = Engine.of(Chime(), fixed())
    engine.add(("a", W1, "first", 4 * US), ("a", W1, "", 50 * US))
    engine.advance(5 * US)
    engine.advance(20 * US)

    assert [("element", 4), ("event", 6), ("clock", 9.999999), ("element", 50)] == rung(engine)
    assert ({}, 0) == (engine.cells, len(engine.timers))


def test_after_a_replay_the_watermark_is_what_it_is() -> None:
    """Also where the replay is followed by late elements in the same step."""
    engine = Engine.of(Chime(), fixed())
    engine.add(("a", W1, "", 1 * US))
    engine.watermark_us = 8 * US
    engine.add(("a", W1, "now", 2 * US))

    assert [("element", 1), ("element", 2), ("clock", 8)] == rung(engine)


def test_what_may_be_retracted_stays_in_the_order_of_arrival() -> None:
    """At one instant: first it is emitted, then it is retracted, whatever the values."""
    pipeline = df.Pipeline(DirectRunner())
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    (
        pipeline
        | df.Create([df.TimestampedValue(("a", 1), 1)])
        | df.WindowInto(df.FixedWindows(10), accumulation_mode=mode)
        | df.CombinePerKey(sum)
        | "stateful" >> df.ParDo(InOrder())
    )
    execution = plan(pipeline.graph())
    engine = Engine(GroupingStage(execution, execution.stages["stateful"]))
    signed = [("z", +1), ("z", -1), ("b", +1)]
    inputs = [(value, 5 * US, NO_FIRING, sign) for value, sign in signed]
    engine._apply(
        engine.stage.machine.add(
            engine.cells,
            [("a", W1, inputs, 3)],
            df.Clocks(watermark_us=engine.watermark_us, now_us=0),
        )
    )
    engine.advance(10 * US)

    assert [(value, 5.0, sign) for value, sign in signed] == rung(engine)


def test_values_without_an_order_of_their_own_are_an_error() -> None:
    engine = Engine.of(InOrder(), fixed())
    engine.add(("a", W1, threading.Lock(), US), ("a", W1, threading.Lock(), US))
    with pytest.raises(df.TransformError, match="cannot put elements of one instant in order"):
        engine.advance(10 * US)
