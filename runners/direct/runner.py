"""DirectRunner: the whole pipeline in one thread of this process, over the same semantic core as every other engine.

Sources are read in turn, a bundle at a time, and their watermarks move with them; so late data is late here too.
Processing time is the clock that the input brings along (`SourceBatch.processing_time_us`): it steps from timer to
timer, so each fires at its very instant.  Where the input brings none, it stands still until the input has ended.
Nothing is durable, and nothing is shared with the exactly-once core.  Start reading here.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
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
from runners.core.signals import unheard_signal
from runners.core.stage_executor import StageExecutor, StageOutputs
from runners.core.timers import TimerQueue, Timers
from runners.errors import SignalError
from triggers import AtPeriod, Repeatedly
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    DurationLike,
    to_duration_us,
)
from windowing.window import Window


class DirectRunner:
    """Runs a pipeline in memory.

    Args:
        bundle_records: how many records a source hands over at a time; results do not depend on it.
        micro_batch: run as a micro-batch engine does, with rounds of this length (Dataflow Model, section 2.4).
            Input is gathered until the clock reaches the next multiple of it and then processed as one round, at the
            end of which every window whose contents have changed emits a pane, whatever its trigger.  State stays for
            the next round.  The watermark says nothing until the input has ended, so panes are early and nothing is
            late.  Needs a source that says when its input arrives, such as a `TestStream`.
    """

    def __init__(
        self, *, bundle_records: int = 1_000, micro_batch: DurationLike | None = None
    ) -> None:
        if bundle_records < 1:
            raise PipelineError(f"bundle_records must be positive, not {bundle_records}")
        self._round_us = None if micro_batch is None else to_duration_us(micro_batch)
        if self._round_us is not None and self._round_us <= 0:
            raise PipelineError(f"micro_batch must be a positive duration, not {micro_batch!r}")
        self._bundle_records = bundle_records

    def run(self, graph: PipelineGraph) -> "DirectResult":
        """Run to the end of every source.

        Raises:
            InputError: a source cannot be read.
            PipelineError: the rounds of a micro-batch are wanted and a source does not say when its input arrives.
        """
        execution = plan(graph if self._round_us is None else _in_rounds(graph, self._round_us))
        for stage in execution.sources():
            _source(stage).check()
        job = (
            _Job(execution) if self._round_us is None else _MicroBatchJob(execution, self._round_us)
        )
        return job.run(self._bundle_records)


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

    def send_signal(self, name: str) -> None:
        """Nobody can hear it: the run has ended.

        Raises:
            SignalError: always.
        """
        raise SignalError(
            f"the signal {name!r} comes too late: a run in memory has ended when there is a result",
            hint="script it, with TestStream().send_signal(...), or use the streaming runner",
        )

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
    holds: TimerQueue[tuple[CellId, Window]] = attrs.field(factory=TimerQueue)


class _Job:
    def __init__(self, execution: ExecutionPlan) -> None:
        self._sources = {
            stage.name: StageExecutor(execution, stage) for stage in execution.sources()
        }
        self._groupings = {
            stage.name: _Grouping(GroupingStage(execution, stage), execution.senders(stage.name))
            for stage in execution.groupings()
        }
        # What each stage has acted on, and what it has told those behind it: the same unless windows hold it back.
        self._watermarks_us = dict.fromkeys(execution.stages, MIN_TIMESTAMP_US)
        self._told_us = dict.fromkeys(execution.stages, MIN_TIMESTAMP_US)
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
        executors: list[StageExecutor | GroupingStage] = [
            *self._sources.values(),
            *(grouping.stage for grouping in self._groupings.values()),
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
                batch = split.reader.read(bundle_records)
                if batch.processing_time_us is not None:
                    self._let_time_pass(batch.processing_time_us)
                self._take(split, batch)
                if self._has_ended and self._now_us == MIN_TIMESTAMP_US:
                    self._now_us = MAX_TIMESTAMP_US
                self._advance()
                for name in batch.signals:
                    self._signal(name)
        self._let_time_pass(MAX_TIMESTAMP_US)

    @property
    def _has_ended(self) -> bool:
        return all(split.status is SplitStatus.FINISHED for split in self._inputs)

    def _let_time_pass(self, until_us: int) -> None:
        """Move the clock from timer to timer up to an instant."""
        while (next_us := self._next_processing_us()) is not None and next_us <= until_us:
            self._now_us = max(self._now_us, next_us)
            self._advance()
        self._now_us = max(self._now_us, until_us)

    def _next_processing_us(self) -> int | None:
        waiting = [grouping.timers.next_processing_us() for grouping in self._groupings.values()]
        return min((next_us for next_us in waiting if next_us is not None), default=None)

    def _take(self, split: _Input, batch: SourceBatch) -> None:
        self._process(split, batch)
        self._hear(split, batch)

    def _process(self, split: _Input, batch: SourceBatch) -> None:
        bundle = Bundle(batch.values, batch.timestamps_us)
        executor = self._sources[split.stage]
        watermark_us = self._watermarks_us[split.stage]
        self._route(executor.process(bundle, watermark_us=watermark_us, now_us=self._now_us))

    def _hear(self, split: _Input, batch: SourceBatch) -> None:
        """Take in what the split says of itself."""
        split.status = batch.status
        is_finished = split.status is SplitStatus.FINISHED
        batch_us = MAX_TIMESTAMP_US if is_finished else batch.watermark_us
        split.watermark_us = max(split.watermark_us, batch_us)

    def _source_watermark_us(self, name: str) -> int:
        splits = [split for split in self._inputs if split.stage == name]
        # An idle split holds nothing back, but while there is one, there may be more to come.
        unfinished = [split for split in splits if split.status is not SplitStatus.FINISHED]
        active = [split for split in unfinished if split.status is SplitStatus.ACTIVE]
        return min(split.watermark_us for split in active or unfinished or splits)

    def _advance(self) -> None:
        """Let every watermark follow its inputs, senders before receivers, firing what is due."""
        for name in self._sources:
            self._raise_watermark(name, self._source_watermark_us(name))
        for name, grouping in self._groupings.items():
            watermark_us = min(self._told_us[sender] for sender in grouping.senders)
            clock = self._clock(name, watermark_us, self._now_us)
            while due := grouping.timers.pop_due(watermark_us=watermark_us, now_us=self._now_us):
                step = grouping.stage.fire_timers(grouping.cells, due, clock)
                self._apply(name, grouping, step)
            self._raise_watermark(name, watermark_us)

    def _signal(self, signal: str) -> None:
        """Let every open window hear a signal, and what it makes them say be there when the next grouping hears it."""
        known = frozenset().union(*(each.stage.signals for each in self._groupings.values()))
        if signal not in known:
            raise unheard_signal(signal, known)
        for name, grouping in self._groupings.items():
            if signal in grouping.stage.signals:
                clock = self._clock(name, self._watermarks_us[name], self._now_us)
                step = grouping.stage.signal(grouping.cells, list(grouping.cells), signal, clock)
                self._apply(name, grouping, step)
        self._advance()

    def _raise_watermark(self, name: str, watermark_us: int) -> None:
        self._watermarks_us[name] = max(self._watermarks_us[name], watermark_us)
        grouping = self._groupings.get(name)
        held_us = grouping.holds.next_us() if grouping else None
        told_us = watermark_us if held_us is None else min(watermark_us, held_us)
        self._told_us[name] = max(self._told_us[name], told_us)

    def _route(self, outputs: StageOutputs) -> None:
        for write in outputs.tables:
            apply_table_write(self._tables[write.table.name][1], write)
        for name, partials in outputs.groups.items():
            grouping = self._groupings[name]
            clock = self._clock(name, self._watermarks_us[name], self._arrival_us)
            self._apply(name, grouping, grouping.stage.add(grouping.cells, partials, clock))

    def _apply(self, name: str, grouping: _Grouping, step: Step) -> None:
        for timer, fire_us in step.effects.timers.items():
            grouping.timers.set(timer, fire_us)
        for place, held_us in step.effects.holds.items():
            grouping.holds.set(place, held_us)
        self._late.extend((name, arrival) for arrival in step.effects.late)
        self._route(step.outputs)

    @property
    def _arrival_us(self) -> int:
        """The processing time at which a grouping takes in what it is sent."""
        return self._now_us

    def _clock(self, name: str, watermark_us: int, now_us: int) -> StageClock:
        return StageClock(
            watermark_us=watermark_us,
            output_watermark_us=self._told_us[name],
            now_us=now_us,
        )


class _MicroBatchJob(_Job):
    """The same in rounds: what is gathered in a round arrives at each grouping before the round's end, and fires at it.

    So a grouping waits for all that the round sends it, and a chain of groupings is through in one round.
    """

    def __init__(self, execution: ExecutionPlan, round_us: int) -> None:
        super().__init__(execution)
        self._round = _round(round_us)
        self._round_end_us = MAX_TIMESTAMP_US
        self._gathered: list[tuple[_Input, SourceBatch]] = []

    def _take(self, split: _Input, batch: SourceBatch) -> None:
        self._hear(split, batch)
        if not batch.values:
            return
        if batch.processing_time_us is None:
            raise PipelineError(
                f"micro-batches need to know when input arrives, and {split.stage!r} does not say",
                detail="a round is a length of processing time; the batches of this source have none",
                hint="read from a TestStream, or leave micro_batch out",
            )
        if not self._gathered:
            self._round_end_us = self._round.deadline_us(self._now_us)
        self._gathered.append((split, batch))

    def _let_time_pass(self, until_us: int) -> None:
        if self._round_end_us <= until_us:
            self._end_round()
        super()._let_time_pass(until_us)

    def _advance(self) -> None:
        if self._has_ended:
            self._end_round()
            super()._advance()

    def _end_round(self) -> None:
        if self._gathered:
            self._now_us = self._round_end_us
            for split, batch in self._gathered:
                self._process(split, batch)
            super()._advance()
            self._gathered.clear()

    def _source_watermark_us(self, name: str) -> int:
        is_over = self._has_ended and not self._gathered
        return MAX_TIMESTAMP_US if is_over else MIN_TIMESTAMP_US

    def _signal(self, signal: str) -> None:
        """Nobody listens: a round's end is all that makes windows speak."""

    @property
    def _arrival_us(self) -> int:
        return self._round_end_us - 1


def _round(round_us: int) -> AtPeriod:
    return AtPeriod(timedelta(microseconds=round_us))


def _in_rounds(graph: PipelineGraph, round_us: int) -> PipelineGraph:
    """The graph with every window firing at the end of a round in which it has changed."""
    trigger = Repeatedly(_round(round_us))
    pcollections = {
        number: attrs.evolve(node, strategy=attrs.evolve(node.strategy, trigger=trigger))
        for number, node in graph.pcollections.items()
    }
    return attrs.evolve(graph, pcollections=pcollections)


def _source(stage: Stage) -> Any:
    operation = stage.root.operation
    assert isinstance(operation, Read)
    return operation.source
