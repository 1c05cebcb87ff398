"""The machine of stateful DoFns against an interpreter of one key: any program, any bundles, any restarts."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground import timers
from runners.core.ground.cells import CellId
from runners.core.stages.entries import Changes
from runners.core.stateful import keyed_state
from runners.stored.journal import decode_entry, encode_changes
from tests.stateful_programs import Engine, Interpreted, Interpreter, Program, programs
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

SIZE_US, LATENESS_US = 20, 7
WINDOWS = [Window(0, SIZE_US), Window(SIZE_US, 2 * SIZE_US)]
CELLS: list[tuple[str, Window]] = [(key, window) for key in ("a", "b") for window in WINDOWS]


def into(lateness_us: int = LATENESS_US) -> df.WindowInto:
    return df.WindowInto(
        df.FixedWindows(timedelta(microseconds=SIZE_US)),
        allowed_lateness=timedelta(microseconds=lateness_us),
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )


def stored(cells: dict[CellId, Any]) -> dict[CellId, Any]:
    """The cells as a journal gives them back."""
    entry = decode_entry(encode_changes(list(cells.items()), ()), None)
    assert isinstance(entry, Changes)
    return dict(entry.cells)


class Sorting(Interpreted):
    requires_time_sorted_input = True


#: Cell, program, where in the window, in microseconds.
ELEMENTS = st.tuples(st.sampled_from(CELLS), programs(), st.integers(0, SIZE_US - 1))
BUNDLES = st.lists(ELEMENTS, min_size=1, max_size=4)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("bundle"), BUNDLES),
        st.tuples(st.just("bundle"), BUNDLES),
        st.tuples(st.just("watermark"), st.integers(1, 15)),
        st.tuples(st.just("clock"), st.integers(1, 12)),
        st.just(("restart",)),
    ),
    max_size=12,
)
Event = tuple[Any, ...]


class Both:
    """The machine, and an interpreter for each cell, led through the same events; the names of events are methods."""

    def __init__(self) -> None:
        self.engine = Engine.of(Interpreted(), into())
        self.models = {
            cell: Interpreter(cell[1].end_us + LATENESS_US, cell[1].max_timestamp_us)
            for cell in CELLS
        }
        self.watermark_us = self.now_us = 0
        self.watermark(0)
        self.clock(0)

    def lead_through(self, events: list[Event]) -> None:
        """All events, then the end of time."""
        for event in events:
            self.happen(*event)
        self.watermark(MAX_TIMESTAMP_US)

    def happen(self, name: str, *args: Any) -> None:
        getattr(self, name)(*args)

    def bundle(self, elements: list[Any]) -> None:
        arrivals = [
            (key, window, program, window.start_us + at) for (key, window), program, at in elements
        ]
        self.engine.add(*arrivals)
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
        self.engine.cells = stored(self.engine.cells)


def one_by_one(events: list[Event]) -> list[Event]:
    """The elements in bundles of one."""
    return [
        each
        for name, *args in events
        for each in ([(name, [one]) for one in args[0]] if name == "bundle" else [(name, *args)])
    ]


def check_what_is_emitted(events: list[Event]) -> None:
    """The machine emits what the interpreters emit; two keys have no common order, so each window's are sorted."""
    both = Both()
    both.lead_through(events)

    engine = both.engine
    for (key, window), model in both.models.items():
        late = [each for each in engine.late if (each.key, each.window) == (key, window)]
        assert model.late == [program for each in late for program in each.accumulator]
    for window in WINDOWS:
        expected = [output for key in "ab" for output in both.models[key, window].outputs]
        assert sorted(map(repr, expected)) == sorted(map(repr, engine.emitted(window)))
    assert ({}, 0) == (engine.cells, len(engine.timers))


def check_in_which_order(events: list[Event]) -> None:
    """One key in one window, where the whole order is known."""
    cell = CELLS[0]
    both = Both()
    both.lead_through(
        [
            (name, [(cell, *element) for _, *element in args[0]])
            if name == "bundle"
            else (name, *args)
            for name, *args in events
        ]
    )

    assert both.models[cell].outputs == both.engine.emitted(cell[1])


