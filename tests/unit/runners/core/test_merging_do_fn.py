"""MergingDoFnMachine: what becomes of state, timers and holds, case by case; `tests/property/test_merging_state.py`."""

from collections.abc import Iterator
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import TransformError
from dataflow.testing import assert_that, contains_in_any_order
from runners.direct import DirectRunner
from tests.stateful_programs import Engine
from windowing.window import Window

US = 1_000_000
BAG, SET = df.BagStateSpec("bag"), df.SetStateSpec("set")
LIST = df.OrderedListStateSpec("list")
MAP = df.MapStateSpec("map", merge=lambda earlier, later: f"{earlier}{later}")
ONE = df.ReadModifyWriteStateSpec("one", merge=lambda earlier, later: f"{earlier}{later}")
FIRST = df.CombiningValueStateSpec("first", min)
SHORT = df.ReadModifyWriteStateSpec("short", ttl=30, merge=max)
LEAST = df.ReadModifyWriteStateSpec("least", merge=min)
END = df.TimerSpec("end", df.TimeDomain.EVENT)
CLOCK = df.TimerSpec("clock", df.TimeDomain.PROCESSING)
TAGS = df.TimerFamilySpec("tags", df.TimeDomain.EVENT, holds_watermark=True)

#: Two windows, and one that bridges them.
EARLY, LATE, BRIDGE = Window(0, 10 * US), Window(15 * US, 25 * US), Window(8 * US, 18 * US)
WHOLE = Window(0, 25 * US)


class Scripted(df.DoFn):
    """Calls the function that an element brings with its handles."""

    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[str, Any],
        /,
        bag: Any = df.DoFn.StateParam(BAG),
        found: Any = df.DoFn.StateParam(SET),
        listed: Any = df.DoFn.StateParam(LIST),
        mapped: Any = df.DoFn.StateParam(MAP),
        one: Any = df.DoFn.StateParam(ONE),
        first: Any = df.DoFn.StateParam(FIRST),
        short: Any = df.DoFn.StateParam(SHORT),
        end: Any = df.DoFn.TimerParam(END),
        clock: Any = df.DoFn.TimerParam(CLOCK),
        tags: Any = df.DoFn.TimerParam(TAGS),
    ) -> Any:
        handles = locals()
        return element[1](handles)

    @df.on_timer(END)
    def ended(self, at: Any = df.DoFn.FireTimestampParam) -> Iterator[Any]:
        yield "end", round(at.timestamp())

    @df.on_timer(CLOCK)
    def rang(self, at: Any = df.DoFn.FireTimestampParam) -> Iterator[Any]:
        yield "clock", round(at.timestamp())

    @df.on_timer(TAGS)
    def tagged(
        self, tag: Any = df.DoFn.DynamicTimerTagParam, at: Any = df.DoFn.FireTimestampParam
    ) -> Iterator[Any]:
        yield tag, round(at.timestamp())


def engine_with(early: Any, late: Any, bridge: Any = lambda _: None, **options: Any) -> Engine:
    """The later window has its element first; then comes the earlier one, and then what bridges them."""
    engine = Engine.of(Scripted(), df.WindowInto(df.Sessions(10)), **options)
    engine.add(("k", LATE, late, 15 * US))
    engine.add(("k", EARLY, early, 0))
    engine.add(("k", BRIDGE, bridge, 8 * US))
    return engine


def values_of(engine: Engine) -> dict[Any, Any]:
    (cell,) = engine.cells.values()
    (values,) = [state.values for state in cell.windows.values()]
    return dict(values)


def test_what_has_an_order_is_in_that_of_the_windows() -> None:
    def write(number: int, at: int) -> Any:
        def run(handles: Any) -> None:
            handles["bag"].add(number)
            handles["found"].add(number)
            handles["found"].add(0)
            handles["listed"].add((20, number))
            handles["listed"].add((at, number))
            handles["mapped"].put("both", number)
            handles["mapped"].put(number, number)
            handles["one"].write(number)
            handles["first"].add(at)

        return run

    engine = engine_with(write(1, 7), write(2, 5))

    assert list(next(iter(engine.cells.values())).windows) == [WHOLE]
    found = values_of(engine)
    assert found["bag"] == [1, 2]
    assert list(found["set"]) == [1, 0, 2]
    assert found["list"] == [(5 * US, 2), (7 * US, 1), (20 * US, 1), (20 * US, 2)]
    assert list(found["map"].items()) == [("both", "12"), (1, 1), (2, 2)]
    assert found["one"] == "12"
    assert found["first"] == [5]  # the accumulator of a function on all values


