"""SourceComputation: the injector, one step at a time.

Sans-IO but for the sources' readers.  What becomes of a batch is `SourceStage`'s; here is which splits are read, and
how a batch becomes a production.  MillWheel, section 4.6.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import attrs

from dataflow.io.trusted_watermark import opened
from dataflow.metric_updates import RunningAs
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from runners.core.stages.committed_positions import CommittedPositions
from runners.core.stages.deduplication import NewId
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.source_stage import SourceStage, watermark_behind
from runners.core.stages.stage_clocks import StageClocks
from runners.core.user_code.poison import Trial
from runners.millwheel.model.counts import IdCounts
from runners.millwheel.model.guarantees import BOTH, Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import LoadMeter
from runners.millwheel.model.production import LateRecord, StoredDeadLetter
from runners.millwheel.model.signals import SignalMark, SignalNews
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.port import TakenRange
from runners.millwheel.worker.dedup.seen_ids import IdTable, SeenIds
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.sizes import StepSize
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.millwheel.worker.worker_step import WorkerStep, merged
from runners.stored.places import decode_position, decode_split, encode_position
from windowing.timestamps import MAX_TIMESTAMP_US

_LOG = logging.getLogger(__name__)

#: A watermark that moves without a record, as one that follows the clock does all the time, is a commit.  Such commits
#: are as far apart as an eighth of the time since the last record, which delays no window by much, and at most by this.
WATERMARK_INTERVAL_MAX_US = 20_000
_OF_IDLE_TIME = 8


@attrs.define
class _Split:
    """A split that is read here.

    Attributes:
        seen: the ids of the records read before, if they have ids.
        size: how many records it reads in one step.
        committed: notifies the reader of what is durable.
        position: behind what was read of it; None: at its start.
        split: as its source has it.
        read_us: the processing time of the last step with a record, in microseconds since 1970.
        moved_us: that of the last step.
    """

    owned: OwnedRange
    reader: SourceReader
    committed: CommittedPositions
    is_finished: bool
    seen: SeenIds | None
    size: StepSize
    position: Any = None
    split: Any = None
    read_us: int = 0
    moved_us: int = 0

    def moves(self, batch: SourceBatch, now_us: int) -> bool:
        """Whether a batch without records is worth a step: the watermark has moved, and not just before.

        Args:
            batch: from the reader; its watermark is that of a later step otherwise.
            now_us: the processing time, in microseconds since 1970.
        """
        if watermark_behind(batch, self.owned.watermark_us) == self.owned.watermark_us:
            return False
        interval_us = min(WATERMARK_INTERVAL_MAX_US, (now_us - self.read_us) // _OF_IDLE_TIME)
        # Whatever a clock that was put back says, the next step comes.
        return not 0 <= now_us - self.moved_us < interval_us

    def note_step(self, records: int, now_us: int) -> None:
        """Note that a step was made of so many records."""
        self.moved_us = now_us
        if records:
            self.read_us = now_us

    def close(self) -> None:
        """Release what the reader holds."""
        self.committed.close()
        self.reader.close()


class SourceComputation:
    """Reads the splits of one source that this worker owns: the paper's injector.

    Args:
        job: its name.
        plan: the pipeline.
        stage: the stage of the source, with the transforms fused to it.
        router: divides what it sends.
        ids: has the ids of records that were read before.
        tries: see `StageExecutor`.
        guarantees: those that it has.
        steps: how much it does in one step.
    """

    def __init__(
        self,
        job: str,
        plan: ExecutionPlan,
        stage: Stage,
        router: Router,
        ids: IdTable,
        *,
        tries: int | None,
        guarantees: Guarantees = BOTH,
        steps: StepLimits = STEP_LIMITS,
    ) -> None:
        self._steps = steps
        self._job, self._router, self._guarantees = job, router, guarantees
        self._source = SourceStage(plan, stage, tries=tries)
        self._ids, self.id_counts = ids, IdCounts()
        self._splits: dict[RangeId, _Split] = {}
        #: The load of the splits.
        self.meter = LoadMeter()

    def setup(self) -> None:
        """Set up the user's code on this worker."""
        self._source.setup()

    def close(self) -> None:
        """Tear the user's code down, and close the readers."""
        for split in self._splits.values():
            split.close()
        self._source.teardown()

    def take(self, taken: TakenRange) -> OwnedRange:
        """Go on reading where the last commit of the split ended."""
        row = taken.row
        assert row.split is not None
        position = None if row.position is None else decode_position(row.position)
        owned = OwnedRange.taken(
            taken,
            is_weak=not self._guarantees.strong_productions,
            remembers=self._guarantees.exactly_once,
        )
        owned.sketch = self._source.sketch()
        seen, deduplicator = None, self._source.deduplicator
        if deduplicator is not None:
            seen = SeenIds(self._ids, self._job, row.range_id, deduplicator, self.id_counts)
        opened_split = decode_split(row.split)
        reader = opened(self._source.read, opened_split, position, fence=row.token)
        where = f"{row.range_id} of job {self._job}"
        committed = CommittedPositions(self._source.read.source, reader, where=where)
        # A former owner may have died between the commit and the notification.
        committed.note(position)
        self._splits[row.range_id] = _Split(
            owned,
            reader,
            committed,
            row.is_finished,
            seen,
            StepSize(self._steps),
            position,
            opened_split,
        )
        return owned

    def release(self, range_id: RangeId) -> None:
        """Forget a split, and close its reader."""
        split = self._splits.pop(range_id)
        self.meter.forget(range_id)
        split.close()
        if split.seen is not None:
            split.seen.release()

    def on_signals(self, news: SignalNews, now_us: int) -> Iterable[WorkerStep]:
        """Pass signals on, after everything read so far; there is nothing to commit.

        Args:
            news: from the master.
            now_us: not used: no window fires here.
        """
        for split in self._splits.values():
            split.owned.act_on_signals(
                SignalMark(news.inputs.get(split.owned.range_id.computation, 0))
            )
        return ()

    def end(self, range_id: RangeId, *, is_removed: bool = False) -> WorkerStep:
        """End a split where it is: its position is kept, and no watermark waits for it any more.

        Args:
            range_id: of the split, which is owned here and not finished.
            is_removed: whether that is because its input does not have it any more.
        """
        split = self._splits[range_id]
        split.owned.watermark_us, split.is_finished = MAX_TIMESTAMP_US, True
        split.owned.is_idle = False
        log = partial(self._log_removed, range_id, split)
        ended = WorkerStep(
            ranges={range_id: split.owned},
            finished=frozenset([range_id]),
            when_committed=(log,) if is_removed else (),
        )
        return merged([ended, self._remembered(split, ())])

    def _log_removed(self, range_id: RangeId, split: _Split) -> None:
        poll = split.owned.poll
        _LOG.warning(
            "%s of job %s was removed from its input, and has ended %s; what was not read of it is lost: %s",
            range_id,
            self._job,
            "before anything was read" if split.position is None else f"at {split.position!r:.200}",
            "how much is not known" if poll is None or poll.backlog is None else poll.backlog,
        )

    def try_first(self, trial: Trial | None) -> None:
        """Run user code in the trial process before it is run here; None: at once."""
        self._source.try_first(trial)

    def unfinished(self) -> list[OwnedRange]:
        """The ranges that may have more to read."""
        return [split.owned for split in self._splits.values() if not split.is_finished]

    def notify(self) -> None:
        """Notify readers of what has become durable, and again where they have failed."""
        for split in self._splits.values():
            split.committed.notify()

    def reads_columns(self, range_id: RangeId) -> bool:
        """Whether the records of a split come as columns, of which many are little work."""
        return self._splits[range_id].reader.reads_columns

    def read(
        self,
        range_id: RangeId,
        records_max: int,
        *,
        now_us: int,
        has_read: Callable[[OwnedRange, int], None] = lambda *_: None,
    ) -> tuple[WorkerStep | None, int]:
        """Read on in one split.

        Args:
            range_id: the split, which is owned here and not finished.
            records_max: at most so many; fewer, if so many caused too large a commit.
            now_us: the processing time, in microseconds since 1970.
            has_read: called with the split and the number of records, before they are processed.

        Returns:
            The step (None if there was nothing new but a watermark that may wait) and the number of records.
        """
        split = self._splits[range_id]
        owned = split.owned
        with RunningAs(self._source.name):
            batch = split.reader.read(split.size.allowed(records_max))
        has_read(owned, batch.records)
        owned.poll = SplitPoll.of(batch, now_us, before=owned.poll)
        is_finished = batch.status is SplitStatus.FINISHED
        owned.is_idle = batch.status is SplitStatus.IDLE
        before_us = owned.watermark_us
        if not batch.records and not is_finished and not split.moves(batch, now_us):
            return None, 0
        split.note_step(batch.records, now_us)
        admitted = self._source.admit(
            batch,
            watermark_us=before_us,
            ids=split.seen,
            sketch=owned.sketch,
            split=split.split,
        )
        clocks = StageClocks.of_source(watermark_us=before_us, now_us=now_us)
        outputs = self._source.process(admitted, clocks)
        checkpoints, handed_on = self._router.outgoing(owned, outputs.groups, hold_us=before_us)
        owned.watermark_us = admitted.watermark_us
        split.is_finished, split.position = is_finished, batch.position
        self.meter.count(range_id, batch.records)
        name = self._source.name
        read = WorkerStep(
            ranges={range_id: owned},
            late=[LateRecord.of(name, arrival) for arrival in admitted.late],
            dead=[StoredDeadLetter.of(each) for each in outputs.dead],
            tables=outputs.tables,
            lineage=outputs.lineage,
            checkpoints=checkpoints,
            handed_on=handed_on,
            positions={range_id: encode_position(batch.position)},
            finished=frozenset([range_id] if is_finished else ()),
            when_committed=(partial(split.committed.note, batch.position),),
        )
        step = read
        if split.seen is not None:
            step = merged([read, self._remembered(split, admitted.ids)])
        split.size.caused(batch.records, step.nbytes)
        return step, batch.records

    def _remembered(self, split: _Split, ids: Sequence[NewId]) -> WorkerStep:
        """Keep the ids that were new, and forget those that no record can have with the watermark here."""
        if split.seen is None:
            return WorkerStep()
        range_id, watermark_us = split.owned.range_id, split.owned.watermark_us
        kept = split.seen.worth_keeping(ids, watermark_us)
        horizon_us = split.seen.collect(watermark_us)
        note_committed = partial(split.seen.note_committed, ids)
        if split.is_finished:
            split.seen.release()
        return WorkerStep(
            record_ids={range_id: kept} if kept else {},
            horizons_us={} if horizon_us is None else {range_id: horizon_us},
            when_committed=(note_committed,),
        )
