"""What is kept is what is open: state, timers and holds of expired windows are gone, and cost nothing more."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.cells import Cell, CellId
from runners.core.stages.grouping import Step
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.direct.job import Job, OpenGrouping
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.effort import costly
from tests.ids import shown
from tests.oracle.evaluator import Arrivals, Windowing, closes_us, evaluate
from tests.oracle.hard_streams import arrivals_of
from tests.oracle.laws import microseconds, window_fn, windowed
from tests.pane_log import in_cells
from tests.strategies import (
    NOTHING_EMITTED_US,
    US_PER_SECOND,
    days_with_clock_changes,
    streams,
    triggers,
    windowings,
)

#: The nightly profile digs for minutes.
pytestmark = pytest.mark.timeout(3600)

MODES = st.sampled_from(df.AccumulationMode)
FINITE = windowings().filter(lambda windowing: windowing.kind != "global")
#: After the expiry of every window of `streams`.
ALL_OVER_US = 1_000_000
#: A multiple of all sizes and periods of `windowings`, so that what is in a round looks the same in each.
ROUND_US = 420


class CountedCells(dict[CellId, Cell]):
    """Cells that count how often somebody looks at one."""

    looks = 0

    def __getitem__(self, cell_id: CellId) -> Cell:
        self.looks += 1
        return super().__getitem__(cell_id)

    def get(self, cell_id: CellId, default: Any = None) -> Any:
        self.looks += 1
        return super().get(cell_id, default)

    def pop(self, cell_id: CellId, *default: Any) -> Any:
        self.looks += 1
        return super().pop(cell_id, *default)

    def __iter__(self) -> Iterator[CellId]:
        self.looks += len(self)
        return super().__iter__()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


@attrs.frozen
class Footprint:
    """After one step: what is kept, and what the step did.

    ``windows``: with state.  ``waiting``: entries of timers and holds, also of cleared ones that are not forgotten.
    ``work``: cells and windows looked at, timers changed, panes emitted.
    """

    windows: int
    timers: int
    holds: int
    waiting: int
    work: int


class WatchedJob(Job):
    """Writes a footprint after each batch and the watermark that followed it."""

    def __init__(self, pipeline: df.Pipeline) -> None:
        super().__init__(plan(pipeline.graph()))
        self.footprints: list[Footprint] = []
        self._work = 0
        for grouping in self._groupings.values():
            in_cells(grouping).cells = CountedCells()

    def _apply(self, name: str, grouping: OpenGrouping, step: Step) -> None:
        effects = step.effects
        touched = [dict.get(in_cells(grouping).cells, cell_id) for cell_id in effects.touched]
        self._work += sum(map(window_count, touched)) + len(effects.timers) + len(effects.values)
        super()._apply(name, grouping, step)

    def _take(self, *args: Any) -> None:
        super()._take(*args)
        super()._advance()
        groupings = list(map(in_cells, self._groupings.values()))
        looks = sum(each.cells.looks for each in groupings if isinstance(each.cells, CountedCells))
        queues: list[Any] = [
            queue for each in groupings for queue in (*each.timers.queues.values(), each.holds)
        ]
        self.footprints.append(
            Footprint(
                windows=sum(
                    window_count(cell) for each in groupings for cell in dict.values(each.cells)
                ),
                timers=sum(len(each.timers) for each in groupings),
                holds=sum(len(each.holds) for each in groupings),
                waiting=sum(len(queue._heap) for queue in queues),
                work=self._work + looks,
            )
        )
        self._work = 0
        for each in groupings:
            each.cells.looks = 0  # type: ignore[attr-defined]


def window_count(cell: Cell | None) -> int:
    if isinstance(cell, dict):
        return len(cell)
    return 0 if cell is None else 1


def footprints(build: Callable[[df.Pipeline], Any]) -> list[Footprint]:
    """Run a pipeline to its end."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline)
    job = WatchedJob(pipeline)
    job.run(1_000)
    return job.footprints


