"""Job: one run of the direct runner.

Reads the splits in turns; all effects of a batch are through the whole pipeline before the next is read.
"""

from contextlib import ExitStack

import attrs

from dataflow.graph import Read
from dataflow.io.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.io.table import TableSpec
from dataflow.io.trusted_watermark import opened
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import Cell, CellId, LateArrival
from runners.core.ground.dead_letters import DeadLetter, letters_set_aside
from runners.core.ground.timers import TimerQueue, Timers
from runners.core.panes.signal_delivery import unknown_signal
from runners.core.stages.deduplication import Deduplicator, SplitIds
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.percentile_watermark import ProgressSketch, percentile_watermark_us
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor, StageOutputs
from runners.core.tables.changelog import Rows, apply_table_write
from runners.direct.result import DirectResult
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window


@attrs.define
class SplitInput:
    """One split being read."""

    stage: str
    reader: SourceReader
    watermark_us: int = MIN_TIMESTAMP_US
    status: SplitStatus = SplitStatus.ACTIVE
    sketch: ProgressSketch = attrs.field(factory=ProgressSketch)
    #: The ids that have been read of it, if its records have ids.
    ids: SplitIds | None = None


@attrs.define
class OpenGrouping:
    """One grouping with its state."""

    stage: GroupingStage
    senders: tuple[str, ...]
    cells: dict[CellId, Cell] = attrs.field(factory=dict)
    timers: Timers = attrs.field(factory=Timers)
    holds: TimerQueue[tuple[CellId, Window]] = attrs.field(factory=TimerQueue)


