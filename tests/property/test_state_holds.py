"""Holds on the output watermark: what is reported is always the first of what state and timers hold."""

from collections.abc import Iterator
from typing import Any

import attrs
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from tests.property.test_stateful_do_fns import stored
from tests.stateful_programs import US, Engine
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW

EARLIEST = df.WatermarkHoldStateSpec("earliest")
FLUSH = df.TimerSpec("flush", df.TimeDomain.EVENT, holds_watermark=True)
CLOCKS = df.TimerFamilySpec("clocks", df.TimeDomain.PROCESSING, holds_watermark=True)
TAGS = ("x", "y")
PLACE = ("a", GLOBAL_WINDOW), GLOBAL_WINDOW


class Holding(df.DoFn):
    requires_time_sorted_input = False

    def process(
        self,
        element: Any,
        /,
        earliest: Any = df.DoFn.StateParam(EARLIEST),
        flush: Any = df.DoFn.TimerParam(FLUSH),
        clocks: Any = df.DoFn.TimerParam(CLOCKS),
    ) -> None:
        for name, *args in element[1]:
            handle = earliest if name == "earliest" else flush
            if name in TAGS:
                handle = clocks.get(name)
            if not args:
                handle.clear()
            elif name == "earliest":
                handle.add(args[0])
            else:
                handle.set(args[0], output_timestamp=args[1])

    @df.on_timer(FLUSH)
    def flushed(self, at: Any = df.DoFn.TimestampParam) -> Iterator[Any]:
        yield "flush", round(at.timestamp())

    @df.on_timer(CLOCKS)
    def rings(
        self, tag: str = df.DoFn.DynamicTimerTagParam, at: Any = df.DoFn.TimestampParam
    ) -> Iterator[Any]:
        yield tag, round(at.timestamp())


@attrs.define
class Model:
    """By the name of what holds, when it fires, and where it holds; both in seconds."""

    timers: dict[str, tuple[int, int | None]] = attrs.field(factory=dict)
    earliest: int | None = None
    fired: list[tuple[str, int]] = attrs.field(factory=list)

    def run(self, operations: list[Any]) -> None:
        for name, *args in operations:
            if name == "earliest":
                known = [] if self.earliest is None else [self.earliest]
                self.earliest = min([*known, *args]) if args else None
            else:
                self.timers.pop(name, None)
                if args:
                    self.timers[name] = args[0], args[1]

    def fire(self, watermark: int, now: int) -> None:
        for names, until in ((("flush",), watermark), (TAGS, now)):
            due = [name for name in self.timers if name in names and self.timers[name][0] <= until]
            for name in sorted(due, key=lambda each: self.timers[each][0]):
                fire, output = self.timers.pop(name)
                at = fire if name == "flush" else watermark
                self.fired.append((name, output if output is not None else at))

    @property
    def hold_us(self) -> int | None:
        holds = [output for _, output in self.timers.values() if output is not None]
        holds += [] if self.earliest is None else [self.earliest]
        return min(holds) * US if holds else None


@st.composite
def timer(draw: st.DrawFn, name: str) -> tuple[str, int, int | None]:
    """Set behind the watermark and the clock, for which 100 is far away: at 0 the element is."""
    fire = draw(st.integers(0, 40))
    return name, fire, draw(st.none() | st.integers(0, fire if name == "flush" else 60))


OPERATIONS = st.lists(
    st.one_of(
        *(timer(name) for name in ("flush", *TAGS)),
        st.tuples(st.just("earliest"), st.integers(0, 60)),
        st.tuples(st.sampled_from(["flush", *TAGS, "earliest"])),
    ),
    max_size=3,
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("element"), OPERATIONS),
        st.tuples(st.just("watermark"), st.integers(1, 15)),
        st.tuples(st.just("clock"), st.integers(1, 15)),
        st.just(("restart",)),
    ),
    max_size=12,
)


@given(events=EVENTS)
def test_the_first_hold_is_reported(events: list[tuple[Any, ...]]) -> None:
    engine, model = Engine.of(Holding()), Model()
    watermark = now = 0
    engine.advance(0, 0)
    for name, *args in events:
        if name == "element":
            engine.add(("a", GLOBAL_WINDOW, args[0], 0))
            model.run(args[0])
        elif name == "watermark":
            watermark += args[0]
        elif name == "clock":
            now += args[0]
        else:
            engine.cells = stored(engine.cells)
        engine.advance(watermark * US, now * US)
        model.fire(watermark, now)

        assert model.fired == [value for value, _, _ in engine.outputs]
        assert [at_us for _, at_us, _ in engine.outputs] == [at * US for _, at in model.fired]
        assert model.hold_us == engine.holds.get(PLACE)
        cell = engine.cells.get(PLACE[0])
        assert model.hold_us == (None if cell is None else cell.hold_us)

    engine.advance(MAX_TIMESTAMP_US, MAX_TIMESTAMP_US)
    assert ({}, {}, 0) == (engine.holds, engine.cells, len(engine.timers))


class EmitsEarly(df.DoFn):
    """Holds the watermark at a second, or emits something at one."""

    requires_time_sorted_input = False

    def process(
        self, element: tuple[str, tuple[str, int]], /, earliest: Any = df.DoFn.StateParam(EARLIEST)
    ) -> Iterator[Any]:
        what, at = element[1]
        if what == "hold":
            earliest.add(at)
        else:
            yield df.TimestampedValue(what, at)


@given(hold=st.none() | st.integers(0, 9), at=st.integers(0, 9), output=st.integers(0, 9))
@example(hold=2, at=7, output=3)
def test_an_element_may_emit_as_early_as_its_key_holds(
    hold: int | None, at: int, output: int
) -> None:
    """An output may be earlier than its element, but not than the hold of its key."""
    engine = Engine.of(EmitsEarly())
    engine.advance(0, 0)
    if hold is not None:
        engine.add(("a", GLOBAL_WINDOW, ("hold", hold), 0))
    engine.add(("a", GLOBAL_WINDOW, ("output", output), at * US))

    ((value, from_us, window),) = engine.outputs
    assert (df.TimestampedValue("output", output), GLOBAL_WINDOW) == (value, window)
    earliest = at if hold is None or hold >= at else max(hold, min(output, at))
    assert earliest * US == from_us
