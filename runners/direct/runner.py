"""DirectRunner: the whole pipeline in one thread of this process, over the same semantic core as every other engine.

Sources are read in turn, a bundle at a time, and their watermarks move with them; so late data is late here too.
Processing time stands still while there is input and then jumps to the end of time.
Nothing is durable, and nothing is shared with the exactly-once core.  Start reading here.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph, Read
from dataflow.io.source import SourceBatch, SourceReader, SplitStatus
from dataflow.io.table import TableSpec
from runners.core.bundle import Bundle
from runners.core.cells import Cell, CellId, LateArrival
from runners.core.changelog import Rows, apply_table_write
from runners.core.grouping import GroupingStage, StageClock, Step
from runners.core.late import late_mapping
from runners.core.plan import ExecutionPlan, Stage, plan
from runners.core.stage_executor import StageExecutor, StageOutputs
from runners.core.timers import Timers
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class DirectRunner:
    """Runs a pipeline in memory.

    Args:
        bundle_records: how many records a source hands over at a time; results do not depend on it.
    """

    def __init__(self, *, bundle_records: int = 1_000) -> None:
        if bundle_records < 1:
            raise PipelineError(f"bundle_records must be positive, not {bundle_records}")
        self._bundle_records = bundle_records

    def run(self, graph: PipelineGraph) -> "DirectResult":
        """Run to the end of every source."""
        execution = plan(graph)
        for stage in execution.sources():
            _source(stage).check()
        return _Job(execution).run(self._bundle_records)


class DirectResult:
    """What a direct run left: its tables and its late records."""

    def __init__(
        self,
        tables: Mapping[str, tuple[TableSpec, Rows]],
        late: Sequence[tuple[str, LateArrival]],
    ) -> None:
        self._tables, self._late = tables, late

    def wait_until_finish(self) -> None:
        """Nothing to wait for: the run has ended."""

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table."""
        if name not in self._tables:
            raise PipelineError(
                f"the pipeline writes no table {name!r}", detail=f"tables: {sorted(self._tables)}"
            )
        spec, rows = self._tables[name]
        return [dict(zip(spec.columns, row, strict=True)) for row in rows.values()]

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records that came after their window was gone."""
        return [late_mapping(transform, arrival) for transform, arrival in self._late]


@attrs.define
class _Input:
    """One split being read."""

    stage: str
    reader: SourceReader
    watermark_us: int = MIN_TIMESTAMP_US
    status: SplitStatus = SplitStatus.ACTIVE


@attrs.define
class _Grouping:
    """One grouping with its state."""

    stage: GroupingStage
    senders: tuple[str, ...]
    cells: dict[CellId, Cell] = attrs.field(factory=dict)
    timers: Timers = attrs.field(factory=Timers)


class _Job:
    def __init__(self, execution: ExecutionPlan) -> None:
        self._sources = {
            stage.name: StageExecutor(execution, stage) for stage in execution.sources()
        }
        self._groupings = {
            stage.name: _Grouping(GroupingStage(execution, stage), execution.senders(stage.name))
            for stage in execution.groupings()
        }
        # One number per stage: no stage here has buffered work between steps, so input and output watermark agree.
        self._watermarks_us = dict.fromkeys(execution.stages, MIN_TIMESTAMP_US)
        self._inputs = [
            _Input(stage.name, _source(stage).open(split, None))
            for stage in execution.sources()
            for split in _source(stage).splits(1)
        ]
        self._tables: dict[str, tuple[TableSpec, Rows]] = {
            table.name: (table, {}) for table in execution.graph.tables()
        }
        self._late: list[tuple[str, LateArrival]] = []
        self._now_us = MIN_TIMESTAMP_US

    def run(self, bundle_records: int) -> DirectResult:
        executors = [
            *self._sources.values(),
            *(grouping.stage.executor for grouping in self._groupings.values()),
        ]
        with ExitStack() as stack:
            for split in self._inputs:
                stack.callback(split.reader.close)
            for executor in executors:
                executor.setup()
                stack.callback(executor.teardown)
            self._read_everything(bundle_records)
        return DirectResult(self._tables, self._late)

    def _read_everything(self, bundle_records: int) -> None:
        while unfinished := [
            split for split in self._inputs if split.status is not SplitStatus.FINISHED
        ]:
            for split in unfinished:
                self._take(split, split.reader.read(bundle_records))
                if all(other.status is SplitStatus.FINISHED for other in self._inputs):
                    self._now_us = MAX_TIMESTAMP_US
                self._advance()

    def _take(self, split: _Input, batch: SourceBatch) -> None:
        bundle = Bundle(batch.values, batch.timestamps_us)
        executor = self._sources[split.stage]
        self._route(executor.process(bundle, watermark_us=self._watermarks_us[split.stage]))
        split.status = batch.status
        is_finished = split.status is SplitStatus.FINISHED
        batch_us = MAX_TIMESTAMP_US if is_finished else batch.watermark_us
        split.watermark_us = max(split.watermark_us, batch_us)

    def _advance(self) -> None:
        """Let every watermark follow its inputs, senders before receivers, firing what is due."""
        for name in self._sources:
            splits = [split for split in self._inputs if split.stage == name]
            # An idle split holds nothing back, but while there is one, there may be more to come.
            unfinished = [split for split in splits if split.status is not SplitStatus.FINISHED]
            active = [split for split in unfinished if split.status is SplitStatus.ACTIVE]
            holding = active or unfinished or splits
            self._raise_watermark(name, min(split.watermark_us for split in holding))
        for name, grouping in self._groupings.items():
            watermark_us = min(self._watermarks_us[sender] for sender in grouping.senders)
            clock = self._clock(name, watermark_us)
            while due := grouping.timers.pop_due(watermark_us=watermark_us, now_us=self._now_us):
                step = grouping.stage.fire_timers(grouping.cells, due, clock)
                self._apply(name, grouping, step)
            self._raise_watermark(name, watermark_us)

    def _raise_watermark(self, name: str, watermark_us: int) -> None:
        self._watermarks_us[name] = max(self._watermarks_us[name], watermark_us)

    def _route(self, outputs: StageOutputs) -> None:
        for write in outputs.tables:
            apply_table_write(self._tables[write.table.name][1], write)
        for name, partials in outputs.groups.items():
            grouping = self._groupings[name]
            clock = self._clock(name, self._watermarks_us[name])
            self._apply(name, grouping, grouping.stage.add(grouping.cells, partials, clock))

    def _apply(self, name: str, grouping: _Grouping, step: Step) -> None:
        for timer, fire_us in step.effects.timers.items():
            grouping.timers.set(timer, fire_us)
        self._late.extend((name, arrival) for arrival in step.effects.late)
        self._route(step.outputs)

    def _clock(self, name: str, watermark_us: int) -> StageClock:
        return StageClock(
            watermark_us=watermark_us,
            output_watermark_us=self._watermarks_us[name],
            now_us=self._now_us,
        )


def _source(stage: Stage) -> Any:
    operation = stage.root.operation
    assert isinstance(operation, Read)
    return operation.source
