"""BackfillEnd: the tasks of a backfill go as far as the sources are, and leave the rest to a stream.

Input is taken in as in a batch, with the watermark at the beginning of time, so nothing is late.  Then event time
advances to where the sources are, and no further: the timers that are due by then fire, and the rest (cells, timers,
ids, watermarks) is what a stream would have, had it been paused there.  Processing time does not move meanwhile; what
waits for it is left to the stream.

**Invariants**

* What a task sends is the same whenever it is run again, in the same order, however much memory there is: input is
  taken in part by part of the key range, and there by sender and number, not as it comes (`key_parts.py`).
* A key range commits nothing before it has seen all that was sent to it and how far every sender has come.
* Of each part of a key range everything is committed at once, and once; of several, one after the other.  Pages alone
  may be committed before, as nothing finds them without the cell that they are of, and another attempt makes the same.

Views of side inputs, and elements that wait for them, are put into pages in a file (`FiledCells`) where much was sent
to a part, and left to the stream in these.  Whether they are follows from what was sent, and not from memory, as the
order in which user code finds what is in a view follows from that.

Dataflow Model, section 2.4; ADR 0022.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import attrs

from dataflow.errors import DataflowError
from dataflow.source import SourceBatch
from runners.batch import range_task
from runners.batch.backfill.key_parts import PARTS, KeyParts, PartBatch
from runners.batch.backfill.left_state import LeftState
from runners.batch.backfill.split_reader import SplitReader
from runners.batch.backfill.writer import BackfillWriter
from runners.batch.letter_digests import Repeated
from runners.batch.range_task import Portion, RangeTask, Shipment
from runners.batch.spill.filed_cells import FiledCells, PageFile
from runners.batch.spill.spilled_groups import PAGE_BYTES, SPILL_BYTES
from runners.core.open_windows.choice import opened
from runners.core.open_windows.open_windows import Arrival, OpenWindows
from runners.core.partials.partial import Partial
from runners.core.stages.deduplication import SplitIds
from runners.core.stages.entries import Changes
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.errors import BackfillError
from runners.millwheel.model.ids import RangeId
from runners.stored.partials import decode_partials
from runners.stored.places import ReadSoFar, SplitMark, decode_split
from runners.stored.runs import REACHED, decode_shipped, encode_reached, encode_sent
from windowing.timestamps import MIN_TIMESTAMP_US

#: Records of a key range that are processed together, about.
BATCH_RECORDS = 10_000
#: Timers fired in one go.
BUNDLE_TIMERS = 10_000
#: What can be in pages is put there where so much was sent, in bytes; objects take some seven times as much.
IN_PAGES_BYTES = SPILL_BYTES // 4
#: What is put into pages is taken in by steps of so many bytes, about.
STEP_BYTES = 1 << 20


class SenderProgress(NamedTuple):
    """How far event time has come in a range; sent after all its partials, or before them, but not in place of them.

    Attributes:
        is_finished: whether nothing will ever come from there, so that it does not hold the watermark back.
    """

    watermark_us: int
    is_finished: bool


def input_watermark_us(progress: Iterable[SenderProgress]) -> int:
    """How far event time has come, by the reports of all senders.

    Where all are finished it is the latest that any of them ever reported: the end of time is left to the stream.
    """
    by_state: dict[bool, list[int]] = {True: [], False: []}
    for each in progress:
        by_state[each.is_finished].append(each.watermark_us)
    return min(by_state[False]) if by_state[False] else max(by_state[True])


@attrs.frozen(kw_only=True)
class BackfillEnd:
    """How the tasks of a backfill end.

    Attributes:
        senders: all ranges of the stages that feed a grouping, by its label.
        until_us: the point, an event time; None: as far as there is anything.
        now_us: processing time.
        batch_records: of a key range, processed together; the same for all attempts, as the output depends on it.
        in_pages_bytes: see `IN_PAGES_BYTES`; likewise.
    """

    senders: dict[str, frozenset[RangeId]]
    until_us: int | None
    now_us: int
    batch_records: int = BATCH_RECORDS
    in_pages_bytes: int = IN_PAGES_BYTES

    @property
    def parts(self) -> int | None:
        """Receivers take their input part by part."""
        return PARTS

    @property
    def while_input(self) -> StageClocks:
        """Event time is at its beginning, and processing time where the backfill began."""
        return StageClocks(
            watermark_us=MIN_TIMESTAMP_US,
            output_watermark_us=MIN_TIMESTAMP_US,
            now_us=self.now_us,
        )

    @property
    def repeat_error(self) -> type[DataflowError]:
        """No other attempt of this backfill may succeed."""
        return BackfillError

    def writer(self, task: RangeTask) -> BackfillWriter:
        """Every range leaves something in the store, whether it writes rows or not."""
        return BackfillWriter(
            task.connect(),
            task.settings.job,
            task.range_id,
            task.owner,
            repeated=Repeated.by(task.stage.root.operation),
            where=task.where,
        )

    def reading(self, task: RangeTask, split: bytes, *, is_resumable: bool) -> "ReadToPoint":
        """The split up to the point, or up to where it was read before."""
        return ReadToPoint(self, task, split, is_resumable=is_resumable)

    def groups(self, task: RangeTask, grouping: GroupingStage) -> "GroupsInParts":
        """The groups of the range, part by part."""
        return GroupsInParts(self, task, grouping)

    def content(self, sender: RangeId, number: int, blob: bytes) -> bytes:
        """The blob, from where it comes, and as which, so that receivers can take all of them in in one order."""
        return encode_sent((sender.computation, sender.index), number, blob)


def _writer_of(task: RangeTask) -> BackfillWriter:
    assert isinstance(task.writer, BackfillWriter)
    return task.writer


def _reports(
    task: RangeTask, watermark_us: int, *, is_finished: bool = False
) -> Iterator[Shipment]:
    """Report to every range that is fed from here how far this one is."""
    layout = task.settings.layout
    sender = task.range_id.computation, task.range_id.index
    progress = encode_reached(sender, watermark_us, is_finished=is_finished)
    for label in dict.fromkeys(group.label for group in task.stage.groups):
        for index in sorted(layout.wanted[label]):
            yield layout.offsets[label] + index, progress


class ReadToPoint:
    """A split, read up to the point at which the stream is to go on; how far that is, is reported to receivers.

    Args:
        end: of the backfill.
        task: the task of the split.
        split: of the source, as stored bytes.
        is_resumable: whether to go on where the commits of earlier attempts end.
    """

    def __init__(
        self, end: BackfillEnd, task: RangeTask, split: bytes, *, is_resumable: bool
    ) -> None:
        self._end, self._task, self._writer = end, task, _writer_of(task)
        read = task.stage.read
        self._reader = SplitReader(
            read.source.repeatable(),
            decode_split(split),
            begin=self._writer.mark if is_resumable else SplitMark(),
            end=self._writer.mark if self._writer.is_finished else None,
            until_us=end.until_us,
            where=str(task.stage.root),
            max_ahead_us=read.max_ahead_us,
            began_us=end.now_us,
            fence=self._writer.token,
        )

    @property
    def records(self) -> int:
        """How many records are read, from the beginning of the split on."""
        return self._reader.records

    @property
    def position(self) -> Any:
        """Where the stream reads on."""
        return self._reader.position

    @property
    def bundle_max(self) -> int:
        """How many records to read in one go: receivers of parts take rows, also of columns."""
        return range_task.BUNDLE_RECORDS

    def read(self, records_max: int) -> SourceBatch | None:
        """At most so many more records, at least one; None: the split is read up to the point.

        Raises:
            InputError: the input is malformed.
            UnrepeatableError: there is less than there was.
        """
        batch = self._reader.read(records_max)
        self._writer.reached = SplitMark(
            watermark_us=self._reader.watermark_us,
            is_source_finished=self._reader.is_source_finished,
            until_us=self._end.until_us,
            now_us=self._end.now_us,
        )
        return batch

    def finish(self, ids: SplitIds | None) -> None:
        """Leave the ids that the stream may still compare records with."""
        if ids is not None:
            kept = ids.kept(self._reader.watermark_us)
            self._writer.left = {"record_ids": {self._task.range_id: kept}}

    def reports(self) -> Iterable[Shipment]:
        """How far event time has come in the split."""
        reader = self._reader
        return _reports(self._task, reader.watermark_us, is_finished=reader.is_source_finished)

    def close(self) -> None:
        """Release the resources of the source."""
        self._reader.close()


class GroupsInParts:
    """The groups of a key range, part by part: what is due is fired, and the rest is left to the stream.

    Args:
        end: of the backfill.
        task: the task of the range.
        grouping: its stage.
    """

    def __init__(self, end: BackfillEnd, task: RangeTask, grouping: GroupingStage) -> None:
        self._end, self._task, self._writer = end, task, _writer_of(task)
        self._grouping = grouping
        #: How many parts earlier attempts have committed.
        self._written = self._writer.read_so_far.records
        first = 0
        if not task.gatherer.is_needed:
            self._writer.resume()
            first = self._written
        self._parts = KeyParts(first=first, spill_bytes=task.settings.spill_bytes)
        self._left = LeftState(task.stage.name, grouping.codec)
        #: How far event time has come, and how far behind that what is open holds it.
        self._watermark_us = self._hold_us = MIN_TIMESTAMP_US

    def portions(self, contents: Iterable[bytes]) -> Iterator[Portion]:
        """Everything, in the order of the parts; what is to be left of some is committed before the next ones."""
        self._take_in(contents)
        for batch in self._parts.batches(self._end.batch_records, cut=self._written):
            with closing(PageFile()) as file:
                cells = self._cells(batch, file)
                windows = opened(self._grouping, cells)
                is_written = batch.end <= self._written
                yield Portion(self._steps(batch.blobs, windows, cells), is_written=is_written)
                if batch.end == self._written:
                    self._writer.check_sent(self._task.gatherer.digests())
                if windows.hold_us is not None:
                    self._hold_us = min(self._hold_us, windows.hold_us)
                if not is_written and not self._writer.is_finished:
                    self._keep_what_is_left(windows, cells)
                    is_much = self._left.size_bytes > self._task.settings.spill_bytes
                    if self._writer.is_full or is_much:
                        self._leave(batch.end)

    def finish(self) -> None:
        """Commit what is left of the last parts, and how far event time has come."""
        reached = {self._task.range_id: self._watermark_us}
        percentiles_us = {} if self._grouping.percentile is None else reached
        self._leave(PARTS, watermarks_us=reached, percentiles_us=percentiles_us)

    def reports(self) -> Iterable[Shipment]:
        """How far event time has come behind this range."""
        return _reports(self._task, self._hold_us)

    def close(self) -> None:
        """Delete the file."""
        self._parts.close()

    def _take_in(self, contents: Iterable[bytes]) -> None:
        """Take in all input, and how far event time has come."""
        progress: dict[RangeId, SenderProgress] = {}
        for content in contents:
            kind, (computation, index, *fields) = decode_shipped(content)
            sender = RangeId(computation, index)
            if kind == REACHED:
                watermark_us, is_finished = fields
                progress[sender] = SenderProgress(watermark_us, is_finished)
            else:
                number, blob = fields
                self._parts.take(sender, number, blob)
        assert progress.keys() == self._end.senders[self._task.stage.name], progress.keys()
        self._watermark_us = self._hold_us = input_watermark_us(progress.values())

    def _cells(self, batch: PartBatch, file: PageFile) -> FiledCells | None:
        """The cells of some parts, where they are to be in pages; None: all of them are in memory."""
        grouping = self._grouping
        if not grouping.grows_in_pages:
            return None
        if batch.size_bytes <= self._end.in_pages_bytes:
            grouping.keep_in_memory()
            return None
        cells = FiledCells(file, self._task.settings.spill_bytes // 2)
        grouping.keep_in_pages(PAGE_BYTES, cells.need_pages, cells.changed)
        return cells

    def _keep_what_is_left(self, windows: OpenWindows, cells: FiledCells | None) -> None:
        """Keep what the stream is to find, until it is committed; pages are committed when they are many."""
        for page_id, blob in () if cells is None else cells.evicted():
            self._left.add_page(page_id, blob)
            self._leave_pages()
        for entry in windows.spill():
            assert isinstance(entry, Changes)
            self._left.add(entry)
            self._leave_pages()

    def _leave_pages(self) -> None:
        if self._left.pages_bytes > self._task.settings.spill_bytes:
            self._writer.commit_pages(self._left.take_pages())

    def _steps(
        self, blobs: Iterable[bytes], windows: OpenWindows, cells: FiledCells | None
    ) -> Iterator[Step]:
        """The output for some keys; their windows are then as the stream is to find them."""
        for step in self._all_steps(blobs, windows, is_in_pages=cells is not None):
            if cells is not None:
                cells.changed(step.effects.touched)
            yield step

    def _all_steps(
        self, blobs: Iterable[bytes], windows: OpenWindows, *, is_in_pages: bool
    ) -> Iterator[Step]:
        clocks, partials, size_bytes = self._end.while_input, list[Partial](), 0
        has_steps = is_in_pages or self._grouping.passes_on
        for blob in blobs:
            partials += decode_partials(blob, self._grouping.combiners)
            size_bytes += len(blob)
            is_much = has_steps and size_bytes >= STEP_BYTES
            if len(partials) >= self._end.batch_records or is_much:
                arrival = Arrival(partials)
                partials, size_bytes = [], 0
                yield windows.take([arrival], clocks)
        if partials:
            yield windows.take([Arrival(partials)], clocks)
        # Event time advances to where the sources are.
        clocks = attrs.evolve(
            clocks, watermark_us=self._watermark_us, percentile_us=self._watermark_us
        )
        while (step := windows.advance(clocks, timers_max=BUNDLE_TIMERS)) is not None:
            yield step

    def _leave(self, parts: int, **at_last: Any) -> None:
        """Commit what is to be left of the parts before this one, as far as that is not done."""
        self._writer.left = {**self._left.take(), **at_last}
        sent = self._task.gatherer.digests()
        packings = self._task.gatherer.packings()
        self._writer.commit(
            ReadSoFar(parts),
            is_last=bool(at_last),
            sent=sent,
            packings=packings,
            metrics=self._task.counted(),
        )