@given(EVENTS, st.booleans())
def test_it_does_what_is_written_whatever_the_bundles(
    events: list[Event], is_one_by_one: bool
) -> None:
    """State and timers of each key and window by itself; what is late; and nothing is left in the end."""
    check_what_is_emitted(one_by_one(events) if is_one_by_one else events)


@given(EVENTS)
@pytest.mark.parametrize("few", [0, 2, keyed_state._FEW])
def test_each_key_emits_things_in_order(few: int, events: list[Event]) -> None:
    """Timers in time order, between the elements where they were due; be they looked through or in queues."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_state, "_FEW", few)
        patch.setattr(timers, "OUTDATED_MAX", few)
        check_in_which_order(events)


@given(
    st.lists(
        st.tuples(st.sampled_from(CELLS), st.integers(0, 90)),
        min_size=1,
        unique_by=lambda each: each[0],
    )
)
def test_cells_of_one_step_fire_in_the_order_of_their_instants(
    timers_set: list[tuple[tuple[str, Window], int]],
) -> None:
    """A timer for after the expiry of its window is due at that, and before what another window has for later."""
    engine = Engine.of(Interpreted(), into())
    for (key, window), at_us in timers_set:
        engine.add((key, window, (("set", "first", window.start_us + at_us),), window.start_us))
    engine.advance(MAX_TIMESTAMP_US)
    expected_us = [
        min(window.start_us + at_us, window.end_us + LATENESS_US)
        for (_, window), at_us in timers_set
    ]

    assert sorted(expected_us) == [at_us for (_, at_us), *_ in engine.outputs]


@given(EVENTS)
def test_nothing_is_kept_longer_than_its_window(events: list[Event]) -> None:
    """After each event: neither cells nor timers of expired windows, and none of cells that have nothing."""
    both = Both()
    for event in events:
        both.happen(*event)
        for window in (cell_id[1] for cell_id in both.engine.cells):
            assert window is not None
            assert both.watermark_us < window.end_us + LATENESS_US
        assert not any(cell.is_empty for cell in both.engine.cells.values())


@given(
    st.lists(st.tuples(programs(), st.integers(0, SIZE_US - 1)), max_size=8),
    st.lists(st.integers(0, SIZE_US), max_size=5).map(sorted),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_in_time_order_arrival_and_watermark_do_not_matter(
    elements: list[tuple[Program, int]], watermarks: list[int], is_replay: bool, chance: Any
) -> None:
    """Nothing is late: the same as if everything had come in order, the watermark always at the element.

    The clock stands still until the input has ended, as in batch and on the direct runner.
    """
    window = WINDOWS[0]
    elements = list({at: (program, at) for program, at in elements}.values())
    engine = Engine.of(Interpreted() if is_replay else Sorting(), into(0), is_time_sorted=is_replay)
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
        engine.cells = stored(engine.cells)
        has_ended = watermark_us == MAX_TIMESTAMP_US
        engine.advance(watermark_us, MAX_TIMESTAMP_US if has_ended else MIN_TIMESTAMP_US)

    assert model.outputs == engine.emitted(window)
    assert ({}, 0) == (engine.cells, len(engine.timers))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_elements_of_one_instant_are_ordered_by_value(
    elements: list[tuple[int, int]], is_replay: bool, chance: Any
) -> None:
    """In time order; so a batch that is run again emits the same."""
    emitted = []
    for _ in range(2):
        chance.shuffle(elements)
        engine = Engine.of(
            Interpreted() if is_replay else Sorting(), into(), is_time_sorted=is_replay
        )
        programs = [((("add", value), ("read",)), at) for value, at in elements]
        engine.add(*(("a", WINDOWS[0], program, at) for program, at in programs))
        engine.advance(MAX_TIMESTAMP_US)
        emitted.append(engine.outputs)

    assert emitted[0] == emitted[1]
