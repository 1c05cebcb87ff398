"""The ways of a grouping through the engines: what each does with the same partials, with no process and no database.

The direct runner runs a whole pipeline.  The others get all input of one key range as it would come over the wire, take
it in, and fire every window: a batch (where windows fire once, when all input is there, and where they do not), and a
stream that advances after every bundle, with rows and with columns.  Nothing is committed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import attrs
import numpy as np
import pyarrow as pa

import dataflow as df
from dataflow.columns import IntColumn, Rows
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.ground.bundle import Bundle
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import ExecutionPlan, plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct.job import Job
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.router import Router
from runners.stored.partials import encode_partials
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

JOB = "job"
#: Of the events, one after the other.
STEP_US = 1_000
WINDOWS = df.FixedWindows(60)
EARLY = df.AfterWatermark(early=df.AfterCount(1_000))


class Event(NamedTuple):
    """A row of the input."""

    user: str
    value: int


@attrs.frozen
class Prepared(Source):
    """Bundles in memory, each with the watermark at its last event time."""

    bundles: Sequence[Bundle]

    def splits(self, desired: int) -> Sequence[int]:
        """One."""
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        """The bundles, one after the other."""
        return _PreparedReader(self.bundles)


class _PreparedReader(SourceReader):
    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._bundles, self._position = bundles, 0

    def read(self, max_records: int) -> SourceBatch:
        bundle = self._bundles[self._position]
        self._position += 1
        is_last = self._position == len(self._bundles)
        return SourceBatch(
            values=bundle.values,
            timestamps_us=bundle.timestamps_us,
            position=self._position,
            watermark_us=int(bundle.timestamps_us[-1]),
            status=SplitStatus.FINISHED if is_last else SplitStatus.ACTIVE,
        )


class Input(NamedTuple):
    """Input of a grouping, made before the measurement.

    Attributes:
        blobs: the partials of each bundle, as stored bytes.
        ends_us: the event time after each bundle, in microseconds.
    """

    plan: ExecutionPlan
    blobs: list[bytes]
    ends_us: list[int]


def _directly(given: Input) -> None:
    """The direct runner reads its input itself."""
    Job(given.plan).run(1)


def _in_batch(given: Input) -> None:
    (stage,) = given.plan.groupings()
    grouping = GroupingStage(given.plan, stage, is_time_sorted=True)
    groups = SpilledGroups(grouping, _at(MIN_TIMESTAMP_US), _at(MAX_TIMESTAMP_US), 1 << 40)
    for _ in groups.steps(given.blobs):
        pass


def _in_stream(given: Input) -> None:
    (root,), (stage,) = given.plan.sources(), given.plan.groupings()
    store, router = MemoryStore(), Router(given.plan)
    spec = job_spec(JOB, "streaming", given.plan, splits_desired=1, ranges_per_grouping=1)
    store.open_job(spec)
    keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
    router.follow(Routing(number=1, keys=keys))
    computation = GroupingComputation(JOB, given.plan, stage, router, store)
    ((range_id, taken),) = store.acquire(JOB, list(keys), "owner").items()
    computation.take(taken)
    channel = Channel(RangeId(root.name, 0), range_id)
    for number, (blob, end_us) in enumerate(zip(given.blobs, given.ends_us, strict=True)):
        _advance(computation, MIN_TIMESTAMP_US)
        computation.deliveries.take_in([Deliver(channel, number + 1, blob)], 0)
        _advance(computation, end_us)
    _advance(computation, MAX_TIMESTAMP_US)


def _advance(computation: GroupingComputation, watermark_us: int) -> None:
    clocks = df.Clocks(watermark_us=watermark_us, now_us=0)
    while computation.firing.has_due(clocks):
        computation.firing.advance(clocks)


def _at(at_us: int) -> StageClocks:
    return StageClocks(watermark_us=at_us, output_watermark_us=MIN_TIMESTAMP_US, now_us=at_us)


@attrs.frozen(kw_only=True)
class Path:
    """One way of the input, whose events come in the order of time."""

    name: str
    run: Callable[[Input], None]
    keys: int
    bundle: int
    as_columns: bool = False
    trigger: df.Trigger = attrs.field(factory=df.DefaultTrigger)

    def input(self, elements: int) -> Input:
        """The input of a run.

        Args:
            elements: how many events it has.
        """
        pipeline = df.Pipeline()
        mode = df.AccumulationMode.DISCARDING
        windows = df.WindowInto(WINDOWS, trigger=self.trigger, accumulation_mode=mode)
        grouped = df.GroupBy("user").aggregate_field("value", sum, "total")
        prepared = list(self._bundles(elements))
        pipeline | df.Read(Prepared(prepared)) | windows | grouped
        planned = plan(pipeline.graph())
        (root,) = planned.sources()
        executor = StageExecutor(planned, root)
        clocks = StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
        blobs, ends_us = list[bytes](), list[int]()
        for bundle in prepared:
            ((_, partials),) = executor.process(bundle, clocks).groups.items()
            blobs.append(encode_partials(partials))
            ends_us.append(int(bundle.timestamps_us[-1]))
        return Input(planned, blobs, ends_us)

    def _bundles(self, elements: int) -> Iterator[Bundle]:
        for start in range(0, elements, self.bundle):
            numbers = range(start, min(start + self.bundle, elements))
            users = [f"user-{number % self.keys}" for number in numbers]
            times_us = [number * STEP_US for number in numbers]
            if not self.as_columns:
                yield Bundle([Event(user, 1) for user in users], times_us)
                continue
            arrays = [pa.array(users), pa.array([1] * len(users))]
            rows = Rows.of(Event, Event._fields, arrays)
            yield Bundle(rows, IntColumn(np.array(times_us, np.int64)))


#: Bundles are as large as the engines make them.
PATHS = [
    Path(name="direct, cells", run=_directly, keys=1_000, bundle=1_000),
    Path(name="direct, cells, bundles of 10", run=_directly, keys=1_000, bundle=10),
    Path(name="batch, cells", run=_in_batch, keys=1_000, bundle=1_000, trigger=EARLY),
    Path(name="batch, replayed", run=_in_batch, keys=1_000, bundle=1_000),
    Path(
        name="batch, replayed, columns",
        run=_in_batch,
        keys=20_000,
        bundle=50_000,
        as_columns=True,
    ),
    Path(name="stream, cells", run=_in_stream, keys=1_000, bundle=1_000),
    Path(name="stream, cells, bundles of 10", run=_in_stream, keys=1_000, bundle=10),
    Path(name="stream, columns", run=_in_stream, keys=20_000, bundle=50_000, as_columns=True),
    Path(
        name="stream, columns, bundles of 1,000",
        run=_in_stream,
        keys=1_000,
        bundle=1_000,
        as_columns=True,
    ),
]