def grouped(
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    mode: df.AccumulationMode,
    trigger: df.Trigger | None,
    *,
    times: int,
) -> list[Footprint]:
    """The footprints when the arrivals are grouped, and their groups grouped again, so many times."""

    def build(pipeline: df.Pipeline) -> None:
        pairs = windowed(pipeline, windowing, arrivals, mode, trigger)
        for _ in range(times):
            pairs = pairs | df.GroupByKey() | df.Map(lambda pair: (pair[0], len(pair[1])))

    return footprints(build)


@given(windowing=windowings(), arrivals=streams(), trigger=triggers(), mode=MODES)
def test_exactly_the_open_windows_have_state(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger, mode: df.AccumulationMode
) -> None:
    """At every moment, whatever the trigger: those that hold something and have not expired."""
    seen = grouped(windowing, arrivals, mode, trigger, times=1)
    watermark_us = NOTHING_EMITTED_US
    for count, footprint in enumerate(seen[:-1], start=1):
        watermark_us = max(watermark_us, arrivals[count - 1].watermark_us)
        groups = evaluate(windowing, arrivals[:count]).groups
        still_open = [each for each in groups if closes_us(windowing, each) > watermark_us]

        assert len(still_open) == footprint.windows


def check_nothing_is_left(
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    over_us: int,
    trigger: df.Trigger,
    mode: df.AccumulationMode,
    combiner: df.TimestampCombiner,
) -> None:
    """Though the input goes on, and late records come.

    Of a grouping, and of two behind it, whose input is retracted where ``mode`` does so: in frozen windows, and in
    sessions that merge and split.
    """
    late = [each._replace(watermark_us=over_us) for each in arrivals]
    over = [*arrivals, Arrivals((), over_us), *late]
    script = [
        Batch(
            [(record.key, record.value) for record in each.records],
            [record.timestamp_us for record in each.records],
            each.watermark_us,
        )
        for each in over
    ]
    options: dict[str, Any] = {
        "trigger": trigger,
        "accumulation_mode": mode,
        "allowed_lateness": microseconds(windowing.lateness_us),
        "timestamp_combiner": combiner,
        "watermark_percentile": windowing.percentile,
    }

    def build(pipeline: df.Pipeline) -> None:
        counts = (
            pipeline
            | df.Read(ScriptedSource(script))
            | df.WindowInto(window_fn(windowing), **options)
            | df.GroupByKey()
            | df.Map(lambda pair: ("all", len(pair[1])))
        )
        counts | "frozen" >> df.GroupByKey()
        sessions = counts | "sessions" >> df.WindowInto(df.Sessions(microseconds(4)), **options)
        sessions | "sums" >> df.CombinePerKey(sum)

    seen = footprints(build)
    for footprint in seen[len(arrivals) :]:
        assert (0, 0, 0) == (footprint.windows, footprint.timers, footprint.holds)


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@given(
    windowing=FINITE,
    arrivals=streams(),
    trigger=triggers(),
    mode=MODES,
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_nothing_is_left_when_all_windows_have_expired(
    windowing: Windowing,
    arrivals: list[Arrivals],
    trigger: df.Trigger,
    mode: df.AccumulationMode,
    combiner: df.TimestampCombiner,
) -> None:
    """No state, no timer and no hold: whatever the windows, the trigger, the mode, and the times of panes."""
    check_nothing_is_left(windowing, arrivals, ALL_OVER_US, trigger, mode, combiner)


@pytest.mark.parametrize("mode", df.AccumulationMode)
def test_no_clock_is_left_behind_by_a_window_that_fired_by_a_percentile(
    mode: df.AccumulationMode,
) -> None:
    """Of what waits for several clocks, one comes first, and the others are not waited for any more."""
    windowing = Windowing("fixed", 10, percentile=20)
    arrivals = arrivals_of(([("a", 3), ("a", 4)], -9), ([("a", 35), ("a", 36)], -9))
    trigger = df.AfterWatermark(early=df.AfterProcessingTime(1_000), late=df.AfterCount(1))
    combiner = df.TimestampCombiner.END_OF_WINDOW

    check_nothing_is_left(windowing, arrivals, ALL_OVER_US, trigger, mode, combiner)


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@given(
    days=days_with_clock_changes(),
    trigger=triggers(),
    mode=MODES,
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_nothing_is_left_of_days(
    days: tuple[Windowing, list[Arrivals]],
    trigger: df.Trigger,
    mode: df.AccumulationMode,
    combiner: df.TimestampCombiner,
) -> None:
    """Nor of calendar windows, around a change of the clocks."""
    windowing, arrivals = days
    latest_us = max((each.timestamp_us for batch in arrivals for each in batch.records), default=0)
    over_us = latest_us + windowing.lateness_us + 2 * 24 * 3600 * US_PER_SECOND
    check_nothing_is_left(windowing, arrivals, over_us, trigger, mode, combiner)


class Endless(df.Source):
    """Rounds that are all alike, each with two keys, disorder, and records that are late by a round and by three."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return EndlessReader(self.rounds)


class EndlessReader(df.SourceReader):
    def __init__(self, rounds: int) -> None:
        self.rounds, self.next = rounds, 4

    def read(self, max_records: int) -> df.SourceBatch:
        now_us = self.next * ROUND_US
        offsets_us = (5, 0, 33, 9, 100, 101, 300, 5 - ROUND_US, 6 - 3 * ROUND_US)
        is_over = self.next == self.rounds + 4
        self.next += 1
        return df.SourceBatch(
            values=[("ab"[n % 2], n) for n in range(len(offsets_us))],
            timestamps_us=[now_us + offset_us for offset_us in offsets_us],
            position=self.next,
            watermark_us=now_us + 350,
            status=df.SplitStatus.FINISHED if is_over else df.SplitStatus.ACTIVE,
            processing_time_us=now_us,
        )


def endless(
    windowing: Windowing, trigger: df.Trigger | None, mode: df.AccumulationMode, rounds: int
) -> list[Footprint]:
    """The footprint of each round in a stream without end."""

    def build(pipeline: df.Pipeline) -> None:
        pairs = (
            pipeline
            | df.Read(Endless(rounds))
            | df.WindowInto(
                window_fn(windowing),
                trigger=trigger,
                accumulation_mode=mode,
                allowed_lateness=microseconds(windowing.lateness_us),
            )
            | df.CombinePerKey(sum)
        )
        pairs | df.Map(lambda pair: ("all", pair[1])) | "again" >> df.GroupByKey()

    return footprints(build)


@costly()
@given(
    windowing=FINITE.flatmap(
        lambda each: st.sampled_from([0, ROUND_US, 2 * ROUND_US]).map(
            lambda lateness_us: each._replace(lateness_us=lateness_us)
        )
    ),
    trigger=st.none() | triggers(),
    mode=MODES,
)
def test_neither_state_nor_work_grows_with_the_windows_that_have_closed(
    windowing: Windowing, trigger: df.Trigger | None, mode: df.AccumulationMode
) -> None:
    """Once as many are open as ever will be; some slack, because the clocks of triggers have a rhythm of their own."""
    rounds = endless(windowing, trigger, mode, 80)
    early, late = rounds[8:24], rounds[60:80]
    for field in attrs.fields(Footprint):
        first, last = (max(getattr(each, field.name) for each in part) for part in (early, late))

        assert last <= 1.5 * first + 2, field.name


TRIGGERS = [None, df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1))]
WINDOWINGS = [
    Windowing("fixed", 20, 0, ROUND_US),
    Windowing("sliding", 10, 0, ROUND_US, 4),
    Windowing("sessions", 12, 0, ROUND_US),
    Windowing("own gaps", 4, 0, ROUND_US),
]


@pytest.mark.slow
@pytest.mark.parametrize("trigger", TRIGGERS, ids=shown)
@pytest.mark.parametrize("windowing", WINDOWINGS, ids=lambda each: each.kind)
def test_round_300_costs_what_round_10_did(
    windowing: Windowing, trigger: df.Trigger | None
) -> None:
    """In cells, timers and panes, exactly."""
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    rounds = endless(windowing, trigger, mode, 300)

    assert rounds[10] == rounds[299]
    assert rounds[10].work > 0
    assert rounds[10].windows > 0
