"""A pipeline over columns and over single rows: what both emit must be equal."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import attrs
import numpy as np
import pyarrow as pa

import dataflow as df
from dataflow.columns import IntColumn, PairColumns, Rows
from dataflow.io.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.batch.spill.spilled_groups import SPILL_BYTES, SpilledGroups
from runners.core.ground.bundle import Bundle
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor, StageOutputs
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


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

    def open(self, split: int, position: int | None) -> SourceReader:
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


class Recorder(df.DoFn):
    """Writes down everything that there is to know of an element."""

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
    """What a run said, whether in the order of event time, and how many bundles of it were never single objects."""

    said: list[tuple[Any, ...]]
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
    """What a batch run says, without Spark: the parts of its tasks, in one process.

    ``by_machine``: with a cell and a timer for each window, also where windows speak once.
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
    spoken: list[Bundle] = []
    is_in_order = True
    for index in range(ranges):
        stage = GroupingStage(execution, grouping, is_replay=True)
        if by_machine:
            stage.replay = None
        note_bundles(stage.executor, spoken)
        groups = SpilledGroups(stage, _WHILE_INPUT, _AT_THE_END, spill_bytes)
        before = len(recorder.seen)
        for _ in groups.steps(blob for target, blob in packed if target == index):
            pass
        times = [timestamp for _, timestamp, *_ in recorder.seen[before:]]
        is_in_order &= times == sorted(times)
    in_columns = sum(isinstance(each.values, PairColumns) for each in spoken)
    return Run(sorted(recorder.seen, key=repr), is_in_order, in_columns)


def note_bundles(executor: StageExecutor, spoken: list[Bundle]) -> None:
    """Have a stage note what it is given, from here on."""
    process = executor.process

    def noting(bundle: Bundle, clocks: StageClocks) -> StageOutputs:
        if len(bundle):
            spoken.append(bundle)
        return process(bundle, clocks)

    executor.process = noting  # type: ignore[method-assign]


def read(source: EventSource) -> Iterator[SourceBatch]:
    """Every batch of a source."""
    reader = source.open(0, None)
    while True:
        batch = reader.read(1)
        yield batch
        if batch.status is SplitStatus.FINISHED:
            return
