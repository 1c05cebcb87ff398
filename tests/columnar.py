"""A pipeline over columns and over single rows: what both emit must be equal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any, NamedTuple
from unittest.mock import patch

import attrs
import numpy as np
import pyarrow as pa

import dataflow as df
from dataflow.column_combine_fn import Accumulators
from dataflow.columns import IntColumn, PairColumns, Rows
from dataflow.graph import MAIN
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.batch.spill import spilled_groups
from runners.batch.spill.spilled_groups import SPILL_BYTES, SpilledGroups
from runners.core.ground.bundle import Bundle
from runners.core.open_windows.choice import opened
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor, StageOutputs
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_columns import Int64s

SECOND_US = 1_000_000


class Event(NamedTuple):
    user: str
    is_test: bool
    shard: int
    value: int
    price: float


#: The rows of one bundle, each with its event time, and the watermark after them.
Batch = tuple[list[tuple[Event, int]], int]
Collection = df.PCollection[Any]


@attrs.frozen
class EventSource(Source):
    """Rows in batches as given, as columns or one by one."""

    batches: Sequence[Batch]
    as_columns: bool

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _EventReader(self, position or 0)


class _EventReader(SourceReader):
    def __init__(self, source: EventSource, position: int) -> None:
        self._source, self._position = source, position

    def read(self, max_records: int) -> SourceBatch:
        batches = self._source.batches
        rows, watermark_us = batches[self._position] if batches else ([], MAX_TIMESTAMP_US)
        self._position += 1
        values: Sequence[Any] = [event for event, _ in rows]
        times_us: Sequence[int] = [at_us for _, at_us in rows]
        if self._source.as_columns:
            values, times_us = columns_of(values), IntColumn(np.array(times_us, np.int64))
        is_last = self._position >= len(batches)
        return SourceBatch(
            values=values,
            timestamps_us=times_us,
            position=self._position,
            watermark_us=watermark_us,
            status=SplitStatus.FINISHED if is_last else SplitStatus.ACTIVE,
        )


def columns_of(events: Sequence[Event]) -> Rows:
    """Rows as columns."""
    types = [pa.string(), pa.bool_(), pa.int64(), pa.int64(), pa.float64()]
    values = zip(*events, strict=True) if events else [()] * len(types)
    arrays = [pa.array(each, kind) for each, kind in zip(values, types, strict=True)]
    return Rows.of(Event, Event._fields, arrays)


@attrs.frozen
class Shifts(df.WindowFn):
    """Windows of a user's own: of four seconds and of six, in turn."""

    day_us: int = 10 * SECOND_US
    morning_us: int = 4 * SECOND_US

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        day_us = timestamp_us - timestamp_us % self.day_us
        noon_us = day_us + self.morning_us
        if timestamp_us < noon_us:
            return [df.Window(day_us, noon_us)]
        return [df.Window(noon_us, day_us + self.day_us)]

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        if abs(timestamps_us).max() > MAX_TIMESTAMP_US // 2:
            return None
        day_us = timestamps_us - timestamps_us % self.day_us
        noon_us = day_us + self.morning_us
        is_early = timestamps_us < noon_us
        return df.WindowColumns(
            np.where(is_early, day_us, noon_us), np.where(is_early, noon_us, day_us + self.day_us)
        )


@attrs.frozen
class TwoSizes(df.WindowFn):
    """Windows of a user's own: a small and a large one for each record, but for those of the first second."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        if 0 <= timestamp_us < SECOND_US:
            return []
        return [_around(timestamp_us, 3 * SECOND_US), _around(timestamp_us, 8 * SECOND_US)]

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns | None:
        if abs(timestamps_us).max() > MAX_TIMESTAMP_US // 2:
            return None
        kept = np.flatnonzero((timestamps_us < 0) | (timestamps_us >= SECOND_US))
        elements = np.repeat(kept, 2)
        sizes_us = np.tile(np.array([3, 8]) * SECOND_US, len(kept))
        starts_us = timestamps_us[elements] // sizes_us * sizes_us
        return df.WindowColumns(starts_us, starts_us + sizes_us, elements=elements)


def _around(timestamp_us: int, size_us: int) -> df.Window:
    start_us = timestamp_us // size_us * size_us
    return df.Window(start_us, start_us + size_us)


class Spread(df.CombineFn):
    """A combine function of a user's own: how far integers lie apart."""

    def create_accumulator(self) -> tuple[int, ...]:
        return ()

    def add_input(self, accumulator: tuple[int, ...], value: int) -> tuple[int, ...]:
        found = (*accumulator, value)
        return min(found), max(found)

    def merge_accumulators(self, accumulators: Any) -> tuple[int, ...]:
        found = [bound for accumulator in accumulators for bound in accumulator]
        return (min(found), max(found)) if found else ()

    def extract_output(self, accumulator: tuple[int, ...]) -> int:
        return accumulator[1] - accumulator[0]

    def columns(self) -> df.ColumnCombineFn | None:
        return SpreadColumns()


class SpreadColumns(df.ColumnCombineFn):
    """Two arrays; nothing about it is equal to another instance of it."""

    def lift(self, values: pa.Array, groups: df.ColumnGroups) -> Accumulators | None:
        numbers = self.numbers(values)
        if numbers is None or numbers.dtype != np.int64:
            return None
        return self.merge((numbers, numbers), groups)

    def merge(self, accumulators: Accumulators, groups: df.ColumnGroups) -> Accumulators | None:
        lows, highs = accumulators
        if int(highs.max()) - int(lows.min()) >= 1 << 63:
            return None
        return groups.reduced(np.minimum, lows), groups.reduced(np.maximum, highs)

    def results(self, accumulators: Accumulators) -> pa.Array:
        return pa.array(accumulators[1] - accumulators[0])


