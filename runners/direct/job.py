"""Job: one run of the direct runner.

Reads the splits in turns; all effects of a batch are through the whole pipeline before the next is read.
"""

import logging
import secrets
import time
from contextlib import ExitStack
from typing import Any

import attrs

from dataflow.io.trusted_watermark import opened
from dataflow.metric_updates import RunningAs, collecting, take_updates
from dataflow.source import SourceBatch, SourceReader, SplitStatus, checked_changes
from dataflow.table import TableSpec
from runners.core.ground.cells import LateArrival
from runners.core.ground.dead_letters import DeadLetter
from runners.core.ground.lineage import LineageEntry
from runners.core.open_windows.choice import opened as opened_windows
from runners.core.open_windows.open_windows import Arrival, OpenWindows
from runners.core.panes.signal_delivery import unknown_signal
from runners.core.stages.committed_positions import CommittedPositions
from runners.core.stages.deduplication import SplitIds
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.percentile_watermark import (
    ProgressSketch,
    SplitProgress,
    percentile_watermark_us,
)
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.source_stage import Admitted, SourceStage, release_sources
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageOutputs
from runners.core.tables.changelog import Rows, apply_table_write
from runners.direct.result import DirectResult
from runners.relay.memory_outbox import MemoryOutbox
from runners.relay.relays import Relays
from runners.system_clock import SystemClock
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

_LOG = logging.getLogger(__name__)

#: Before a source that has nothing yet, as it waits for the clock, is asked again.
_PAUSE_S = 0.01
#: How long a sink may fail again and again.
_SINK_PATIENCE_S = 2.0


@attrs.define
class SplitInput:
    """One split being read.

    Attributes:
        sketch: for the groupings that follow a percentile, if there are any.
        ids: the ids that have been read of it, if its records have ids.
        position: behind the last batch that was read.
        committed: notifies the reader of what has gone through the pipeline.
        split: as its source has it.
    """

    stage: SourceStage
    split: Any
    reader: SourceReader
    committed: CommittedPositions
    watermark_us: int = MIN_TIMESTAMP_US
    status: SplitStatus = SplitStatus.ACTIVE
    sketch: ProgressSketch | None = None
    ids: SplitIds | None = None
    position: Any = None

    def moves_with(self, batch: SourceBatch) -> bool:
        """Whether anything comes of a batch, and not only the news that there is none yet; notes its position."""
        is_news = (
            batch.records
            or batch.signals
            or batch.processing_time_us is not None
            or batch.status is not self.status
            or batch.watermark_us > self.watermark_us
            or batch.position != self.position
        )
        self.position = batch.position
        return bool(is_news)

    @property
    def progress(self) -> SplitProgress | None:
        """What is known of the event times to come; None: nothing."""
        return None if self.sketch is None else self.sketch.progress()

    @classmethod
    def all_of(cls, stage: SourceStage) -> "list[SplitInput]":
        """All splits of a source, open."""
        return [cls.of(stage, split) for split in stage.read.source.splits(1)]

    @classmethod
    def of(cls, stage: SourceStage, split: Any) -> "SplitInput":
        """A split, open.

        Args:
            stage: that reads it.
            split: of its source.
        """
        reader = opened(stage.read, split, None)
        committed = CommittedPositions(stage.read.source, reader, where=stage.name)
        return cls(
            stage, split, reader, committed, ids=stage.ids_in_memory(), sketch=stage.sketch()
        )

    def end(self) -> None:
        """End it where it is, as its input does not have it any more."""
        self.status, self.watermark_us = SplitStatus.FINISHED, MAX_TIMESTAMP_US
        _LOG.warning(
            "%r is not in the input of %r any more, and has ended at %r; what was not read of it is lost",
            self.split,
            self.stage.name,
            self.position,
        )

    def close(self) -> None:
        """Release what the reader holds."""
        self.committed.close()
        self.reader.close()


@attrs.define
class OpenGrouping:
    """One grouping with its state."""

    stage: GroupingStage
    windows: OpenWindows
    senders: tuple[str, ...]

    @classmethod
    def of(cls, execution: ExecutionPlan, stage: Stage, tries: int | None) -> "OpenGrouping":
        """A grouping with nothing in it.

        Args:
            execution: the plan.
            stage: of the plan.
            tries: see `GroupingStage`.
        """
        grouping = GroupingStage(execution, stage, tries=tries)
        return cls(grouping, opened_windows(grouping), execution.senders(stage.name))


