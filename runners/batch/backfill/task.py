"""BackfillTask: what a backfill does with one split, or with one key range; knows no Spark.

Input is taken in as in a batch, with the watermark at the beginning of time, so nothing is late.  Then event time
advances to where the sources are, and no further: the timers that are due by then fire, and the rest (cells, timers,
ids, watermarks) is what a stream would have, had it been paused there.  Processing time does not move meanwhile; what
waits for it is left to the stream.

**Invariants**

* What a task sends is the same whenever it is run again, in the same order, however much memory there is: input is
  taken in part by part of the key range, and there by sender and number, not as it comes (`key_parts.py`).
* A key range commits nothing before it has seen all that was sent to it and how far every sender has come.
* Of each part of a key range everything is committed at once, and once; of several, one after the other.

Dataflow Model, section 2.4; ADR 0022.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import attrs

from dataflow.graph import Read
from runners.batch.backfill.key_parts import PARTS, KeyParts
from runners.batch.backfill.left_state import LeftState
from runners.batch.backfill.split_reader import SplitReader
from runners.batch.backfill.writer import BackfillWriter
from runners.batch.deadly_code import UNWATCHED, CodeWatch
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.batch.letter_digests import Repeated
from runners.batch.spill.spilled_groups import SPILL_BYTES
from runners.batch.tasks import BUNDLE_RECORDS
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import Cell, CellId, window_holds
from runners.core.ground.dead_letters import letters_set_aside
from runners.core.ground.timers import Timers
from runners.core.partials.lifting import Partial
from runners.core.stages.deduplication import Deduplicator, SplitIds
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.plan import ExecutionPlan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.errors import BackfillError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import Store
from runners.stored.partials import decode_partials
from runners.stored.places import ReadSoFar, SplitMark, decode_split
from windowing.timestamps import MIN_TIMESTAMP_US

#: Records of a key range that are processed together, about.
BATCH_RECORDS = 10_000
#: Timers fired in one go.
BUNDLE_TIMERS = 10_000


@attrs.frozen(kw_only=True)
class BackfillPlan:
    """What all tasks of a backfill know.

    ``senders``: all ranges of the stages that feed a grouping, by its label.
    ``until_us``: the point, an event time; None: as far as there is anything.
    ``now_us``: processing time.
    ``tries``: how often a record that makes user code fail is tried; see `StageExecutor`.
    ``nondeterministic``: a transform that would not emit the same again; None: there is none.
    ``batch_records``: of a key range, processed together; the same for all attempts, as the output depends on it.
    """

    job: str
    layout: Layout
    senders: dict[str, frozenset[RangeId]]
    until_us: int | None
    now_us: int
    tries: int | None
    nondeterministic: str | None = None
    batch_records: int = BATCH_RECORDS


class Sent(NamedTuple):
    """Partials from one range to another."""

    sender: RangeId
    number: int
    blob: bytes


class SenderProgress(NamedTuple):
    """How far a range has come; sent after all its partials, or before them, but not in place of them."""

    sender: RangeId
    watermark_us: int
    #: Whether nothing will ever come from there, so that it does not hold the watermark back.
    is_finished: bool


#: The number of a target, and what is sent to it.
Shipment = tuple[int, Sent | SenderProgress]


def input_watermark_us(progress: Iterable[SenderProgress]) -> int:
    """How far event time has come, by the reports of all senders.

    Where all are finished it is the latest that any of them ever reported: the end of time is left to the stream.
    """
    by_state: dict[bool, list[int]] = {True: [], False: []}
    for each in progress:
        by_state[each.is_finished].append(each.watermark_us)
    return min(by_state[False]) if by_state[False] else max(by_state[True])


class BackfillTask:
    """One attempt at one range.

    Args:
        backfill: the backfill that it belongs to.
        plan: loaded for this attempt, so that no two share the user's objects.
        range_id: the range.
        store: closed by the task.
        owner: unique among the attempts.
        spill_bytes: how much of a key range to keep in memory, in bytes of pickles; attempts may differ in it.
        watch: watches the user's code.
    """

    def __init__(
        self,
        backfill: BackfillPlan,
        plan: ExecutionPlan,
        range_id: RangeId,
        store: Store,
        owner: str,
        spill_bytes: int = SPILL_BYTES,
        watch: CodeWatch = UNWATCHED,
    ) -> None:
        self._backfill, self._plan, self._range_id = backfill, plan, range_id
        self._spill_bytes, self._watch = spill_bytes, watch
        self._stage = plan.stages[range_id.computation]
        self._gatherer = Gatherer(plan, self._stage, backfill.layout, PARTS)
        root = self._stage.root
        self._writer = BackfillWriter(
            store,
            backfill.job,
            range_id,
            owner,
            repeated=Repeated.by(root.operation),
            where=str(root),
        )
        self._number = 0
        self._clocks = StageClocks(
            watermark_us=MIN_TIMESTAMP_US,
            output_watermark_us=MIN_TIMESTAMP_US,
            now_us=backfill.now_us,
        )

    def read_split(self, split: bytes) -> Iterator[Shipment]:
        """Read a split up to the point, and report how far that is.

        Raises:
            BackfillError: a receiver needs what was sent before and cannot be produced again.
            UnrepeatableError: there is less than there was.
        """
        with self._writer as writer, ExitStack() as stack:
            if writer.is_finished and not self._gatherer.is_needed:
                return
            self._check_repeatable()
            operation = self._stage.root.operation
            assert isinstance(operation, Read)
            ids = None
            if operation.record_ids is not None:
                ids = SplitIds(Deduplicator(self._stage.root, tries=self._backfill.tries))
            # A reader that continues in the middle does not know the ids of what came before.
            is_resumable = not self._gatherer.is_needed and ids is None
            reader = SplitReader(
                operation.source.repeatable(),
                decode_split(split),
                begin=writer.mark if is_resumable else SplitMark(),
                end=writer.mark if writer.is_finished else None,
                until_us=self._backfill.until_us,
                where=str(self._stage.root),
                max_ahead_us=operation.max_ahead_us,
                began_us=self._backfill.now_us,
            )
            stack.callback(reader.close)
            if is_resumable:
                writer.resume()
            executor = StageExecutor(self._plan, self._stage, tries=self._backfill.tries)
            executor.trial = self._watch.trial
            stack.callback(executor.teardown)
            executor.setup()
            yield from self._read(reader, executor, ids)
            yield from self._sent(self._gatherer.flush())
            if ids is not None:
                kept = ids.kept(reader.watermark_us)
                writer.left = {"record_ids": {self._range_id: kept}}
            self._commit(reader, is_last=True)
            yield from self._report(reader.watermark_us, is_finished=reader.is_source_finished)

    def _read(
        self, reader: SplitReader, executor: StageExecutor, ids: SplitIds | None
    ) -> Iterator[Shipment]:
        writer = self._writer
        written = writer.read_so_far.records
        while True:
            # Not beyond the rows that are written already: a bundle is either written or not.
            unwritten = reader.records >= written
            if written and reader.records == written:
                writer.check_sent(self._gatherer.digests())
            records_max = BUNDLE_RECORDS if unwritten else written - reader.records
            batch = reader.read(min(BUNDLE_RECORDS, records_max))
            if batch is None:
                return
            bundle = Bundle(batch.values, batch.timestamps_us)
            deduplicated = (
                None if ids is None else ids.deduplicate(bundle, self._clocks.watermark_us)
            )
            with self._watch.at_work():
                outputs = executor.process(
                    bundle if deduplicated is None else deduplicated.bundle,
                    self._clocks,
                )
            aside = letters_set_aside(batch, self._stage.root, tries=self._backfill.tries)
            outputs.dead[:0] = [*aside, *(deduplicated.dead if deduplicated is not None else ())]
            yield from self._sent(self._gatherer.add(outputs.groups))
            if not unwritten:
                writer.pass_over(outputs.dead)
                continue
            writer.write(outputs.tables, outputs.dead)
            if writer.is_full:
                self._commit(reader, is_last=False)

    def _commit(self, reader: SplitReader, *, is_last: bool) -> None:
        self._writer.reached = SplitMark(
            watermark_us=reader.watermark_us,
            is_source_finished=reader.is_source_finished,
            until_us=self._backfill.until_us,
            now_us=self._backfill.now_us,
        )
        self._writer.commit(
            ReadSoFar(reader.records, reader.position),
            is_last=is_last,
            sent=self._gatherer.digests(),
        )

    def group(self, shipments: Iterable[Sent | SenderProgress]) -> Iterator[Shipment]:
        """Take in everything, fire what is due, and leave the rest to the stream.

        Raises:
            BackfillError: a receiver needs what was sent before and cannot be produced again.
        """
        with self._writer as writer, ExitStack() as stack:
            if writer.is_finished and not self._gatherer.is_needed:
                return
            self._check_repeatable()
            written, first = writer.read_so_far.records, 0
            if not self._gatherer.is_needed:
                writer.resume()
                first = written
            grouping = GroupingStage(
                self._plan, self._stage, is_replay=True, tries=self._backfill.tries
            )
            grouping.try_first(self._watch.trial)
            parts = KeyParts(first=first, spill_bytes=self._spill_bytes)
            stack.callback(parts.close)
            watermark_us = self._take_in(shipments, parts)
            stack.callback(grouping.teardown)
            grouping.setup()
            left, hold_us = LeftState(self._stage.name, grouping.codec), watermark_us
            for batch in parts.batches(self._backfill.batch_records, cut=written):
                cells: dict[CellId, Cell] = {}
                timers = Timers()
                is_written = batch.end <= written
                steps = self._steps(grouping, batch.blobs, cells, timers, watermark_us)
                for step in self._watch.steps(steps):
                    yield from self._followed(step, is_written=is_written)
                if batch.end == written:
                    writer.check_sent(self._gatherer.digests())
                holds_us = [us for item in cells.items() for _, us in window_holds(*item)]
                hold_us = min([hold_us, *holds_us])
                if not is_written and not writer.is_finished:
                    left.add(cells, timers)
                    if writer.is_full or left.size_bytes > self._spill_bytes:
                        self._leave(left, batch.end)
            yield from self._sent(self._gatherer.flush())
            reached = {self._range_id: watermark_us}
            percentiles_us = {} if grouping.percentile is None else reached
            self._leave(left, PARTS, watermarks_us=reached, percentiles_us=percentiles_us)
            yield from self._report(hold_us)

    def _take_in(self, shipments: Iterable[Sent | SenderProgress], parts: KeyParts) -> int:
        """Take in all input, and return how far event time has come."""
        progress: dict[RangeId, SenderProgress] = {}
        for each in shipments:
            if isinstance(each, SenderProgress):
                progress[each.sender] = each
            else:
                parts.take(each.sender, each.number, each.blob)
        assert progress.keys() == self._backfill.senders[self._stage.name], progress.keys()
        return input_watermark_us(progress.values())

    def _steps(
        self,
        grouping: GroupingStage,
        blobs: list[bytes],
        cells: dict[CellId, Cell],
        timers: Timers,
        watermark_us: int,
    ) -> Iterator[Step]:
        """The output for some keys; their cells and timers are then as the stream is to find them."""
        partials: list[Partial] = []
        while blobs:
            partials += decode_partials(blobs.pop())
            if len(partials) >= self._backfill.batch_records or not blobs:
                step = grouping.add(cells, partials, self._clocks)
                partials = []
                yield _noted(step, timers)
        # Event time advances to where the sources are.
        clocks = attrs.evolve(self._clocks, watermark_us=watermark_us, percentile_us=watermark_us)
        while due := timers.pop_due(clocks, BUNDLE_TIMERS):
            yield _noted(grouping.fire_timers(cells, due, clocks), timers)

    def _followed(self, step: Step, *, is_written: bool) -> Iterator[Shipment]:
        assert not step.effects.late
        if is_written:
            self._writer.pass_over(step.outputs.dead)
        else:
            self._writer.write(step.outputs.tables, step.outputs.dead)
        return self._sent(self._gatherer.add(step.outputs.groups))

    def _leave(self, left: LeftState, parts: int, **at_last: Any) -> None:
        """Commit what is to be left of the parts before this one, as far as that is not done."""
        self._writer.left = {**left.take(), **at_last}
        sent = self._gatherer.digests()
        self._writer.commit(ReadSoFar(parts), is_last=bool(at_last), sent=sent)

    def _check_repeatable(self) -> None:
        """Refuse to repeat where a receiver may have a part of the output, from an attempt that no longer exists."""
        rolling = self._backfill.nondeterministic
        if rolling is not None and self._writer.has_begun and self._gatherer.is_needed:
            raise BackfillError(
                f"{self._range_id} of job {self._backfill.job!r} has been worked off before, and cannot be once more",
                detail=f"{rolling} is marked as nondeterministic: run again, it would not say what it has said",
                hint="start over with fresh=True",
            )

    def _sent(self, packed: Iterable[tuple[int, bytes]]) -> Iterator[Shipment]:
        for target, blob in packed:
            self._number += 1
            yield target, Sent(self._range_id, self._number, blob)

    def _report(self, watermark_us: int, *, is_finished: bool = False) -> Iterator[Shipment]:
        """Report to every range that is fed from here how far this one is."""
        layout = self._backfill.layout
        progress = SenderProgress(self._range_id, watermark_us, is_finished)
        for label in dict.fromkeys(group.label for group in self._stage.groups):
            for index in sorted(layout.wanted[label]):
                yield layout.offsets[label] + index, progress


def _noted(step: Step, timers: Timers) -> Step:
    for timer, fire_us in step.effects.timers.items():
        timers.set(timer, fire_us)
    return step