def test_state_that_one_window_has_is_kept_without_asking() -> None:
    """The function is called with two values, and never with None."""

    def write(handles: Any) -> None:
        handles["one"].write(2)
        handles["mapped"].put("key", 3)

    assert values_of(engine_with(lambda _: None, write)) == {"one": 2, "map": {"key": 3}}
    assert values_of(engine_with(write, lambda _: None)) == {"one": 2, "map": {"key": 3}}


@pytest.mark.parametrize(("early", "late"), [(20, 22), (22, 20)])
def test_the_latest_of_the_timers_is_left(early: int, late: int) -> None:
    def timers(at: int, tag: str) -> Any:
        def run(handles: Any) -> None:
            handles["end"].set(at)
            handles["clock"].set(at + 100)
            handles["tags"].get("both").set(at)
            handles["tags"].get(tag).set(at - 1)

        return run

    engine = engine_with(timers(early, "early"), timers(late, "late"))
    engine.advance(24 * US, 200 * US)

    assert sorted(value for value, _, _ in engine.outputs) == [
        ("both", 22),
        ("clock", 122),
        ("early", early - 1),
        ("end", 22),
        ("late", late - 1),
    ]
    assert {window for _, _, window in engine.outputs} == {WHOLE}


@pytest.mark.parametrize(("early", "late"), [(20, 22), (22, 20)])
def test_the_earliest_output_timestamp_holds_the_watermark(early: int, late: int) -> None:
    """Whichever timer is left, as the watermark behind has not passed it."""

    def timer(at: int, output: int) -> Any:
        return lambda handles: handles["tags"].get("x").set(at, output_timestamp=output)

    engine = engine_with(timer(early, 3), timer(late, 16))

    assert engine.holds == {(("k", None), WHOLE): 3 * US}
    engine.advance(24 * US)
    assert engine.outputs == [(("x", 22), 3 * US, WHOLE)]
    assert engine.holds == {}


def test_state_lives_as_long_as_in_the_window_where_it_lives_longest() -> None:
    def write(handles: Any) -> None:
        handles["short"].write(1)

    engine = engine_with(write, write)
    (cell,) = engine.cells.values()

    assert cell.windows[WHOLE].timers[("", "short")][0] == 45 * US


def test_a_timer_keeps_its_instant_when_its_window_grows() -> None:
    engine = Engine.of(Scripted(), df.WindowInto(df.Sessions(10)))
    engine.add(("k", EARLY, lambda handles: handles["end"].set(9), 0))
    engine.add(("k", BRIDGE, lambda _: None, 8 * US))
    engine.advance(9 * US)

    assert engine.outputs == [(("end", 9), 9 * US, Window(0, 18 * US))]


def test_a_window_without_state_is_open_until_it_expires() -> None:
    """What comes may merge with it; then nothing is kept."""
    engine = engine_with(lambda _: None, lambda _: None)
    (cell,) = engine.cells.values()
    assert list(cell.windows) == [WHOLE]

    engine.advance(25 * US)

    assert engine.cells == {}
    assert engine.timers.next_event_us() is None


@pytest.mark.parametrize("tries", [None, 2])
def test_what_fails_merges_nothing(tries: int | None) -> None:
    """It is a dead letter; or the step is run again from what was committed."""

    def fail(handles: Any) -> None:
        handles["bag"].add("failed")
        raise ValueError("no")

    def write(handles: Any) -> None:
        handles["bag"].add(1)

    if tries is None:
        with pytest.raises(TransformError, match="no"):
            engine_with(write, write, fail)
        return
    engine = engine_with(write, write, fail, tries=tries)

    (cell,) = engine.cells.values()
    assert {window: state.values for window, state in cell.windows.items()} == {
        LATE: {"bag": [1]},
        EARLY: {"bag": [1]},
    }
    assert len(engine.dead) == 1


