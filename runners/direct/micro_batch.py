"""MicroBatchJob: a run as a micro-batch engine does it, in rounds of processing time (Dataflow Model, section 2.4)."""

from datetime import timedelta
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.source import SourceBatch
from runners.core.stages.plan import ExecutionPlan
from runners.core.stages.source_stage import Admitted
from runners.direct.job import Job, SplitInput
from triggers import AtPeriod, Repeatedly
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class MicroBatchJob(Job):
    """A job in rounds: the input of a round arrives at each grouping before its end, which fires the windows.

    So a grouping waits for all input of the round, and a chain of groupings is through in one round.

    Args:
        execution: the plan, and its stages.
        round_us: the processing time of a round, in microseconds.
        tries: how often a record may fail before it is a dead letter; None: its first failure ends the run.
    """

    def __init__(
        self, execution: ExecutionPlan, round_us: int, *, tries: int | None = None
    ) -> None:
        super().__init__(execution, tries=tries)
        self._round = _round(round_us)
        self._round_end_us = MAX_TIMESTAMP_US
        #: With the position behind each.
        self._gathered: list[tuple[SplitInput, Admitted, Any]] = []

    def _take(self, split: SplitInput, batch: SourceBatch, admitted: Admitted) -> None:
        self._follow_split(split, admitted)
        if not admitted.bundle.values and admitted.failures is None:
            self._dead += admitted.dead
            return
        if batch.processing_time_us is None:
            raise PipelineError(
                f"micro-batches need to know when input arrives, and {split.stage.name!r} does not report that",
                detail="a round is a length of processing time; the batches of this source have none",
                hint="read from a TestStream, or leave micro_batch out",
            )
        if not self._gathered:
            self._round_end_us = self._round.deadline_us(self._now_us)
        self._gathered.append((split, admitted, batch.position))

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
            for split, admitted, _ in self._gathered:
                self._process(split, admitted)
            super()._advance()
            for split, _, position in self._gathered:
                split.committed.note(position)
            for split in self._inputs:
                split.committed.notify()
            self._gathered.clear()

    def _note_committed(self, split: SplitInput) -> None:
        """Do nothing: what is gathered goes through the pipeline at the end of the round."""

    def _source_watermark_us(self, name: str) -> int:
        is_over = self._has_ended and not self._gathered
        return MAX_TIMESTAMP_US if is_over else MIN_TIMESTAMP_US

    def _signal(self, signal: str) -> None:
        """Ignore a signal: only the end of a round fires windows."""

    @property
    def _arrival_us(self) -> int:
        return self._round_end_us - 1


def _round(round_us: int) -> AtPeriod:
    return AtPeriod(timedelta(microseconds=round_us))


def in_rounds(graph: PipelineGraph, round_us: int) -> PipelineGraph:
    """The graph with every window firing at the end of a round in which it has changed.

    Args:
        graph: the pipeline.
        round_us: the length of a round, in microseconds of processing time.
    """
    trigger = Repeatedly(_round(round_us))
    pcollections = {
        number: attrs.evolve(node, strategy=attrs.evolve(node.strategy, trigger=trigger))
        for number, node in graph.pcollections.items()
    }
    return attrs.evolve(graph, pcollections=pcollections)
