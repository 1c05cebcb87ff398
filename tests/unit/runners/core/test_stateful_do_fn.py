"""The machine of stateful DoFns, one rule at a time; any program at all is in tests/property."""

import pickle
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from runners.core.ground.bundle import Bundle
from runners.core.partials.stateful_inputs import StatefulInputs
from runners.core.stateful import stateful_do_fn
from runners.core.stateful.keyed_state import KeyedState
from runners.direct import DirectRunner
from runners.stored.cells import decode_cell, encode_cell
from tests.stateful_programs import Engine
from triggers.trigger import TriggerTimers
from windowing.pane import NO_FIRING
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW, Window

US = 1_000_000
W1, W2 = Window(0, 10 * US), Window(10 * US, 20 * US)
COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())
END = df.TimerSpec("end", df.TimeDomain.EVENT)
CLOCK = df.TimerSpec("clock", df.TimeDomain.PROCESSING)


def fixed(lateness: int = 0) -> df.WindowInto:
    return df.WindowInto(
        df.FixedWindows(10),
        allowed_lateness=lateness,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )


class Countdown(df.DoFn):
    """An element is a list of instants, in seconds, for the timer; None clears it."""

    def process(
        self,
        element: tuple[str, list[int | None]],
        /,
        count: Any = df.DoFn.StateParam(COUNT),
        end: Any = df.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        count.add(1)
        for at in element[1]:
            end.clear() if at is None else end.set(at)
        yield "element"

    @df.on_timer(END)
    def rings(
        self,
        key: Any = df.DoFn.KeyParam,
        at: datetime = df.DoFn.TimestampParam,
        count: Any = df.DoFn.StateParam(COUNT),
    ) -> Iterator[Any]:
        yield key, at.timestamp(), count.read()


def rung(engine: Engine) -> list[Any]:
    return [value for value, *_ in engine.outputs if value != "element"]


def test_set_reset_and_clear_in_one_bundle_are_as_written() -> None:
    engine = Engine.of(Countdown(), fixed())
    engine.add(("a", W1, [5, 3], 1 * US), ("b", W1, [3, None], 1 * US), ("c", W1, [None, 4], US))
    engine.advance(9 * US)

    assert [("a", 3.0, 1), ("c", 4.0, 1)] == rung(engine)


def test_timers_of_a_key_fire_in_time_order_across_its_windows() -> None:
    engine = Engine.of(Countdown(), fixed(lateness=30))
    engine.add(("a", W1, [15], US), ("a", W2, [12], 11 * US), ("a", W2, [18], 11 * US))
    engine.add(("b", W1, [16], US))
    engine.advance(19 * US)

    assert [15.0, 16.0, 18.0] == [at for _, at, _ in rung(engine)]


def test_a_timer_fires_once_for_each_time_it_was_set() -> None:
    engine = Engine.of(Countdown(), fixed())
    engine.add(("a", W1, [5], US))
    engine.advance(5 * US)
    engine.advance(6 * US)
    engine.add(("a", W1, [8], 7 * US))
    engine.advance(9 * US)

    assert [("a", 5.0, 1), ("a", 8.0, 2)] == rung(engine)


def test_a_timer_behind_the_watermark_fires_before_the_next_element() -> None:
    """At the time of the element that set it, so that it is no later than that."""
    engine = Engine.of(Countdown(), fixed())
    engine.advance(5 * US)
    engine.add(("a", W1, [2], 6 * US), ("a", W1, [], 7 * US))

    assert [
        ("element", 6 * US, W1),
        (("a", 6.0, 1), 6 * US, W1),
        ("element", 7 * US, W1),
    ] == engine.outputs


def test_what_expires_keeps_nothing() -> None:
    """Neither cell nor timer; what comes afterwards is late, each element by itself."""
    engine = Engine.of(Countdown(), fixed(lateness=5))
    engine.add(("a", W1, [], US), ("a", W2, [], 11 * US))
    engine.advance(14 * US)
    assert {("a", W1), ("a", W2)} == set(engine.cells)
    engine.add(("a", W1, [], 2 * US))
    engine.advance(15 * US)
    assert {("a", W2)} == set(engine.cells)
    assert 1 == len(engine.timers)
    engine.add(("a", W1, [7], 3 * US), ("a", W1, [8], 4 * US))
    engine.advance(25 * US)

    assert ({}, 0) == (engine.cells, len(engine.timers))
    assert [([[7]], 1, 15 * US), ([[8]], 1, 15 * US)] == [
        (late.accumulator, late.count, late.watermark_us) for late in engine.late
    ]


def test_a_timer_for_after_the_expiry_fires_at_it() -> None:
    """What it emits lies in the window, as what a grouping emits at expiry."""
    engine = Engine.of(Countdown(), fixed(lateness=5))
    engine.add(("a", W1, [100], US), ("b", W1, [12], US))
    engine.advance(15 * US)

    assert [
        (("b", 12.0, 1), W1.max_timestamp_us, W1),
        (("a", 15.0, 1), W1.max_timestamp_us, W1),
    ] == engine.outputs[2:]


REMINDERS = df.TimerFamilySpec("reminders", df.TimeDomain.EVENT)


class Reminders(df.DoFn):
    """An element is an instant, in seconds, for the timer of that name."""

    def process(
        self, element: tuple[str, tuple[str, int]], /, timers: Any = df.DoFn.TimerParam(REMINDERS)
    ) -> None:
        tag, second = element[1]
        timers.get(tag).set(second)

    @df.on_timer(REMINDERS)
    def reminded(
        self,
        tag: str = df.DoFn.DynamicTimerTagParam,
        time: datetime = df.DoFn.FireTimestampParam,
        watermark: datetime = df.DoFn.WatermarkParam,
    ) -> Iterator[Any]:
        yield tag, time.timestamp(), watermark.timestamp()


def test_the_timers_of_a_family_are_distinguished_by_their_tags() -> None:
    """Each is given what it was set for, which may be in the past, and how far event time is."""
    engine = Engine.of(Reminders(), fixed())
    for tag, second in (("a", 7), ("b", 5), ("a", 6)):
        engine.add(("k", W1, (tag, second), US))
    engine.advance(8 * US)
    engine.add(("k", W1, ("late", 2), 9 * US))

    assert [("b", 5, 8), ("a", 6, 8), ("late", 2, 8)] == [value for value, *_ in engine.outputs]


def test_a_family_that_became_a_timer_is_missed() -> None:
    """After an update: what is set would be lost."""

    class Single(df.DoFn):
        def process(self, element: Any, /) -> None: ...

        @df.on_timer(df.TimerSpec("reminders", df.TimeDomain.EVENT))
        def reminded(self) -> None: ...

    before, after = Engine.of(Reminders(), fixed()), Engine.of(Single(), fixed())
    before.add(("k", W1, ("a", 7), US))
    after.cells, after.timers = before.cells, before.timers
    with pytest.raises(df.TransformError, match="does not declare any more"):
        after.advance(8 * US)


class Ticking(df.DoFn):
    """Both timers set themselves again."""

    def process(
        self,
        element: Any,
        /,
        at: datetime = df.DoFn.TimestampParam,
        end: Any = df.DoFn.TimerParam(END),
        clock: Any = df.DoFn.TimerParam(CLOCK),
    ) -> None:
        end.set(at + timedelta(seconds=3))
        clock.set_after(4)

    @df.on_timer(END)
    def ended(
        self, at: datetime = df.DoFn.TimestampParam, end: Any = df.DoFn.TimerParam(END)
    ) -> Iterator[Any]:
        yield "event", at.timestamp()
        end.set(at + timedelta(seconds=3))

    @df.on_timer(CLOCK)
    def rang(
        self, at: datetime = df.DoFn.TimestampParam, clock: Any = df.DoFn.TimerParam(CLOCK)
    ) -> Iterator[Any]:
        yield "clock", at.timestamp()
        clock.set_after(4)


def test_timers_that_set_themselves_again_end_with_the_window() -> None:
    engine = Engine.of(Ticking(), fixed())
    engine.advance(now_us=0)
    engine.add(("a", W1, 0, US))
    engine.advance(now_us=5 * US)
    engine.advance(5 * US)
    engine.advance(MAX_TIMESTAMP_US)

    assert [("clock", 1), ("event", 4), ("event", 7), ("event", 10), ("clock", 10)] == rung(engine)
    assert ({}, 0) == (engine.cells, len(engine.timers))


def test_processing_time_passes_without_data() -> None:
    engine = Engine.of(Ticking(), fixed())
    engine.advance(now_us=0)
    engine.add(("a", W1, 0, US))
    for now in range(1, 10):
        engine.advance(now_us=now * US)
        if now == 6:
            engine.advance(2 * US)

    assert [("clock", 1), ("clock", 2)] == rung(engine)


def test_a_timer_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful_do_fn, "FIRINGS_MAX", 100)
    engine = Engine.of(Ticking())
    engine.add(("a", GLOBAL_WINDOW, 0, US))

    engine.advance(300 * US)  # 99 times
    engine.advance(600 * US)  # and again: only those in a row count
    with pytest.raises(df.TransformError, match="sets the timer 'end' again without"):
        engine.advance(MAX_TIMESTAMP_US)


