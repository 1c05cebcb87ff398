"""SourceComputation: the injector, one step at a time.

Sans-IO but for the sources' readers.  MillWheel, section 4.6; the semantics are `runners.core`'s.
"""

from collections.abc import Iterable

import attrs

from dataflow.graph import Read
from dataflow.io.source import SourceReader, SplitStatus
from dataflow.serialization import dumps, loads
from runners.core.bundle import Bundle
from runners.core.percentile_watermark import ProgressSketch, percentile_of
from runners.core.plan import ExecutionPlan, Stage
from runners.core.stage_executor import StageExecutor
from runners.millwheel.draft import Draft
from runners.millwheel.ids import RangeId
from runners.millwheel.owned_range import OwnedRange
from runners.millwheel.router import Router
from runners.millwheel.signals import SignalMark, SignalNews
from runners.millwheel.store.port import TakenRange
from windowing.timestamps import MAX_TIMESTAMP_US


@attrs.define
class _Split:
    owned: OwnedRange
    reader: SourceReader
    is_finished: bool


class SourceComputation:
    """Reads the splits of one source that this worker owns: the paper's injector."""

    def __init__(
        self, job: str, plan: ExecutionPlan, stage: Stage, router: Router, *, tries: int | None
    ) -> None:
        operation = stage.root.operation
        assert isinstance(operation, Read)
        self._job, self._router = job, router
        self._source = operation.source
        self._executor = StageExecutor(plan, stage, tries=tries)
        self._is_sketched = any(percentile_of(plan.graph, group) for group in stage.groups)
        self._splits: dict[RangeId, _Split] = {}

    def setup(self) -> None:
        """Start the life of the user's code on this worker."""
        self._executor.setup()

    def close(self) -> None:
        """End it, and close the readers."""
        for split in self._splits.values():
            split.reader.close()
        self._executor.teardown()

    def take(self, taken: TakenRange) -> OwnedRange:
        """Go on reading where the last commit of the split ended."""
        row = taken.row
        assert row.split is not None
        position = None if row.position is None else loads(row.position)
        owned = OwnedRange.taken(taken)
        owned.sketch = ProgressSketch() if self._is_sketched else None
        reader = self._source.open(loads(row.split), position)
        self._splits[row.range_id] = _Split(owned, reader, row.is_finished)
        return owned

    def release(self, range_id: RangeId) -> None:
        """Let go of a split."""
        self._splits.pop(range_id).reader.close()

    def hear(self, news: SignalNews, now_us: int) -> Iterable[Draft]:
        """Pass signals on, behind everything read so far; there is nothing to commit."""
        for split in self._splits.values():
            split.owned.act_on_signals(
                SignalMark(news.inputs.get(split.owned.range_id.computation, 0))
            )
        return ()

    def unfinished(self) -> list[OwnedRange]:
        """The ranges that may have more to read."""
        return [split.owned for split in self._splits.values() if not split.is_finished]

    def read(self, range_id: RangeId, records_max: int, *, now_us: int) -> tuple[Draft | None, int]:
        """Read on in one split; the draft (None if there was nothing) and the number of records."""
        split = self._splits[range_id]
        owned = split.owned
        batch = split.reader.read(records_max)
        is_finished = batch.status is SplitStatus.FINISHED
        owned.is_idle = batch.status is SplitStatus.IDLE
        watermark_us = MAX_TIMESTAMP_US if is_finished else batch.watermark_us
        if not batch.values and not is_finished and watermark_us <= owned.watermark_us:
            return None, 0
        outputs = self._executor.process(
            Bundle(batch.values, batch.timestamps_us),
            watermark_us=owned.watermark_us,
            now_us=now_us,
        )
        draft = Draft(self._job)
        draft.touch(owned)
        draft.keep_dead(outputs.dead)
        payloads = self._router.payloads(outputs.groups)
        draft.emit(outputs.tables, payloads, hold_us=owned.watermark_us)
        owned.watermark_us = max(owned.watermark_us, watermark_us)
        if owned.sketch is not None:
            owned.sketch.add(batch.timestamps_us)
        draft.move(owned, dumps(batch.position), is_finished=is_finished)
        split.is_finished = is_finished
        return draft, len(batch.values)
