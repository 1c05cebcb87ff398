"""Early, on time and late are decided by the watermark alone, however far ahead the clock on the wall is.

So the labels of a backlog, or of last year replayed, are those that it had.
"""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.stages.grouping import Step
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.direct.job import Job, OpenGrouping
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import Arrivals, Windowing
from tests.oracle.laws import microseconds, window_fn
from tests.strategies import streams, triggers, windowings
from windowing.timestamps import MIN_TIMESTAMP_US

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

Timing = df.PaneTiming
MODES = st.sampled_from(df.AccumulationMode)
#: 169 years: a multiple of all periods that triggers are made with, so that nothing else depends on it.
YEARS_US = math.lcm(*range(1, 41))
CLOCK_STEPS_US = st.lists(st.sampled_from([0, 3, 40, 200]), min_size=9, max_size=9)


class Clocked(ScriptedSource):
    """A script whose batches come at given instants of processing time."""

    def __init__(self, script: Sequence[Batch], clock_us: Sequence[int]) -> None:
        super().__init__(script)
        self.clock_us = clock_us

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _ClockedReader(super().open(split, position, fence=fence), self.clock_us)


class _ClockedReader(df.SourceReader):
    def __init__(self, reader: df.SourceReader, clock_us: Sequence[int]) -> None:
        self.reader, self.clock_us = reader, clock_us

    def read(self, max_records: int) -> df.SourceBatch:
        batch = self.reader.read(max_records)
        return attrs.evolve(batch, processing_time_us=self.clock_us[batch.position - 1])


@attrs.frozen
class EmittedAt:
    """A pane that was emitted (not retracted), and the watermark when it was."""

    key: Any
    value: Any
    window: df.Window
    pane: df.PaneInfo
    watermark_us: int


class RecordingJob(Job):
    """Writes down what is emitted."""

    def __init__(self, pipeline: df.Pipeline) -> None:
        super().__init__(plan(pipeline.graph()))
        self.emitted: list[EmittedAt] = []

    def _apply(self, name: str, grouping: OpenGrouping, step: Step) -> None:
        watermark_us = min(self._output_watermark_us[sender] for sender in grouping.senders)
        effects = step.effects
        columns = (effects.signs, effects.values, effects.windows, effects.panes)
        self.emitted += [
            EmittedAt(key, value, window, pane, watermark_us)
            for sign, (key, value), window, pane in zip(*columns, strict=True)
            if sign > 0
        ]
        super()._apply(name, grouping, step)


def emitted(
    windowing: Windowing,
    script: Sequence[Batch],
    clock_us: Sequence[int],
    trigger: df.Trigger,
    mode: df.AccumulationMode,
) -> list[EmittedAt]:
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(Clocked(script, clock_us))
        | df.WindowInto(
            window_fn(windowing),
            trigger=trigger,
            accumulation_mode=mode,
            allowed_lateness=microseconds(windowing.lateness_us),
        )
        | df.GroupByKey()
    )
    job = RecordingJob(pipeline)
    job.run(1_000)
    return job.emitted


def scripted(arrivals: Sequence[Arrivals]) -> list[Batch]:
    return [
        Batch(
            [(record.key, record.value) for record in arrival.records],
            [record.timestamp_us for record in arrival.records],
            arrival.watermark_us,
        )
        for arrival in arrivals
    ]


def check_labels(windowing: Windowing, panes: Sequence[EmittedAt]) -> None:
    """Early before the watermark passes the end, on time at most once after it, then late."""
    by_place: dict[Any, list[Timing]] = {}
    for each in panes:
        is_early = each.watermark_us < each.window.end_us
        assert is_early == (each.pane.timing is Timing.EARLY), each
        by_place.setdefault((each.key, each.window), []).append(each.pane.timing)
    if windowing.kind not in ("fixed", "sliding"):
        return  # a session that grows has its end before it again
    for timings in by_place.values():
        early = timings.count(Timing.EARLY)
        assert all(each is Timing.EARLY for each in timings[:early])
        assert all(each is Timing.LATE for each in timings[early + 1 :])
        if early and timings[early:]:
            assert timings[early] is Timing.ON_TIME, "there was something in time"


@given(
    windowing=windowings(),
    arrivals=streams(),
    trigger=triggers(),
    mode=MODES,
    steps_us=CLOCK_STEPS_US,
)
def test_the_wall_clock_changes_no_label(
    windowing: Windowing,
    arrivals: list[Arrivals],
    trigger: df.Trigger,
    mode: df.AccumulationMode,
    steps_us: list[int],
) -> None:
    """Not a pane is different when everything happens 169 years later, and labels are right in both."""
    clock_us = [sum(steps_us[: n + 1]) for n in range(len(steps_us))]
    later_us = [YEARS_US + each for each in clock_us]
    script = scripted(arrivals)
    panes = emitted(windowing, script, clock_us, trigger, mode)

    assert panes == emitted(windowing, script, later_us, trigger, mode)
    check_labels(windowing, panes)


@given(windowing=windowings(), arrivals=streams(watermarks=False), trigger=triggers(), mode=MODES)
def test_nothing_of_a_backlog_is_late(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger, mode: df.AccumulationMode
) -> None:
    """Read at once, long after it happened: each window is early, whatever clocks its trigger asks, then on time."""
    records = [record for arrival in arrivals for record in arrival.records]
    backlog = scripted([Arrivals(tuple(records), MIN_TIMESTAMP_US)])
    panes = emitted(windowing, backlog, [YEARS_US, 2 * YEARS_US], trigger, mode)

    check_labels(windowing, panes)
    assert all(each.pane.timing is not Timing.LATE for each in panes)
