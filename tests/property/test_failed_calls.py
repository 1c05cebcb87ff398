"""Calls of a stateful DoFn that fail: what is tried again or given up leaves no trace in state, timers or outputs."""

from copy import deepcopy
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from tests.effort import by_profile
from tests.property.test_stateful_do_fns import CELLS, LATENESS_US, SIZE_US, into, stored
from tests.stateful_programs import Engine, Interpreted, Interpreter, Operation, Program, programs
from windowing.timestamps import MAX_TIMESTAMP_US

TRIES = 3
KEY, WINDOW = CELLS[0]


@attrs.define
class Stumble:
    """Raises the first times that it is called."""

    left: int

    def __call__(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ValueError("stumbles")


def failing(program: Program, failures: int) -> Program:
    """The program, then an operation that raises so many times, and a look at what there is."""
    return (*program, ("call", Stumble(failures)), ("read",))


@st.composite
def failing_programs(draw: st.DrawFn) -> Program:
    """Programs that fail at their end, on some tries or on all; what they leave for timers may fail too."""

    def prepared(operation: Operation) -> Operation:
        if operation[0] != "script" or draw(st.booleans()):
            return operation
        call, timer, inner = operation
        return call, timer, failing(inner, TRIES)

    program = tuple(map(prepared, draw(programs())))
    return failing(program, draw(st.sampled_from([0, TRIES - 1, TRIES])))


class Careful(Interpreter):
    """What the programs mean: a call that fails each time has not been, but its timer has fired."""

    dead = 0

    def element(self, program: Program, timestamp_us: int) -> None:
        if self.watermark_us < self.expiry_us and self._fails(program):
            self._fire_due()
            return
        super().element(program, timestamp_us)

    def _fire(self, name: str) -> None:
        if self._fails(self.scripts.get(name, ())):
            del self.timers[name]
            return
        super()._fire(name)

    def _run(self, program: Program, at_us: int, emitted_us: int) -> None:
        calm = tuple(each for each in program if each[0] != "call")
        super()._run(calm, at_us, emitted_us)

    def _fails(self, program: Program) -> bool:
        fails = any(each[0] == "call" and each[1].left >= TRIES for each in program)
        self.dead += fails
        return fails


BUNDLES = st.lists(
    st.tuples(failing_programs(), st.integers(0, SIZE_US - 1)), min_size=2, max_size=6
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("bundle"), BUNDLES),
        st.tuples(st.just("bundle"), BUNDLES),
        st.tuples(st.just("watermark"), st.integers(1, 15)),
        st.tuples(st.just("clock"), st.integers(1, 12)),
        st.just(("restart", 0)),
    ),
    min_size=3,
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=by_profile(4, nightly=10_000))
@given(EVENTS)
def test_a_call_that_fails_leaves_nothing_behind(events: list[tuple[str, Any]]) -> None:
    """Neither state nor timers nor outputs, whether the next try succeeds or it becomes a dead letter."""
    check_failed_calls(events)


def check_failed_calls(events: list[tuple[str, Any]]) -> None:
    """The machine and its model, led through the same events."""
    engine, model = led_through(events, Engine.of(Interpreted(), into(), tries=TRIES))

    assert model.outputs == engine.emitted(WINDOW)
    assert model.dead == len(engine.dead)
    assert {TRIES} >= {letter.tries for letter in engine.dead}


@pytest.mark.slow
@settings(max_examples=by_profile(4, nightly=10_000))
@given(EVENTS)
def test_a_handled_call_that_fails_is_an_output_and_leaves_nothing_else_behind(
    events: list[tuple[str, Any]],
) -> None:
    """Each attempt begins with the same state, and the last failure is what is emitted."""
    check_handled_calls(events)


def check_handled_calls(events: list[tuple[str, Any]]) -> None:
    """The machine and its model, led through the same events."""
    handled = {"exc_class": ValueError, "retries": TRIES - 1, "retry_delay": 0}
    engine, model = led_through(events, Engine.of(Interpreted(), into(), handled=handled))

    emitted = engine.emitted(WINDOW)
    failures = [each for each, _ in emitted if isinstance(each, df.TaggedOutput)]
    assert model.outputs == [each for each in emitted if each[0] not in failures]
    assert model.dead == len(failures)
    assert {"stumbles"} >= {each.value.failure.message for each in failures}
    assert not engine.dead


def led_through(events: list[tuple[str, Any]], engine: Engine) -> tuple[Engine, Careful]:
    """An engine, and the model of what it does, when all events have happened; nothing is kept then."""
    model = Careful(WINDOW.end_us + LATENESS_US, WINDOW.max_timestamp_us)
    watermark_us = now_us = 0
    for name, what in [("watermark", 0), ("clock", 0), *events, ("watermark", MAX_TIMESTAMP_US)]:
        if name == "bundle":
            # The functions in the programs count how often they are called: the model has those of its own.
            for program, at_us in deepcopy(what):
                model.element(program, at_us)
            engine.add(*((KEY, WINDOW, program, at_us) for program, at_us in what))
        elif name == "watermark":
            watermark_us += what
            model.advance(watermark_us)
            engine.advance(watermark_us=watermark_us)
        elif name == "clock":
            now_us += what
            model.pass_time(now_us)
            engine.advance(now_us=now_us)
        else:
            engine.cells = stored(engine.cells)

    assert ({}, 0) == (engine.cells, len(engine.timers))
    return engine, model
