"""What is kept of a cell between two steps is all that there is to know, and a step reports which cells it has changed.

So whoever takes a key range over, with nothing but the store, goes on as if nothing had happened.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.cells import CellId, Effects
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.stages.grouping import Step
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.direct.job import Job, OpenGrouping
from runners.stored import cells
from runners.stored.cells import decode_cell, encode_cell
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.laws import microseconds, window_fn
from tests.pane_log import in_cells
from tests.strategies import streams, triggers, windowings

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

#: Far more than any of the mutations needs to be found.
EXAMPLES_MAX = 500
MODES = st.sampled_from(df.AccumulationMode)
COMBINERS = st.sampled_from(df.TimestampCombiner)
CLOCK_STEPS_US = st.lists(st.sampled_from([0, 3, 40, 200]), min_size=9, max_size=9)


class LoggedJob(Job):
    """Writes down what is emitted, and the holds; with ``is_stored`` every step begins with what a store has."""

    def __init__(self, pipeline: df.Pipeline, *, is_stored: bool) -> None:
        super().__init__(plan(pipeline.graph()))
        self.log: list[Any] = []
        self._stored: dict[str, dict[CellId, bytes]] | None = {} if is_stored else None

    def _apply(self, name: str, grouping: OpenGrouping, step: Step) -> None:
        effects = step.effects
        emitted = (effects.values, effects.timestamps_us, effects.windows, effects.panes)
        self.log += [(name, *each) for each in zip(*emitted, effects.signs, strict=True)]
        self.log.append((dict(effects.holds), dict(effects.timers)))
        if self._stored is not None:
            self._store(self._stored.setdefault(name, {}), grouping, step)
        super()._apply(name, grouping, step)

    def _store(self, stored: dict[CellId, bytes], grouping: OpenGrouping, step: Step) -> None:
        cells = in_cells(grouping).cells
        for cell_id in step.effects.touched:
            if cell_id in cells:
                stored[cell_id] = encode_cell(cells[cell_id])
            else:
                stored.pop(cell_id, None)
        # Cells stay in their order, in which they get a signal.
        order = dict.fromkeys([*cells, *stored])
        kept = {each: decode_cell(stored[each]) for each in order if each in stored}
        cells.clear()
        cells.update(kept)


class Clocked(ScriptedSource):
    """A script whose batches come at given instants, with every signal that is listened to."""

    def __init__(
        self, script: Sequence[Batch], clock_us: Sequence[int], signals: tuple[str, ...]
    ) -> None:
        super().__init__(script)
        self.clock_us, self.signals = clock_us, signals

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _ClockedReader(super().open(split, position, fence=fence), self)


class _ClockedReader(df.SourceReader):
    def __init__(self, reader: df.SourceReader, source: Clocked) -> None:
        self.reader, self.source = reader, source

    def read(self, max_records: int) -> df.SourceBatch:
        batch = self.reader.read(max_records)
        number = batch.position - 1
        return attrs.evolve(
            batch,
            processing_time_us=self.source.clock_us[number],
            signals=self.source.signals if number % 2 else (),
        )


@attrs.frozen
class Program:
    """Two groupings, and between them code that returns something else each time."""

    windowing: Windowing
    triggers: tuple[df.Trigger, df.Trigger]
    mode: df.AccumulationMode
    combiner: df.TimestampCombiner
    behaviors: tuple[df.FiringBehavior, df.FiringBehavior]
    gap_us: int

    def log(self, arrivals: Sequence[Arrivals], steps_us: list[int], *, is_stored: bool) -> Any:
        clock_us = list(itertools.accumulate(steps_us))
        first_trigger, second_trigger = self.triggers
        on_time, closing = self.behaviors
        signals = tuple(sorted(first_trigger.signals | second_trigger.signals))
        script = [
            Batch(
                [(record.key, record.value) for record in each.records],
                [record.timestamp_us for record in each.records],
                each.watermark_us,
            )
            for each in arrivals
        ]
        lateness = microseconds(self.windowing.lateness_us)
        numbers = itertools.count()
        pipeline = df.Pipeline(DirectRunner())
        first = (
            pipeline
            | df.Read(Clocked(script, clock_us, signals))
            | "first windows"
            >> df.WindowInto(
                window_fn(self.windowing),
                trigger=first_trigger,
                accumulation_mode=self.mode,
                allowed_lateness=lateness,
                on_time_behavior=on_time,
                closing_behavior=closing,
                timestamp_combiner=self.combiner,
                watermark_percentile=self.windowing.percentile,
            )
            | "first" >> df.CombinePerKey(df.CountCombineFn())
        )
        salted = first | df.Map(
            df.nondeterministic(lambda pair: (pair[1] % 2, (pair[0], next(numbers))))
        )
        (
            salted
            | "second windows"
            >> df.WindowInto(
                df.Sessions(microseconds(self.gap_us)),
                trigger=second_trigger,
                accumulation_mode=self.mode,
                on_time_behavior=on_time,
                allowed_lateness=2 * lateness,
                timestamp_combiner=self.combiner,
            )
            | "second" >> df.GroupByKey()
        )
        job = LoggedJob(pipeline, is_stored=is_stored)
        result = job.run(1_000)
        return job.log, list(result.late_records())


BEHAVIORS = st.sampled_from(df.FiringBehavior)
PROGRAMS = st.builds(
    Program,
    windowings(),
    st.tuples(triggers(), triggers()),
    MODES,
    COMBINERS,
    st.tuples(BEHAVIORS, BEHAVIORS),
    st.sampled_from([4, 15]),
)


@pytest.mark.filterwarnings("ignore::dataflow.DataLossWarning")
@given(program=PROGRAMS, arrivals=streams(), steps_us=CLOCK_STEPS_US)
def test_nothing_is_known_that_is_not_stored(
    program: Program, arrivals: list[Arrivals], steps_us: list[int]
) -> None:
    check_kept(program, arrivals, steps_us)


def check_kept(program: Program, arrivals: list[Arrivals], steps_us: list[int]) -> None:
    in_memory = program.log(arrivals, steps_us, is_stored=False)
    from_store = program.log(arrivals, steps_us, is_stored=True)

    assert in_memory == from_store


Patch = pytest.MonkeyPatch


def _kept(patch: Patch, **changed: Any) -> None:
    """Have a state stored with some fields as they were in the beginning."""
    fields_of = cells._state_fields
    patch.setattr(
        cells,
        "_state_fields",
        lambda state, own: fields_of(attrs.evolve(state, **changed), own),
    )


def forget_the_on_time_moment(patch: Patch) -> None:
    _kept(patch, is_past=False)


def forget_what_was_not_early(patch: Patch) -> None:
    _kept(patch, nonspeculative_firings=0)


def forget_where_the_watermark_waits(patch: Patch) -> None:
    _kept(patch, hold_us=None)


def forget_what_code_made_of_it(patch: Patch) -> None:
    fields_of = cells._emitted_fields
    patch.setattr(
        cells,
        "_emitted_fields",
        lambda emitted, own: fields_of(attrs.evolve(emitted, remembered=None), own),
    )


def do_not_report_what_timers_changed(patch: Patch) -> None:
    fire_timers = GroupAlsoByWindow.fire_timers

    def broken(*args: Any, **clocks: Any) -> Effects:
        effects = fire_timers(*args, **clocks)
        effects.touched.clear()
        return effects

    patch.setattr(GroupAlsoByWindow, "fire_timers", broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        forget_the_on_time_moment,
        forget_what_was_not_early,
        forget_where_the_watermark_waits,
        forget_what_code_made_of_it,
        do_not_report_what_timers_changed,
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_what_is_not_stored_is_found(mutate: Any, monkeypatch: Patch) -> None:
    mutate(monkeypatch)

    @settings(max_examples=EXAMPLES_MAX, database=None, derandomize=True, phases=[Phase.generate])
    @given(program=PROGRAMS, arrivals=streams(), steps_us=CLOCK_STEPS_US)
    def look(program: Program, arrivals: list[Arrivals], steps_us: list[int]) -> None:
        check_kept(program, arrivals, steps_us)

    with pytest.raises(AssertionError):
        look()
