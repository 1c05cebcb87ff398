"""SourceStage: a read and all transforms up to the first groupings, as every engine runs it.

A batch that was read from a split goes through it in this order:

1. What the reader has set aside becomes dead letters, or ends the run.
2. Records with ids are deduplicated, at the watermark that the split had before the batch.
3. The new ones go through the fused transforms, as one bundle.
4. The split is where the batch has left it: its status, and its watermark, which never goes back.

The engine has the reader, the ids that were seen before, and how far the split is; it applies what comes out in one
commit with the position behind the batch.

MillWheel, section 4.6 (injectors) and 6.1.1.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from dataflow.columns import IntColumn, RepeatedColumn
from dataflow.errors import InputError
from dataflow.exception_handling import FAILURES
from dataflow.graph import PipelineGraph
from dataflow.metric_updates import RunningAs
from dataflow.source import Source, SourceBatch, SplitStatus
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import LateArrival
from runners.core.ground.dead_letters import DeadLetter, letters_set_aside
from runners.core.ground.element_text import shown
from runners.core.ground.lineage import SplitOrigin
from runners.core.stages.deduplication import Deduplicated, Deduplicator, NewId, SplitIds
from runners.core.stages.percentile_watermark import ProgressSketch, percentile_of
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor, StageOutputs
from runners.core.stages.tracing import Tracing
from runners.core.user_code.poison import Trial
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class SeenBefore(Protocol):
    """The ids of one split, wherever an engine keeps them."""

    def deduplicate(self, bundle: Bundle, watermark_us: int) -> Deduplicated:
        """Deduplicate a batch that was read.

        Args:
            bundle: what the source returned.
            watermark_us: that of the split before the batch, in microseconds.
        """


@attrs.frozen(kw_only=True)
class Admitted:
    """A batch of a split, before the transforms.

    Attributes:
        bundle: the records that count.
        ids: their ids, to be stored; none if records have no ids.
        late: records that are too late to be deduplicated.
        failures: records that could not be read, as elements, if the read has an output for them.
        dead: records that could not be read, or have no id; `SourceStage.process` adds them to its outputs.
        watermark_us: that of the split behind the batch, in microseconds.
        status: of the split behind the batch.
    """

    bundle: Bundle
    ids: Sequence[NewId] = ()
    late: Sequence[LateArrival] = ()
    dead: Sequence[DeadLetter] = ()
    failures: Bundle | None = None
    watermark_us: int
    status: SplitStatus


def watermark_behind(
    batch: SourceBatch, watermark_us: int, *, end_us: int = MAX_TIMESTAMP_US
) -> int:
    """The watermark of a split behind a batch, in microseconds; it never goes back.

    Args:
        batch: as the reader returned it.
        watermark_us: that of the split before it, in microseconds.
        end_us: where event time has come, at least, when there will never be more: at the end of time, unless an
            engine leaves that to another.
    """
    is_finished = batch.status is SplitStatus.FINISHED
    return max(watermark_us, end_us if is_finished else batch.watermark_us)


def checked_signs(batch: SourceBatch, source: Source, *, where: str) -> Sequence[int] | None:
    """The signs of a batch; None where the source retracts nothing.

    Args:
        batch: as the reader returned it.
        source: that it is of.
        where: names the read, for errors.

    Raises:
        InputError: there are more or fewer than records, one is neither +1 nor -1, or the source does not say that it
            retracts records.
    """
    signs, size = batch.signs, len(batch.values)
    if signs is None:
        return RepeatedColumn(+1, size) if source.emits_retractions else None
    if len(signs) != size:
        raise InputError(
            f"{where} was given {size} records by its source, and {len(signs)} signs",
            hint="a reader gives a sign for each record, +1 or -1, or signs=None where all are +1",
        )
    kinds = set(np.unique(signs.array).tolist() if isinstance(signs, IntColumn) else signs)
    if not kinds <= {+1, -1}:
        raise InputError(
            f"{where} was given a record with a sign of {min(kinds - {+1, -1})!r} by its source",
            hint="a sign is +1, or -1 where the record retracts an equal one that was handed over before",
        )
    if source.emits_retractions:
        return signs
    if -1 in kinds:
        raise InputError(
            f"{where} was given a retraction by its source, which does not say that it retracts records",
            detail="what follows was built for records that stay; record: "
            f"{shown(batch.values[list(signs).index(-1)])}",
            hint=f"override emits_retractions with True in class {type(source).__name__}",
        )
    return None


def release_sources(graph: PipelineGraph) -> None:
    """Have the sources of a pipeline let go of what they hold in the driver: its run has ended.

    Args:
        graph: the pipeline.
    """
    for source in graph.sources():
        source.release()


class SourceStage:
    """One stage that begins with a read, ready to run; not shared between threads.

    Args:
        plan: of the whole pipeline.
        stage: the stage of the plan to run.
        tries: how often a record on which user code fails is tried; see `StageExecutor`.
    """

    def __init__(self, plan: ExecutionPlan, stage: Stage, *, tries: int | None = None) -> None:
        self.name, self.read = stage.name, stage.read
        self._root, self._tries = stage.root, tries
        self.executor = StageExecutor(plan, stage, tries=tries)
        self._tracing = None if plan.lineage is None else Tracing(plan.lineage)
        #: Deduplicates what is read; None: records have no ids.
        self.deduplicator: Deduplicator | None = None
        if self.read.record_ids is not None:
            self.deduplicator = Deduplicator(stage.root, tries=tries)
        #: Whether a grouping behind it follows a percentile, for which its splits need a `ProgressSketch`.
        self.is_sketched = any(percentile_of(plan.graph, group) for group in stage.groups)

    def try_first(self, trial: Trial | None) -> None:
        """Run user code on trial before it is run; None: run it at once."""
        self.executor.trial = trial

    def setup(self) -> None:
        """Call the setup of the user's code on this worker."""
        self.executor.setup()

    def teardown(self) -> None:
        """Call the teardown of the user's code."""
        self.executor.teardown()

    def ids_in_memory(self) -> SplitIds | None:
        """The ids of a split of which nothing is read yet, in memory; None: records have no ids."""
        return None if self.deduplicator is None else SplitIds(self.deduplicator)

    def sketch(self) -> ProgressSketch | None:
        """The sketch of a split of which nothing is read yet; None: nothing follows a percentile of it."""
        return ProgressSketch() if self.is_sketched else None

    def admit(
        self,
        batch: SourceBatch,
        *,
        watermark_us: int,
        ids: SeenBefore | None,
        sketch: ProgressSketch | None = None,
        split: Any = None,
    ) -> Admitted:
        """Take a batch in: which of its records count, and where the split is behind it.

        Args:
            batch: as the reader returned it.
            watermark_us: that of the split before it, in microseconds.
            ids: the ids of the split; None: records have none.
            sketch: of the split; is given the event times of the records that count.
            split: that it was read from, for lineage.

        Raises:
            InputError: a record was set aside that may not be left out, or the signs are not what they can be.
            TransformError: a record has no id, and may not be left out.
        """
        signs = checked_signs(batch, self.read.source, where=str(self._root))
        bundle = Bundle(batch.values, batch.timestamps_us, signs=signs)
        failures, batch = self._failures(batch)
        admitted = Admitted(
            bundle=bundle,
            dead=letters_set_aside(batch, self._root, tries=self._tries),
            failures=failures,
            watermark_us=watermark_behind(batch, watermark_us),
            status=batch.status,
        )
        if ids is not None:
            with RunningAs(self.name):
                found = ids.deduplicate(bundle, watermark_us)
            admitted = attrs.evolve(
                admitted,
                bundle=found.bundle,
                ids=found.ids,
                late=found.late,
                dead=[*admitted.dead, *found.dead],
            )
        if sketch is not None:
            sketch.add(admitted.bundle.timestamps_us)
        if self._tracing is not None:
            origin = SplitOrigin.of(self.name, split, batch.position)
            admitted = attrs.evolve(admitted, bundle=self._tracing.read(admitted.bundle, origin))
        return admitted

    def process(self, admitted: Admitted, clocks: StageClocks) -> StageOutputs:
        """Run the transforms over a batch; its dead letters are all that have come of the batch, in its order.

        Args:
            admitted: the batch.
            clocks: of the stage, before the batch.
        """
        outputs = self.executor.process(admitted.bundle, clocks)
        outputs.dead[:0] = admitted.dead
        if admitted.failures is not None:
            failed = self.executor.process(admitted.failures, clocks, tag=FAILURES)
            outputs.add(failed)
            outputs.dead += failed.dead
        return outputs

    def _failures(self, batch: SourceBatch) -> tuple[Bundle | None, SourceBatch]:
        """The records that were set aside and have an output, and the batch without them."""
        handling = self.read.handling
        if handling is None or not batch.set_aside:
            return None, batch
        bad = [handling.bad_record(each, self.name) for each in batch.set_aside]
        found = [
            (
                failure,
                MIN_TIMESTAMP_US if aside.timestamp_us is None else aside.timestamp_us,
                aside.sign,
            )
            for aside, failure in zip(batch.set_aside, bad, strict=True)
            if failure is not None
        ]
        left = [aside for aside, failure in zip(batch.set_aside, bad, strict=True) if not failure]
        if not found:
            return None, batch
        values, times_us, signs = map(list, zip(*found, strict=True))
        failures = Bundle(values, times_us)
        if self.read.source.emits_retractions:
            failures.signs = signs
        return failures, attrs.evolve(batch, set_aside=left)
