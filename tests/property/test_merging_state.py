"""A stateful DoFn in windows that merge, against a model that keeps lists of values, and nothing of our core.

Elements come in any order, some of them late and some of them failing; windows have any length, and merge where they
overlap.  The state of a session is that of its elements, in whatever windows they were before.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.stateful_programs import Engine
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window

US = 1_000_000
KEYS = "ab"

BAG, SET = df.BagStateSpec("bag"), df.SetStateSpec("set")
SUMS = df.MapStateSpec("sums", merge=lambda earlier, later: earlier + later)
BEST = df.ReadModifyWriteStateSpec("best", merge=max)
TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
TIMES = df.OrderedListStateSpec("times")
FIRST = df.WatermarkHoldStateSpec("first")
END = df.TimerSpec("end", df.TimeDomain.EVENT)
TAGS = df.TimerFamilySpec("tags", df.TimeDomain.EVENT)
PAUSE = 7


class Gather(df.DoFn):
    """Puts every element into every kind of state; what it emits depends on no order."""

    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[str, tuple[int, bool]],
        /,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
        bag: Any = df.DoFn.StateParam(BAG),
        found: Any = df.DoFn.StateParam(SET),
        sums: Any = df.DoFn.StateParam(SUMS),
        best: Any = df.DoFn.StateParam(BEST),
        total: Any = df.DoFn.StateParam(TOTAL),
        times: Any = df.DoFn.StateParam(TIMES),
        first: Any = df.DoFn.StateParam(FIRST),
        end: Any = df.DoFn.TimerParam(END),
        tags: Any = df.DoFn.TimerParam(TAGS),
    ) -> Iterator[Any]:
        value, fails = element[1]
        bag.add(value)
        found.add(value % 5)
        sums.put(value % 3, sums.get(value % 3, 0) + value)
        best.write(value if best.is_empty else max(value, best.read()))
        total.add(value)
        times.add((at, value))
        first.add(at)
        end.set(window.end)
        tags.get(str(value)).set(at.timestamp() + PAUSE)
        if fails:
            raise ValueError(value)
        yield "seen", value, tuple(sorted(bag.read()))

    @df.on_timer(END)
    def ended(self, bag: Any = df.DoFn.StateParam(BAG)) -> Iterator[Any]:
        yield "ended", tuple(sorted(bag.read()))

    @df.on_timer(TAGS)
    def tagged(self, tag: Any = df.DoFn.DynamicTimerTagParam) -> Iterator[Any]:
        yield "tagged", int(tag)

    @df.on_window_expiration
    def left(
        self,
        bag: Any = df.DoFn.StateParam(BAG),
        found: Any = df.DoFn.StateParam(SET),
        sums: Any = df.DoFn.StateParam(SUMS),
        best: Any = df.DoFn.StateParam(BEST),
        total: Any = df.DoFn.StateParam(TOTAL),
        times: Any = df.DoFn.StateParam(TIMES),
        first: Any = df.DoFn.StateParam(FIRST),
    ) -> Iterator[Any]:
        yield (
            "left",
            tuple(sorted(bag.read())),
            tuple(sorted(found.read())),
            tuple(sorted(sums.items())),
            best.read(),
            total.read(),
            tuple((round(at.timestamp()), value) for at, value in times.read()),
            round(first.read().timestamp()),
        )


@attrs.frozen
class Element:
    """In seconds; ``value`` makes it unique."""

    key: str
    value: int
    at: int
    gap: int
    fails: bool = False


#: Elements that come in one bundle, or how far the watermark comes.
Event = list[Element] | int


@attrs.define
class Session:
    start: int
    end: int
    elements: list[Element]
    is_end_set: bool = True

    @property
    def window(self) -> Window:
        return Window(self.start * US, self.end * US)

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(sorted(each.value for each in self.elements))

    def left(self) -> tuple[Any, ...]:
        values = self.values
        return (
            "left",
            values,
            tuple(sorted({each % 5 for each in values})),
            tuple(
                (rest, sum(each for each in values if each % 3 == rest))
                for rest in range(3)
                if any(each % 3 == rest for each in values)
            ),
            max(values),
            sum(values),
            # Of one instant in any order here: the order is compared where it is defined.
            tuple(sorted((each.at, each.value) for each in self.elements)),
            min(each.at for each in self.elements),
        )


@attrs.define
class Model:
    """What the sessions of one key see."""

    lateness: int
    is_sorted: bool
    watermark: int = -1
    open: list[Session] = attrs.field(factory=list)
    waiting: list[Element] = attrs.field(factory=list)
    outputs: list[tuple[Any, Window]] = attrs.field(factory=list)
    late: list[int] = attrs.field(factory=list)
    dead: list[int] = attrs.field(factory=list)

    def element(self, each: Element) -> None:
        if self.is_sorted and each.at >= self.watermark:
            self.waiting.append(each)
        else:
            self._see(each)

    def advance(self, watermark: int) -> None:
        ready = [each for each in self.waiting if each.at < watermark]
        self.waiting = [each for each in self.waiting if each.at >= watermark]
        for each in sorted(ready, key=lambda one: (one.at, one.value)):
            self._move(max(self.watermark, each.at))
            self._see(each)
        self._move(max(self.watermark, watermark))

    def _move(self, watermark: int) -> None:
        self.watermark = watermark
        for session in self.open:
            if session.is_end_set and session.end <= watermark:
                session.is_end_set = False
                self.outputs.append((("ended", session.values), session.window))
        for session in [each for each in self.open if each.end + self.lateness <= watermark]:
            self.open.remove(session)
            self.outputs.append((session.left(), session.window))

    def _see(self, each: Element) -> None:
        start, end = each.at, each.at + each.gap
        merged = [s for s in self.open if s.start < end and start < s.end]
        if not merged and end + self.lateness <= self.watermark:
            self.late.append(each.value)
            return
        if each.fails:
            self.dead.append(each.value)
            return
        session = Session(
            min([start, *(s.start for s in merged)]),
            max([end, *(s.end for s in merged)]),
            [one for s in merged for one in s.elements] + [each],
        )
        self.open = [s for s in self.open if s not in merged] + [session]
        self.outputs.append((("seen", each.value, session.values), session.window))
        self._move(self.watermark)


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    elements = draw(
        st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.integers(0, 60),
                st.integers(1, 12),
                st.integers(0, 5).map(lambda number: number == 0),
            ),
            max_size=25,
        )
    )
    made: list[Event] = []
    watermark = 0
    for value, (key, at, gap, fails) in enumerate(elements):
        element = Element(key, value, at, gap, fails)
        last = made[-1] if made else 0
        if draw(st.booleans()) and not isinstance(last, int):
            last.append(element)
        else:
            made.append([element])
        if draw(st.integers(0, 3)) == 0:
            watermark += draw(st.integers(1, 20))
            made.append(watermark)
    return made


def check_sessions(
    happening: Sequence[Event], lateness: int, is_sorted: bool, tries: int | None
) -> None:
    """Compare all that the machine does with the model, after each event."""
    into = df.WindowInto(
        df.Sessions(1),
        allowed_lateness=lateness,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )
    engine = Engine.of(Gather(), into, is_time_sorted=is_sorted, tries=tries)
    models = {key: Model(lateness, is_sorted) for key in KEYS}
    for event in [*happening, 1_000]:
        if isinstance(event, int):
            engine.advance(event * US)
            for model in models.values():
                model.advance(event)
        else:
            elements = [e if tries else attrs.evolve(e, fails=False) for e in event]
            engine.add(
                *(
                    (e.key, Window(e.at * US, (e.at + e.gap) * US), (e.value, e.fails), e.at * US)
                    for e in elements
                )
            )
            for e in elements:
                models[e.key].element(e)
        _check_holds(engine, models)
    _check_outputs(engine, models.values())
    assert not engine.cells
    assert engine.timers.next_event_us() is None


def _check_holds(engine: Engine, models: dict[str, Model]) -> None:
    assert engine.holds == {
        ((key, None), session.window): min(each.at for each in session.elements) * US
        for key, model in models.items()
        for session in model.open
    }


def _check_outputs(engine: Engine, models: Any) -> None:
    found = Counter((value, window) for value, _, window in engine.outputs if value[0] != "tagged")
    tagged = sorted(value[1] for value, _, _ in engine.outputs if value[0] == "tagged")
    expected = Counter(output for model in models for output in model.outputs)
    assert {_sorted(each): count for each, count in found.items()} == dict(expected)
    assert tagged == sorted(value[1] for value, _ in expected if value[0] == "seen")
    assert sorted(each.accumulator[0][0] for each in engine.late) == sorted(
        value for model in models for value in model.late
    )
    assert sorted(each.element[1][0] for each in engine.dead) == sorted(
        value for model in models for value in model.dead
    )


def _sorted(output: tuple[Any, Window]) -> tuple[Any, Window]:
    value, window = output
    if value[0] != "left":
        return output
    times = [at for at, _ in value[6]]
    assert times == sorted(times)
    return (*value[:6], tuple(sorted(value[6])), value[7]), window


@given(
    happening=events(),
    lateness=st.sampled_from([0, 5, 40]),
    is_sorted=st.booleans(),
    tries=st.sampled_from([None, 2]),
)
def test_state_of_a_session_is_that_of_its_elements(
    happening: list[Event], lateness: int, is_sorted: bool, tries: int | None
) -> None:
    check_sessions(happening, lateness, is_sorted, tries)


@given(happening=events(), split=st.randoms(use_true_random=False))
def test_in_time_order_outputs_do_not_depend_on_how_elements_come(
    happening: list[Event], split: Any
) -> None:
    """All that is emitted, in its order for each key: what waits merges nothing before its turn."""
    elements = [each for event in happening if not isinstance(event, int) for each in event]
    shuffled = list(elements)
    split.shuffle(shuffled)
    whole, parts = (
        Engine.of(Gather(), df.WindowInto(df.Sessions(1)), is_time_sorted=True, tries=1)
        for _ in range(2)
    )
    whole.add(*map(_as_arrival, elements))
    whole.advance(MAX_TIMESTAMP_US)
    for number, each in enumerate(shuffled):
        parts.add(_as_arrival(each))
        if number % 3 == 0:
            parts.advance(min([one.at for one in shuffled[number + 1 :]], default=0) * US)
    parts.advance(MAX_TIMESTAMP_US)

    for key in KEYS:
        mine = {each.value for each in elements if each.key == key}
        assert _of_key(whole, mine) == _of_key(parts, mine)
    assert Counter(map(repr, whole.dead)) == Counter(map(repr, parts.dead))
    assert whole.late == parts.late == []


def _as_arrival(each: Element) -> tuple[str, Window, tuple[int, bool], int]:
    window = Window(each.at * US, (each.at + each.gap) * US)
    return each.key, window, (each.value, each.fails), each.at * US


def _of_key(engine: Engine, values: set[int]) -> list[Any]:
    """Emissions of one key: each names one of its values."""
    found = []
    for value, at_us, window in engine.outputs:
        named = value[1] if isinstance(value[1], int) else value[1][0]
        if named in values:
            found.append((value, at_us, window))
    return found