class Job:
    """The state of a run, all in memory.

    Args:
        execution: the plan, and its stages.
        tries: how often a record may fail before it is a dead letter; None: its first failure ends the run.
    """

    def __init__(self, execution: ExecutionPlan, *, tries: int | None = None) -> None:
        self._tries = tries
        self._nodes = {stage.name: stage.root for stage in execution.sources()}
        self._sources = {
            stage.name: StageExecutor(execution, stage, tries=tries)
            for stage in execution.sources()
        }
        self._groupings = {
            stage.name: OpenGrouping(
                GroupingStage(execution, stage, tries=tries), execution.senders(stage.name)
            )
            for stage in execution.groupings()
        }
        # Input and output watermark of each stage: the same unless windows hold the output watermark back.
        self._watermarks_us = dict.fromkeys(execution.stages, MIN_TIMESTAMP_US)
        self._output_watermark_us = dict.fromkeys(execution.stages, MIN_TIMESTAMP_US)
        # The percentile watermark that each grouping fires triggers by, if it follows one.
        self._percentiles_us = {
            name: MIN_TIMESTAMP_US
            for name, grouping in self._groupings.items()
            if grouping.stage.percentile is not None
        }
        self._inputs = [
            SplitInput(stage.name, opened(_read_of(stage), split, None), ids=_ids_of(stage, tries))
            for stage in execution.sources()
            for split in _read_of(stage).source.splits(1)
        ]
        self._tables: dict[str, tuple[TableSpec, Rows]] = {
            table.name: (table, {}) for table in execution.graph.tables()
        }
        self._late: list[tuple[str, LateArrival]] = []
        self._dead: list[DeadLetter] = []
        self._now_us = MIN_TIMESTAMP_US

    def run(self, bundle_records: int) -> DirectResult:
        """Run to the end of every source."""
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
        return DirectResult(self._tables, self._late, self._dead)

    def _read_everything(self, bundle_records: int) -> None:
        while unfinished := [
            split for split in self._inputs if split.status is not SplitStatus.FINISHED
        ]:
            for split in unfinished:
                batch = self._deduplicated(split, split.reader.read(bundle_records))
                node = self._nodes[split.stage]
                self._dead += letters_set_aside(batch, node, tries=self._tries)
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

    def _deduplicated(self, split: SplitInput, batch: SourceBatch) -> SourceBatch:
        """The new records of a batch, if the source's records have ids."""
        if split.ids is None:
            return batch
        bundle = Bundle(batch.values, batch.timestamps_us)
        deduplicated = split.ids.deduplicate(bundle, split.watermark_us)
        self._late += [(split.stage, arrival) for arrival in deduplicated.late]
        self._dead += deduplicated.dead
        new = deduplicated.bundle
        return attrs.evolve(batch, values=new.values, timestamps_us=new.timestamps_us)

    def _take(self, split: SplitInput, batch: SourceBatch) -> None:
        self._process(split, batch)
        self._follow_split(split, batch)

    def _process(self, split: SplitInput, batch: SourceBatch) -> None:
        bundle = Bundle(batch.values, batch.timestamps_us)
        if self._percentiles_us:
            split.sketch.add(batch.timestamps_us)
        clocks = StageClocks.of_source(
            watermark_us=self._watermarks_us[split.stage], now_us=self._now_us
        )
        self._route(self._sources[split.stage].process(bundle, clocks))

    def _follow_split(self, split: SplitInput, batch: SourceBatch) -> None:
        """Take in the status and watermark that the split reports."""
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
            watermark_us = min(self._output_watermark_us[sender] for sender in grouping.senders)
            self._raise_percentile(name, grouping, watermark_us)
            clocks = self._clocks(name, watermark_us, self._now_us)
            while due := grouping.timers.pop_due(clocks):
                step = grouping.stage.fire_timers(grouping.cells, due, clocks)
                self._apply(name, grouping, step)
            self._raise_watermark(name, watermark_us)

    def _signal(self, signal: str) -> None:
        """Deliver a signal to every open window, and what these then emit, before the next grouping gets the signal."""
        known = frozenset().union(*(each.stage.signals for each in self._groupings.values()))
        if signal not in known:
            raise unknown_signal(signal, known)
        for name, grouping in self._groupings.items():
            if signal in grouping.stage.signals:
                clocks = self._clocks(name, self._watermarks_us[name], self._now_us)
                step = grouping.stage.signal(grouping.cells, list(grouping.cells), signal, clocks)
                self._apply(name, grouping, step)
        self._advance()

    def _raise_watermark(self, name: str, watermark_us: int) -> None:
        self._watermarks_us[name] = max(self._watermarks_us[name], watermark_us)
        grouping = self._groupings.get(name)
        hold_us = grouping.holds.next_us() if grouping else None
        output_watermark_us = watermark_us if hold_us is None else min(watermark_us, hold_us)
        self._output_watermark_us[name] = max(self._output_watermark_us[name], output_watermark_us)

    def _raise_percentile(self, name: str, grouping: OpenGrouping, watermark_us: int) -> None:
        percentile = grouping.stage.percentile
        if percentile is None:
            return
        splits = [each for each in self._inputs if each.stage in grouping.senders]
        active = [each for each in splits if each.status is SplitStatus.ACTIVE]
        idle = [each.status is SplitStatus.IDLE for each in splits]
        percentile_us = percentile_watermark_us(
            percentile,
            watermark_us=watermark_us,
            # An idle split holds nothing back, but while there is one, there may be more to come.
            splits=[each.sketch.progress() for each in active] or [None] * any(idle),
            senders_us=[
                self._followed_us(each, percentile)
                for each in grouping.senders
                if each not in self._sources
            ],
        )
        self._percentiles_us[name] = max(self._percentiles_us[name], percentile_us)

    def _followed_us(self, sender: str, percentile: float) -> int:
        """Up to where a grouping has emitted what a follower of some percentile waits for."""
        if (self._groupings[sender].stage.percentile or 0) < percentile:
            return self._output_watermark_us[sender]
        hold_us = self._groupings[sender].holds.next_us()
        input_watermark_us = self._percentiles_us[sender]
        return input_watermark_us if hold_us is None else min(input_watermark_us, hold_us)

    def _route(self, outputs: StageOutputs) -> None:
        self._dead += outputs.dead
        for write in outputs.tables:
            apply_table_write(self._tables[write.table.name][1], write)
        for name, partials in outputs.groups.items():
            grouping = self._groupings[name]
            clocks = self._clocks(name, self._watermarks_us[name], self._arrival_us)
            for partial in partials:
                # What could not be routed on a cluster is refused here too.
                grouping.stage.codec.encode(partial[0])
            self._apply(name, grouping, grouping.stage.add(grouping.cells, partials, clocks))

    def _apply(self, name: str, grouping: OpenGrouping, step: Step) -> None:
        for timer, fire_us in step.effects.timers.items():
            grouping.timers.set(timer, fire_us)
        for place, hold_us in step.effects.holds.items():
            grouping.holds.set(place, hold_us)
        self._late.extend((name, arrival) for arrival in step.effects.late)
        self._route(step.outputs)

    @property
    def _arrival_us(self) -> int:
        """The processing time at which a grouping takes in its input."""
        return self._now_us

    def _clocks(self, name: str, watermark_us: int, now_us: int) -> StageClocks:
        return StageClocks(
            watermark_us=watermark_us,
            output_watermark_us=self._output_watermark_us[name],
            now_us=now_us,
            percentile_us=self._percentiles_us.get(name, MIN_TIMESTAMP_US),
        )


def source_of(stage: Stage) -> Source:
    """The source that a stage starts at."""
    return _read_of(stage).source


def _read_of(stage: Stage) -> Read:
    operation = stage.root.operation
    assert isinstance(operation, Read)
    return operation


def _ids_of(stage: Stage, tries: int | None) -> SplitIds | None:
    has_ids = _read_of(stage).record_ids is not None
    return SplitIds(Deduplicator(stage.root, tries=tries)) if has_ids else None