class Job:
    """The state of a run, all in memory.

    Args:
        execution: the plan, and its stages.
        tries: how often a record may fail before it is a dead letter; None: its first failure ends the run.
    """

    def __init__(self, execution: ExecutionPlan, *, tries: int | None = None) -> None:
        self._sources = {
            stage.name: SourceStage(execution, stage, tries=tries) for stage in execution.sources()
        }
        self._groupings = {
            stage.name: OpenGrouping.of(execution, stage, tries) for stage in execution.groupings()
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
            split for source in self._sources.values() for split in SplitInput.all_of(source)
        ]
        self._graph = execution.graph
        clock = SystemClock()
        #: When each source that may get splits is asked next, by the machine's clock in milliseconds.
        self._growing_ms = {
            name: clock.monotonic_ms()
            for name, source in self._sources.items()
            if source.read.source.discover_every_ms is not None
        }
        self._clock, self._open = clock, ExitStack()
        self._tables: dict[str, tuple[TableSpec, Rows]] = {
            table.name: (table, {}) for table in execution.graph.tables()
        }
        self._relays = Relays(
            MemoryOutbox(secrets.token_hex(16), lambda name: self._tables[name][1]),
            "in memory",
            execution.graph.sinks(),
            clock,
        )
        self._late: list[tuple[str, LateArrival]] = []
        self._dead: list[DeadLetter] = []
        self._lineage: list[LineageEntry] = []
        self._now_us = MIN_TIMESTAMP_US

    def run(self, bundle_records: int) -> DirectResult:
        """Run to the end of every source."""
        stages: list[SourceStage | GroupingStage] = [
            *self._sources.values(),
            *(grouping.stage for grouping in self._groupings.values()),
        ]
        with ExitStack() as stack:
            stack.callback(release_sources, self._graph)
            stack.callback(self._relays.close)
            stack.enter_context(self._open)
            for split in self._inputs:
                self._open.callback(split.close)
            stack.enter_context(collecting())
            for stage in stages:
                stage.setup()
                stack.callback(stage.teardown)
            self._read_everything(bundle_records)
            metrics = take_updates(SystemClock().now_us())
        senders = {
            **dict.fromkeys(self._sources, ()),
            **{name: grouping.senders for name, grouping in self._groupings.items()},
        }
        return DirectResult(self._tables, self._late, self._dead, metrics, self._lineage, senders)

    def _read_everything(self, bundle_records: int) -> None:
        # So the relays have seen that nothing waits yet.
        self._relays.step()
        while (unfinished := self._unfinished()) or self._discovers():
            is_waiting = bool(unfinished)
            for split in unfinished:
                split.committed.notify()
                with RunningAs(split.stage.name):
                    batch = split.reader.read(bundle_records)
                if split.moves_with(batch):
                    is_waiting = False
                admitted = split.stage.admit(
                    batch,
                    watermark_us=split.watermark_us,
                    ids=split.ids,
                    sketch=split.sketch,
                    split=split.split,
                )
                self._late += [(split.stage.name, arrival) for arrival in admitted.late]
                if batch.processing_time_us is not None:
                    self._let_time_pass(batch.processing_time_us)
                self._take(split, batch, admitted)
                if self._has_ended and self._now_us == MIN_TIMESTAMP_US:
                    self._now_us = MAX_TIMESTAMP_US
                self._advance()
                self._note_committed(split)
                for name in batch.signals:
                    self._signal(name)
                self._relays.flush(_SINK_PATIENCE_S, time.sleep, is_last=False)
            if is_waiting and not self._discovers():
                time.sleep(_PAUSE_S)
        if self._growing_ms:
            # The end of the last split was not yet the end of the input.
            self._growing_ms.clear()
            self._now_us = MAX_TIMESTAMP_US if self._now_us == MIN_TIMESTAMP_US else self._now_us
            self._advance()
        self._let_time_pass(MAX_TIMESTAMP_US)
        self._relays.flush(_SINK_PATIENCE_S, time.sleep)

    def _unfinished(self) -> list[SplitInput]:
        return [split for split in self._inputs if split.status is not SplitStatus.FINISHED]

    @property
    def _has_ended(self) -> bool:
        return not self._growing_ms and not self._unfinished()

    def _discovers(self) -> bool:
        """Ask the sources whose turn it is for splits that have come and gone; returns whether there are any.

        Where no split is left, it is the turn of all.
        """
        now_ms, found = self._clock.monotonic_ms(), False
        for name, due_ms in self._growing_ms.items():
            if self._unfinished() and now_ms < due_ms:
                continue
            source = self._sources[name]
            self._growing_ms[name] = now_ms + (source.read.source.discover_every_ms or 0)
            found |= self._discover(name, source)
        return found

    def _discover(self, name: str, source: SourceStage) -> bool:
        splits = [split for split in self._inputs if split.stage is source]
        known = [split.split for split in splits]
        asked = source.read.source
        changes = checked_changes(asked, asked.discover(known))
        gone = [
            split
            for split in splits
            if split.split in changes.removed and split.status is not SplitStatus.FINISHED
        ]
        for split in gone:
            split.end()
        added: list[Any] = []
        for each in changes.added:
            if each not in known and each not in added:
                added.append(each)
        for each in added:
            opened_split = SplitInput.of(source, each)
            # No watermark goes back.
            opened_split.watermark_us = self._watermarks_us[name]
            self._open.callback(opened_split.close)
            self._inputs.append(opened_split)
        if gone or added:
            self._advance()
        return bool(gone or added)

    def _let_time_pass(self, until_us: int) -> None:
        """Move the clock from timer to timer up to an instant."""
        while (next_us := self._next_processing_us()) is not None and next_us <= until_us:
            self._now_us = max(self._now_us, next_us)
            self._advance()
        self._now_us = max(self._now_us, until_us)

    def _next_processing_us(self) -> int | None:
        waiting = [grouping.windows.next_processing_us for grouping in self._groupings.values()]
        return min((next_us for next_us in waiting if next_us is not None), default=None)

    def _take(self, split: SplitInput, batch: SourceBatch, admitted: Admitted) -> None:
        self._process(split, admitted)
        self._follow_split(split, admitted)

    def _process(self, split: SplitInput, admitted: Admitted) -> None:
        clocks = StageClocks.of_source(
            watermark_us=self._watermarks_us[split.stage.name], now_us=self._now_us
        )
        self._route(split.stage.process(admitted, clocks))

    def _follow_split(self, split: SplitInput, admitted: Admitted) -> None:
        """Note where a batch has left its split."""
        split.status, split.watermark_us = admitted.status, admitted.watermark_us

    def _note_committed(self, split: SplitInput) -> None:
        """Note that the batch of a split has gone through the whole pipeline."""
        split.committed.note(split.position)
        split.committed.notify()

    def _source_watermark_us(self, name: str) -> int:
        splits = [split for split in self._inputs if split.stage.name == name]
        # An idle split holds nothing back, but while there is one, there may be more to come.
        unfinished = [split for split in splits if split.status is not SplitStatus.FINISHED]
        if name in self._growing_ms and not unfinished:
            return self._watermarks_us[name]
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
            while (step := grouping.windows.advance(clocks)) is not None:
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
                self._apply(name, grouping, grouping.windows.signal(signal, clocks))
        self._advance()

    def _raise_watermark(self, name: str, watermark_us: int) -> None:
        self._watermarks_us[name] = max(self._watermarks_us[name], watermark_us)
        grouping = self._groupings.get(name)
        hold_us = grouping.windows.hold_us if grouping else None
        output_watermark_us = watermark_us if hold_us is None else min(watermark_us, hold_us)
        self._output_watermark_us[name] = max(self._output_watermark_us[name], output_watermark_us)

    def _raise_percentile(self, name: str, grouping: OpenGrouping, watermark_us: int) -> None:
        percentile = grouping.stage.percentile
        if percentile is None:
            return
        splits = [each for each in self._inputs if each.stage.name in grouping.senders]
        active = [each for each in splits if each.status is SplitStatus.ACTIVE]
        idle = [each.status is SplitStatus.IDLE for each in splits]
        percentile_us = percentile_watermark_us(
            percentile,
            watermark_us=watermark_us,
            # An idle split holds nothing back, but while there is one, there may be more to come.
            splits=[each.progress for each in active] or [None] * any(idle),
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
        hold_us = self._groupings[sender].windows.hold_us
        input_watermark_us = self._percentiles_us[sender]
        return input_watermark_us if hold_us is None else min(input_watermark_us, hold_us)

    def _route(self, outputs: StageOutputs) -> None:
        self._dead += outputs.dead
        self._lineage += outputs.lineage
        for write in outputs.tables:
            apply_table_write(self._tables[write.table.name][1], write)
        for name, partials in outputs.groups.items():
            grouping = self._groupings[name]
            clocks = self._clocks(name, self._watermarks_us[name], self._arrival_us)
            for partial in partials:
                # What could not be routed on a cluster is refused here too.
                grouping.stage.codec.encode(partial[0])
            self._apply(name, grouping, grouping.windows.take([Arrival(partials)], clocks))

    def _apply(self, name: str, grouping: OpenGrouping, step: Step) -> None:
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