@pytest.mark.parametrize("elements", [1, 7])
def test_timers_between_elements_are_not_counted_together(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many elements are replayed in one step, each after the timers that the one before has set."""
    monkeypatch.setattr(stateful_do_fn, "FIRINGS_MAX", 2)
    engine = Engine.of(Countdown(), is_time_sorted=True)
    for at in range(0, 10 * elements, 10):
        engine.add(("a", GLOBAL_WINDOW, [at + 5], at * US))
    engine.advance(MAX_TIMESTAMP_US)

    assert list(range(5, 10 * elements, 10)) == [at for _, at, _ in rung(engine)]


def test_nothing_is_kept_where_there_is_nothing() -> None:
    """A cell is there as long as it has state, timers or elements that wait; none is written for nothing."""

    class Idle(Countdown):
        def process(  # type: ignore[override]
            self,
            element: Any,
            /,
            count: Any = df.DoFn.StateParam(COUNT),
            end: Any = df.DoFn.TimerParam(END),
        ) -> None:
            count.add(1) if element[1] else count.clear()

    engine = Engine.of(Idle())
    engine.add(("a", GLOBAL_WINDOW, False, US))
    assert ({}, 0, set()) == (engine.cells, len(engine.timers), engine.touched)
    engine.add(("a", GLOBAL_WINDOW, True, US))
    assert {("a", GLOBAL_WINDOW)} == set(engine.cells) == engine.touched
    engine.add(("a", GLOBAL_WINDOW, False, US))
    assert ({}, 0) == (engine.cells, len(engine.timers))


def test_a_timer_that_is_not_there_any_more_is_an_error() -> None:
    """State was kept by a program that had it."""
    engine = Engine.of(Countdown(), fixed())
    engine.cells["a", W1] = KeyedState(timers={"old": (5 * US, 0)})
    with pytest.raises(df.TransformError, match="has a timer 'old' set that its DoFn does not"):
        engine.add(("a", W1, [], US))


def test_cells_are_small_and_come_back() -> None:
    cell = KeyedState(
        {"count": 5}, {"end": (5 * US, 3 * US)}, engine_timers=TriggerTimers(5 * US, None)
    )
    waiting = KeyedState(backlog=[("value", 7, NO_FIRING, 1)], engine_timers=TriggerTimers(8))

    for each in (cell, waiting):
        assert each == decode_cell(encode_cell(each))
    assert len(encode_cell(cell)) < 90


def test_partials_keep_the_order_of_arrival() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([]) | "stateful" >> df.ParDo(Countdown())
    inputs = StatefulInputs(pipeline.graph().transforms[-1])
    first = inputs.lift(Bundle([("a", 1), ("b", 2), ("a", 3)], [5, 6, 4]), watermark_us=5)
    second = inputs.lift(Bundle([("a", 4)], [7], [W1], None, [-1]), watermark_us=5)
    third = inputs.lift(Bundle([("a", 5)], [1]), watermark_us=5)

    a, b = ("a", GLOBAL_WINDOW), ("b", GLOBAL_WINDOW)
    assert [
        (*a, [(1, 5, NO_FIRING, 1), (3, 4, NO_FIRING, 1), (5, 1, NO_FIRING, 1)], 3),
        (*b, [(2, 6, NO_FIRING, 1)], 1),
        ("a", W1, [(4, 7, NO_FIRING, -1)], 1),
    ] == inputs.combined([*first, *second, *third])


def test_the_engines_timers_are_the_soonest_of_each_domain() -> None:
    engine = Engine.of(Ticking(), fixed())
    effects = engine.stage.machine.add(
        engine.cells,
        [("a", W1, [(0, 2 * US, NO_FIRING, 1)], 1)],
        df.Clocks(watermark_us=0, now_us=US),
    )
    cell_id = ("a", W1)

    assert {
        (cell_id, W1, TimeDomain.EVENT): 5 * US,
        (cell_id, W1, TimeDomain.PROCESSING): 5 * US,
    } == effects.timers


class Ending(df.DoFn):
    """Emits at the end of a bundle, in the first window, at the second that its last element is."""

    def process(self, element: tuple[str, int], /, count: Any = df.DoFn.StateParam(COUNT)) -> None:
        count.add(1)
        self.at_s = element[1]

    def finish_bundle(self) -> Iterator[Any]:
        yield df.WindowedValue("end", self.at_s, W1)


def test_the_end_of_a_bundle_is_bound_by_its_own_elements_only() -> None:
    """What the bundle before had is behind the watermark by now."""
    for window, at_us, message in [
        (W1, 4 * US, "an earlier event time than all elements have"),
        (W2, 3 * US, "in a window that none of the elements is in"),
    ]:
        engine = Engine.of(Ending(), fixed())
        engine.add(("k", W1, 3, 3 * US))
        assert engine.emitted(W1) == [("end", 3 * US)]
        with pytest.raises(df.TransformError, match=message):
            engine.add(("k", window, 3, at_us))


LIVES = df.BagStateSpec("lives", ttl=5)
LIVES_BY_THE_CLOCK = df.BagStateSpec(
    "lives by the clock", ttl=5, ttl_domain=df.TimeDomain.PROCESSING
)


class Living(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        lives: Any = df.DoFn.StateParam(LIVES),
        by_the_clock: Any = df.DoFn.StateParam(LIVES_BY_THE_CLOCK),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        lives.add(element[1])
        by_the_clock.add(element[1])
        end.set(10)

    @df.on_timer(END)
    def rings(
        self,
        lives: Any = df.DoFn.StateParam(LIVES),
        by_the_clock: Any = df.DoFn.StateParam(LIVES_BY_THE_CLOCK),
    ) -> Iterator[Any]:
        yield lives.read(), by_the_clock.read()


@pytest.mark.parametrize(("at", "left"), [(3, []), (4, []), (5, [1]), (9, [1])])
def test_the_last_timers_of_a_window_read_what_still_lives(at: int, left: list[int]) -> None:
    """A time to live that ends with the window or behind it ends with the window, after its timers."""
    engine = Engine.of(Living(), fixed())
    engine.add(("a", W1, 1, at * US))
    engine.advance(30 * US, 1 * US)

    assert [(left, [1])] == [value for value, *_ in engine.outputs]
    assert ({}, 0) == (engine.cells, len(engine.timers))


def test_what_is_over_takes_no_memory() -> None:
    engine = Engine.of(Living(), fixed(lateness=30))
    engine.advance(0, 0)
    engine.add(("a", W1, 1, US))
    engine.advance(20 * US, 20 * US)

    assert ({}, 0) == (engine.cells, len(engine.timers))


class Basket(df.DoFn):
    """An element that is None clears; what is left is emitted in the end."""

    def process(
        self,
        element: tuple[str, int | None],
        /,
        lives: Any = df.DoFn.StateParam(COUNT),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        if element[1] is None:
            lives.clear()
        else:
            lives.add(1)
            end.set(element[1])

    @df.on_timer(END)
    def rings(self, count: Any = df.DoFn.StateParam(COUNT)) -> Iterator[Any]:
        count.add(1)
        yield "timer", count.read()

    @df.on_window_expiration
    def expires(
        self,
        key: Any = df.DoFn.KeyParam,
        at: datetime = df.DoFn.TimestampParam,
        count: Any = df.DoFn.StateParam(COUNT),
    ) -> Iterator[Any]:
        yield key, at.timestamp(), count.read()
        count.add(1)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_expires_is_called_once_after_its_timers(restarts: bool) -> None:
    engine = Engine.of(Basket(), fixed(lateness=5))
    engine.add(("a", W1, 3, US), ("a", W1, 40, US), ("b", W1, 4, US), ("b", W1, None, US))
    engine.add(("c", W2, 12, 11 * US))
    engine.advance(13 * US)
    if restarts:
        engine.cells = {cell: decode_cell(encode_cell(each)) for cell, each in engine.cells.items()}
    engine.advance(15 * US)
    engine.advance(16 * US)

    last_us = W1.max_timestamp_us
    assert [
        (("timer", 1), 4 * US, W1),
        (("timer", 2), 12 * US, W2),
        (("timer", 3), last_us, W1),
        (("b", 15.0, 1), last_us, W1),
        (("a", 15.0, 3), last_us, W1),
    ] == engine.outputs
    assert [("c", W2)] == list(engine.cells)


def test_no_state_no_expiration() -> None:
    engine = Engine.of(Basket(), fixed())
    engine.add(("a", W1, 3, US), ("a", W1, None, 2 * US))
    engine.cells["b", W1] = KeyedState(backlog=[(None, 3 * US, NO_FIRING, 1)])
    engine.advance(2 * US)
    assert engine.outputs == []


def test_an_expiration_that_fails_is_a_dead_letter() -> None:
    class Failing(Basket):
        @df.on_window_expiration
        def expires(self, *_: Any, **__: Any) -> Iterator[Any]:
            raise ValueError("no way out")

    engine = Engine.of(Failing(), fixed(), tries=2)
    engine.add(("a", W1, 3, US))
    engine.advance(20 * US)

    (letter,) = engine.dead
    assert "no way out" in str(letter)
    assert engine.cells == {}


def test_timers_of_a_cell_are_its_own() -> None:
    """Cells without any share one object for that, and a copy of a cell has another one."""
    first, second = KeyedState(), KeyedState()
    copied = pickle.loads(pickle.dumps(second))

    for cell in (first, copied):
        cell.timers_to_set()["timer"] = (1, 0)

    assert [dict(each.timers) for each in (first, second, copied)] == [
        {"timer": (1, 0)},
        {},
        {"timer": (1, 0)},
    ]
    with pytest.raises(AssertionError):
        second.timers["timer"] = (1, 0)