def test_a_merge_function_that_fails_is_named() -> None:
    def write(handles: Any) -> None:
        handles["short"].write(1 if handles["bag"].is_empty else "x")
        handles["bag"].add(1)

    def other(handles: Any) -> None:
        handles["short"].write("x")

    with pytest.raises(TransformError) as caught:
        engine_with(write, other)

    assert "the merge function of state 'short' raised TypeError" in str(caught.value)
    assert "transform 'stateful'" in str(caught.value)


class Handled(df.DoFn):
    """Fails on negative numbers, in ``process`` or where windows merge."""

    requires_time_sorted_input = True

    def __init__(self, *, where_merged: bool) -> None:
        self._where_merged = where_merged

    def process(
        self,
        element: tuple[str, int],
        /,
        total: Any = df.DoFn.StateParam(FIRST),
        least: Any = df.DoFn.StateParam(LEAST),
    ) -> None:
        total.add(element[1])
        least.write(element[1] if least.is_empty else min(element[1], least.read()))
        if element[1] < 0 and not self._where_merged:
            raise ValueError(element[1])

    @df.on_window_merge
    def merged(self, at: Any = df.DoFn.TimestampParam) -> None:
        if self._where_merged and at.timestamp() == 8:
            raise ValueError(at)

    @df.on_window_expiration
    def left(
        self, window: Any = df.DoFn.WindowParam, least: Any = df.DoFn.StateParam(LEAST)
    ) -> Iterator[Any]:
        yield window.start_us // US, window.end_us // US, least.read()


@pytest.mark.parametrize("where_merged", [False, True])
def test_a_failure_that_is_handled_merges_nothing(where_merged: bool) -> None:
    p = df.Pipeline(DirectRunner())
    values = [("k", 1, 0), ("k", -1, 8), ("k", 2, 16)]
    good, bad = (
        p
        | df.Create([df.TimestampedValue((key, value), at) for key, value, at in values])
        | df.WindowInto(df.Sessions(10))
        | df.ParDo(Handled(where_merged=where_merged)).with_exception_handling(
            exc_class=ValueError, retries=1
        )
    )
    assert_that(good, contains_in_any_order([(0, 10, 1), (16, 26, 2)]))
    assert_that(
        bad | df.Map(lambda each: each.element), contains_in_any_order([("k", -1)]), label="bad"
    )
    p.run().wait_until_finish()


class Noted(df.DoFn):
    """Tells when windows have merged, and sets a timer then."""

    requires_time_sorted_input = False

    def process(self, element: tuple[str, int], /, bag: Any = df.DoFn.StateParam(BAG)) -> None:
        bag.add(("element", element[1]))

    @df.on_window_merge
    def merged(
        self,
        key: Any = df.DoFn.KeyParam,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
        bag: Any = df.DoFn.StateParam(BAG),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        bag.add((key, round(at.timestamp()), window))
        end.set(window.end)

    @df.on_timer(END)
    def ended(self, bag: Any = df.DoFn.StateParam(BAG)) -> Iterator[Any]:
        yield bag.read()


def test_the_method_for_merges_is_called_before_the_element() -> None:
    """Not of the first element of a window, nor of one that leaves its window as it was."""
    engine = Engine.of(Noted(), df.WindowInto(df.Sessions(10)))
    for window, value, at in [(LATE, 1, 15), (EARLY, 2, 0), (BRIDGE, 3, 8), (EARLY, 4, 0)]:
        engine.add(("k", window, value, at * US))
    engine.add(("k", Window(20 * US, 30 * US), 5, 20 * US))
    engine.advance(30 * US)

    assert [value for value, _, _ in engine.outputs] == [
        [
            ("element", 2),
            ("element", 1),
            ("k", 8, WHOLE),
            ("element", 3),
            ("element", 4),
            ("k", 20, Window(0, 30 * US)),
            ("element", 5),
        ]
    ]


class Emits(df.DoFn):
    def process(self, element: tuple[str, int], /, bag: Any = df.DoFn.StateParam(BAG)) -> None:
        bag.add(element[1])

    @df.on_window_merge
    def merged(self) -> Any:
        return ["something"]


def test_a_merge_emits_nothing() -> None:
    engine = Engine.of(Emits(), df.WindowInto(df.Sessions(10)))
    engine.add(("k", EARLY, 1, 0))

    with pytest.raises(TransformError, match="merged"):
        engine.add(("k", BRIDGE, 2, 8 * US))
