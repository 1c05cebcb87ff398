"""BatchEnd: the tasks of a batch read all input to its end, fire every window, and leave nothing.

Nothing is late in a batch: the watermark is at the beginning of time until all input is there, and then at its end.
Stages downstream receive no watermark before that, so what is emitted cannot be late for them either.

* A key range commits once, everything together: the order in which its panes come depends on the order in which the
  shuffle delivers, so no later attempt could distinguish a part of them from the rest.
* A split commits part by part (`range_writer.py`).
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from dataflow.errors import DataflowError, InputError
from dataflow.source import SourceBatch, SourceReader, SplitStatus, open_split
from runners.batch import range_task
from runners.batch.digest_writer import DigestWriter
from runners.batch.letter_digests import Repeated
from runners.batch.range_task import Portion, RangeTask, Shipment
from runners.batch.range_writer import RangeWriter
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.stages.deduplication import SplitIds
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.stage_clocks import StageClocks
from runners.errors import UnrepeatableError
from runners.millwheel.model.ids import RangeId
from runners.stored.places import ReadSoFar, decode_split
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Records read from a source in one go where they come as columns.
BUNDLE_ROWS = 150_000

_EMPTY_READ_PAUSE_S = 0.01

_WHILE_INPUT = StageClocks(
    watermark_us=MIN_TIMESTAMP_US, output_watermark_us=MIN_TIMESTAMP_US, now_us=MIN_TIMESTAMP_US
)
_AT_THE_END = StageClocks(
    watermark_us=MAX_TIMESTAMP_US, output_watermark_us=MIN_TIMESTAMP_US, now_us=MAX_TIMESTAMP_US
)


@attrs.frozen(kw_only=True)
class BatchEnd:
    """How the tasks of a batch end.

    Attributes:
        run: of the job; None: any.
        bound: ranges that must send again what earlier runs have sent.
        fenced_wait_s: see `RangeWriter`.
    """

    run: int | None = None
    bound: frozenset[RangeId] = frozenset()
    fenced_wait_s: float | None = None

    @property
    def parts(self) -> int | None:
        """Receivers take their input as it comes."""
        return None

    @property
    def while_input(self) -> StageClocks:
        """The clocks are at the beginning of time."""
        return _WHILE_INPUT

    @property
    def repeat_error(self) -> type[DataflowError]:
        """Another attempt may find what this one has not."""
        return UnrepeatableError

    def writer(self, task: RangeTask) -> RangeWriter | DigestWriter:
        """A stage that writes nothing takes its range over at its end."""

        def take_over() -> RangeWriter:
            return RangeWriter(
                task.connect(),
                task.settings.job,
                task.range_id,
                task.owner,
                run=self.run,
                is_binding=task.range_id in self.bound,
                fenced_wait_s=self.fenced_wait_s,
                repeated=Repeated.by(task.stage.root.operation),
                where=task.where,
            )

        may_have_dead = task.settings.tries is not None or (
            task.stage.is_source and task.stage.read.source.keeps_set_aside
        )
        if not task.stage.tables and not may_have_dead and task.plan.lineage is None:
            return DigestWriter(take_over)
        return take_over()

    def reading(self, task: RangeTask, split: bytes, *, is_resumable: bool) -> "WholeSplit":
        """The whole split, or what follows the commits of earlier attempts."""
        begin = task.writer.read_so_far if is_resumable else ReadSoFar()
        source = task.stage.read.source.repeatable()
        reader = open_split(source, decode_split(split), begin.position, fence=task.writer.token)
        return WholeSplit(reader, begin, where=f"{task.stage.root}", index=task.range_id.index)

    def groups(self, task: RangeTask, grouping: GroupingStage) -> "AllGroups":
        """Every window, fired when all input is there."""
        return AllGroups(task, grouping)

    def content(self, sender: RangeId, number: int, blob: bytes) -> bytes:
        """The blob itself: in which order receivers take it in does not matter."""
        return blob


class WholeSplit:
    """A split that is read to its end, however long that takes.

    Args:
        reader: of the split, where ``begin`` is.
        begin: how far it has been read before.
        where: names the read, for errors.
        index: of the split.
    """

    def __init__(self, reader: SourceReader, begin: ReadSoFar, *, where: str, index: int) -> None:
        self._reader, self._where, self._index = reader, where, index
        self.records: int = begin.records
        self.position: Any = begin.position
        self._status = SplitStatus.ACTIVE

    @property
    def bundle_max(self) -> int:
        """How many records to read in one go."""
        return BUNDLE_ROWS if self._reader.reads_columns else range_task.BUNDLE_RECORDS

    def read(self, records_max: int) -> SourceBatch | None:
        """At most so many more records, at least one, which may be set aside; None: there are no more.

        Raises:
            InputError: the input cannot be read on, or waits for what is still to come.
        """
        while self._status is not SplitStatus.FINISHED:
            batch = self._reader.read(records_max)
            self._status, self.position = batch.status, batch.position
            self.records += batch.records
            if batch.records:
                return batch
            if self._status is not SplitStatus.FINISHED:
                self._pause()
        return None

    def finish(self, ids: SplitIds | None) -> None:
        """Keep no ids of records: no stream follows that would look for duplicates."""

    def reports(self) -> Iterable[Shipment]:
        """Report nothing: receivers know when all input is there."""
        return ()

    def close(self) -> None:
        """Release the resources of the source."""
        self._reader.close()

    def _pause(self) -> None:
        if self._status is SplitStatus.IDLE:
            raise InputError(
                f"{self._where} waits for input that is still to come, so a batch cannot end",
                detail=f"split {self._index} of the source reports that it is idle",
                hint="use the streaming runner, or a source that ends, as a watched folder does when it has the file "
                "that until=... names",
            )
        time.sleep(_EMPTY_READ_PAUSE_S)


class AllGroups:
    """The groups of a key range, all of which fire.

    Args:
        task: the task of the range.
        grouping: its stage.
    """

    def __init__(self, task: RangeTask, grouping: GroupingStage) -> None:
        self._task = task
        self._groups = SpilledGroups(grouping, _WHILE_INPUT, _AT_THE_END, task.settings.spill_bytes)

    def portions(self, contents: Iterable[bytes]) -> Iterator[Portion]:
        """All keys together: nothing of them is committed before the end."""
        yield Portion(self._groups.steps(self._task.watch.inputs(contents)))

    def finish(self) -> None:
        """Commit everything."""
        task = self._task
        task.writer.commit(is_last=True, sent=task.gatherer.digests(), metrics=task.counted())

    def reports(self) -> Iterable[Shipment]:
        """Report nothing: receivers know when all input is there."""
        return ()

    def close(self) -> None:
        """End the output: groups that are in files can be read no more."""
        self._groups.close()
