"""The machine of stateful DoFns against an interpreter of one key: any program, any bundles, any restarts."""

import pickle
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.stateful_programs import Engine, Interpreted, Interpreter, Program, programs
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window

SIZE_US, LATENESS_US = 20, 7
WINDOWS = [Window(0, SIZE_US), Window(SIZE_US, 2 * SIZE_US)]
CELLS = [(key, window) for key in ("a", "b") for window in WINDOWS]


def into(lateness_us: int = LATENESS_US) -> df.WindowInto:
    return df.WindowInto(
        df.FixedWindows(timedelta(microseconds=SIZE_US)),
        allowed_lateness=timedelta(microseconds=lateness_us),
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )


class Sorting(Interpreted):
    requires_time_sorted_input = True


#: Cell, program, where in the window.
ELEMENTS = st.tuples(st.sampled_from(CELLS), programs(), st.integers(0, SIZE_US - 1))
BUNDLES = st.lists(ELEMENTS, min_size=1, max_size=4)
EVENTS = st.lists(
    st.one_of(
        BUNDLES.map(lambda bundle: ("bundle", bundle)),
        BUNDLES.map(lambda bundle: ("bundle", bundle)),
        st.integers(1, 15).map(lambda us: ("watermark", us)),
        st.integers(1, 12).map(lambda us: ("clock", us)),
        st.just(("restart", 0)),
    ),
    max_size=12,
)


class Both:
    """The machine and one interpreter for each cell, led through the same events."""

    def __init__(self) -> None:
        self.engine = Engine.of(Interpreted(), into())
        self.models = {
            cell: Interpreter(cell[1].end_us + LATENESS_US, cell[1].max_timestamp_us)
            for cell in CELLS
        }
        self.watermark_us = self.now_us = 0
        self.watermark(0)
        self.clock(0)

    def bundle(self, elements: list[Any], *, one_by_one: bool = False) -> None:
        arrivals = [
            (key, window, program, window.start_us + at) for (key, window), program, at in elements
        ]
        for bundle in [[each] for each in arrivals] if one_by_one else [arrivals]:
            self.engine.add(*bundle)
        for key, window, program, at_us in arrivals:
            self.models[key, window].element(program, at_us)

    def watermark(self, step_us: int) -> None:
        self.watermark_us += step_us
        self.engine.advance(watermark_us=self.watermark_us)
        for model in self.models.values():
            model.advance(self.watermark_us)

    def clock(self, step_us: int) -> None:
        self.now_us += step_us
        self.engine.advance(now_us=self.now_us)
        for model in self.models.values():
            model.pass_time(self.now_us)

    def restart(self) -> None:
        self.engine.cells = pickle.loads(pickle.dumps(self.engine.cells))


@given(EVENTS, st.booleans())
def test_it_does_what_is_written_whatever_the_bundles(
    events: list[tuple[str, Any]], one_by_one: bool
) -> None:
    both = Both()
    for kind, what in events:
        if kind == "bundle":
            both.bundle(what, one_by_one=one_by_one)
        elif kind == "watermark":
            both.watermark(what)
        elif kind == "clock":
            both.clock(what)
        else:
            both.restart()
    both.watermark(MAX_TIMESTAMP_US)

    engine = both.engine
    for (key, window), model in both.models.items():
        late = [each for each in engine.late if (each.key, each.window) == (key, window)]
        assert model.late == [program for each in late for program in each.accumulator]
    for window in WINDOWS:
        # Two keys have no common order.
        expected = [output for key in "ab" for output in both.models[key, window].outputs]
        assert sorted(map(repr, expected)) == sorted(map(repr, engine.said(window)))
    assert ({}, 0) == (engine.cells, len(engine.timers))


@given(EVENTS)
def test_each_key_says_things_in_order(events: list[tuple[str, Any]]) -> None:
    """The same with one key in one window, where the whole order is known."""
    both = Both()
    cell = CELLS[0]
    for kind, what in events:
        if kind == "bundle":
            both.bundle([(cell, program, at) for _, program, at in what])
        elif kind == "watermark":
            both.watermark(what)
        elif kind == "clock":
            both.clock(what)
    both.watermark(MAX_TIMESTAMP_US)

    assert both.models[cell].outputs == both.engine.said(cell[1])


@given(
    st.lists(st.tuples(programs(), st.integers(0, SIZE_US - 1)), max_size=8),
    st.lists(st.integers(0, SIZE_US), max_size=5).map(sorted),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_in_time_order_arrival_and_watermark_do_not_matter(
    elements: list[tuple[Program, int]], watermarks: list[int], is_replay: bool, chance: Any
) -> None:
    """Nothing is late: the same as if everything had come in order, the watermark always at the element."""
    window = WINDOWS[0]
    elements = list({at: (program, at) for program, at in elements}.values())
    engine = Engine.of(Interpreted() if is_replay else Sorting(), into(0), is_replay=is_replay)
    model = Interpreter(window.end_us, window.max_timestamp_us)
    for program, at in sorted(elements, key=lambda each: each[1]):
        model.advance(at)
        model.element(program, at)
    model.advance(MAX_TIMESTAMP_US)

    chance.shuffle(elements)
    for watermark_us in [*([] if is_replay else watermarks), MAX_TIMESTAMP_US]:
        coming = [each for each in elements if each[1] < watermark_us or chance.random() < 0.3]
        elements = [each for each in elements if each not in coming]
        engine.add(*(("a", window, program, at) for program, at in coming))
        engine.cells = pickle.loads(pickle.dumps(engine.cells))
        engine.advance(watermark_us)

    assert model.outputs == engine.said(window)
    assert ({}, 0) == (engine.cells, len(engine.timers))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_elements_of_one_instant_are_ordered_by_value(
    elements: list[tuple[int, int]], is_replay: bool, chance: Any
) -> None:
    """In time order; so a batch that is run again says the same."""
    said = []
    for _ in range(2):
        chance.shuffle(elements)
        engine = Engine.of(Interpreted() if is_replay else Sorting(), into(), is_replay=is_replay)
        programs = [((("add", value), ("read",)), at) for value, at in elements]
        engine.add(*(("a", WINDOWS[0], program, at) for program, at in programs))
        engine.advance(MAX_TIMESTAMP_US)
        said.append(engine.outputs)

    assert said[0] == said[1]