class Tally(df.CombineFn):
    """A combine function of a user's own, with accumulators and results that are no numbers: "of 3"."""

    def create_accumulator(self) -> dict[str, int]:
        return {"count": 0}

    def add_input(self, accumulator: dict[str, int], value: Any) -> dict[str, int]:
        return {"count": accumulator["count"] + 1}

    def merge_accumulators(self, accumulators: Any) -> dict[str, int]:
        return {"count": sum(each["count"] for each in accumulators)}

    def extract_output(self, accumulator: dict[str, int]) -> str:
        return f"of {accumulator['count']}"

    def columns(self) -> df.ColumnCombineFn:
        return TallyColumns()


class TallyColumns(df.ColumnCombineFn):
    def lift(self, values: pa.Array, groups: df.ColumnGroups) -> Accumulators:
        return (groups.counts,)

    def merge(self, accumulators: Accumulators, groups: df.ColumnGroups) -> Accumulators | None:
        sums = groups.sums(accumulators[0])
        return None if sums is None else (sums,)

    def results(self, accumulators: Accumulators) -> pa.Array:
        return pa.array([f"of {count}" for count in accumulators[0].tolist()])

    def rows(self, accumulators: Accumulators) -> Sequence[dict[str, int]]:
        return [{"count": count} for count in accumulators[0].tolist()]

    def from_rows(self, rows: Sequence[Any], like: Accumulators) -> Accumulators | None:
        return super().from_rows([each["count"] for each in rows], like)


class Recorder(df.DoFn):
    """Records everything that can be known of an element."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def process(
        self,
        element: Any,
        timestamp: datetime = df.DoFn.TimestampParam,
        window: df.Window = df.DoFn.WindowParam,
        pane: df.PaneInfo = df.DoFn.PaneParam,
    ) -> None:
        # As text: 1, 1.0 and True are equal, and not the same.
        self.seen.append((repr(element), timestamp, tuple(window), pane))


class Run(NamedTuple):
    """Panes of a run, whether in the order of event time, and how many bundles of it were never single objects."""

    emitted: list[tuple[Any, ...]]
    is_in_order: bool
    in_columns: int


_WHILE_INPUT = StageClocks(
    watermark_us=MIN_TIMESTAMP_US, output_watermark_us=MIN_TIMESTAMP_US, now_us=MIN_TIMESTAMP_US
)
_AT_THE_END = attrs.evolve(_WHILE_INPUT, watermark_us=MAX_TIMESTAMP_US, now_us=MAX_TIMESTAMP_US)


def replayed(
    transform: Callable[[Collection], Collection],
    source: EventSource,
    *,
    spill_bytes: int = SPILL_BYTES,
    by_machine: bool = False,
) -> Run:
    """Panes of a batch run without Spark: the parts of its tasks, in one process.

    ``by_machine``: with a cell and a timer for each window, also where windows fire once.
    """
    pipeline, recorder = df.Pipeline(), Recorder()
    transform(pipeline | df.Read(source)) | df.ParDo(recorder)
    execution = plan(pipeline.graph())
    (root,), (grouping,) = execution.sources(), execution.groupings()
    ranges = 2
    layout = Layout(
        levels={root.name: 0, grouping.name: 1},
        offsets={grouping.name: 0},
        counts={grouping.name: ranges},
        wanted={root.name: frozenset([0]), grouping.name: frozenset(range(ranges))},
    )
    gatherer, executor = Gatherer(execution, root, layout), StageExecutor(execution, root)
    packed: list[tuple[int, bytes]] = []
    for batch in read(source):
        bundle = Bundle(batch.values, batch.timestamps_us)
        outputs = executor.process(bundle, _WHILE_INPUT)
        packed += gatherer.add(outputs.groups)
    packed += gatherer.flush()
    fired: list[Bundle] = []
    is_in_order = True
    for index in range(ranges):
        stage = GroupingStage(execution, grouping, is_time_sorted=True)
        note_bundles(stage.executor, fired)
        groups = SpilledGroups(stage, _WHILE_INPUT, _AT_THE_END, spill_bytes)
        before = len(recorder.seen)
        with kept_in_cells() if by_machine else nullcontext():
            for _ in groups.steps(blob for target, blob in packed if target == index):
                pass
        times = [timestamp for _, timestamp, *_ in recorder.seen[before:]]
        is_in_order &= times == sorted(times)
    in_columns = sum(isinstance(each.values, PairColumns) for each in fired)
    return Run(sorted(recorder.seen, key=repr), is_in_order, in_columns)


@contextmanager
def kept_in_cells() -> Iterator[None]:
    """Give windows a cell and timers also where they could be replayed without."""
    with patch.object(spilled_groups, "opened_until_all_is_there", opened):
        yield


def note_bundles(executor: StageExecutor, fired: list[Bundle]) -> None:
    """Record the bundles that a stage is given, from here on."""
    process = executor.process

    def noting(bundle: Bundle, clocks: StageClocks, tag: str = MAIN) -> StageOutputs:
        if len(bundle):
            fired.append(bundle)
        return process(bundle, clocks, tag)

    executor.process = noting  # type: ignore[method-assign]


def read(source: EventSource) -> Iterator[SourceBatch]:
    """Every batch of a source."""
    reader = source.open(0, None, fence=0)
    while True:
        batch = reader.read(1)
        yield batch
        if batch.status is SplitStatus.FINISHED:
            return
