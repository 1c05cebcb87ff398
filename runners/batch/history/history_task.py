"""HistoryTask: what a backfill does with one split, or with one key range; knows no Spark.

Input is taken in as in a batch, with the watermark at the beginning of time, so nothing is late.  Then event time comes
to where the sources are, and no further: what is due by then happens, and the rest (cells, timers, ids, watermarks) is
what a stream would have, had it been paused there.  Processing time stands still all the while; what waits for it is
left to the stream.

**Invariants**

* What a task sends is the same whenever it is run again: input is taken in by sender and number, not as it comes.
* A key range commits once, after it has seen all that was sent to it and how far every sender has come.

Dataflow Model, section 2.4; DESIGN section 8.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import attrs

from dataflow.graph import Read
from dataflow.serialization import loads
from runners.batch.gather import Gatherer
from runners.batch.history.history_writer import HistoryWriter
from runners.batch.history.split_reader import SplitReader
from runners.batch.layout import Layout
from runners.batch.range_writer import ReadSoFar
from runners.core.bundle import Bundle
from runners.core.cells import Cell, CellId, window_holds
from runners.core.grouping import GroupingStage, StageClock, Step
from runners.core.plan import ExecutionPlan
from runners.core.record_ids import RecordIdJudge, SplitIds
from runners.core.stage_executor import StageExecutor
from runners.core.timers import Timers
from runners.errors import UnrepeatableError
from runners.millwheel.cell_codec import encode_cell, encode_cell_key, encode_window
from runners.millwheel.history import SplitMark
from runners.millwheel.ids import RangeId
from runners.millwheel.production import CellWrite, TimerWrite
from runners.millwheel.store.port import Store
from windowing.timestamps import MIN_TIMESTAMP_US

#: Records read from a source in one go.
BUNDLE_RECORDS = 10_000
#: Timers fired in one go.
BUNDLE_TIMERS = 10_000


@attrs.frozen(kw_only=True)
class History:
    """What all tasks of a backfill know.

    ``senders``: all ranges of the stages that feed a grouping, by its label.
    ``until_us``: the point, an event time; None: as far as there is anything.
    ``now_us``: processing time.
    """

    job: str
    layout: Layout
    senders: dict[str, frozenset[RangeId]]
    until_us: int | None
    now_us: int
    tries: int | None


class Sent(NamedTuple):
    """Partials from one range to another."""

    sender: RangeId
    number: int
    blob: bytes


class Told(NamedTuple):
    """How far a range has come; comes after all that it has sent, or before, but not instead."""

    sender: RangeId
    watermark_us: int
    #: Whether nothing will ever come from there, so that it holds nobody back.
    is_finished: bool


#: The number of a target, and what it is sent.
Shipment = tuple[int, Sent | Told]


def input_watermark_us(told: Iterable[Told]) -> int:
    """How far event time has come, by what all senders said.

    Where all are finished it goes as far as any of them ever said: the end of time is left to the stream.
    """
    by_state: dict[bool, list[int]] = {True: [], False: []}
    for each in told:
        by_state[each.is_finished].append(each.watermark_us)
    return min(by_state[False]) if by_state[False] else max(by_state[True])


class HistoryTask:
    """One attempt at one range.

    Args:
        history: of the backfill.
        plan: loaded for this attempt, so that no two share the user's objects.
        range_id: which.
        store: closed by the task.
        owner: unique among the attempts.
    """

    def __init__(
        self, history: History, plan: ExecutionPlan, range_id: RangeId, store: Store, owner: str
    ) -> None:
        self._history, self._plan, self._range_id = history, plan, range_id
        self._stage = plan.stages[range_id.computation]
        self._gatherer = Gatherer(plan, self._stage, history.layout)
        self._writer = HistoryWriter(store, history.job, range_id, owner)
        self._number = 0
        self._clock = StageClock(
            watermark_us=MIN_TIMESTAMP_US,
            output_watermark_us=MIN_TIMESTAMP_US,
            now_us=history.now_us,
        )

    def read_split(self, split: bytes) -> Iterator[Shipment]:
        """Read a split up to the point, and say how far that is."""
        with self._writer as writer, ExitStack() as stack:
            if writer.is_finished and not self._gatherer.is_needed:
                return
            operation = self._stage.root.operation
            assert isinstance(operation, Read)
            ids = None
            if operation.record_ids is not None:
                ids = SplitIds(RecordIdJudge(self._stage.root, tries=self._history.tries))
            # Whoever goes on in the middle does not know the ids of what came before.
            is_resumable = not self._gatherer.is_needed and ids is None
            reader = SplitReader(
                operation.source.repeatable(),
                loads(split),
                begin=writer.mark if is_resumable else SplitMark(),
                end=writer.mark if writer.is_finished else None,
                until_us=self._history.until_us,
                where=str(self._stage.root),
            )
            stack.callback(reader.close)
            if is_resumable:
                writer.resume()
            executor = StageExecutor(self._plan, self._stage, tries=self._history.tries)
            stack.callback(executor.teardown)
            executor.setup()
            yield from self._read(reader, executor, ids)
            yield from self._sent(self._gatherer.flush())
            if ids is not None:
                kept = ids.kept(reader.watermark_us)
                writer.left = {"record_ids": {self._range_id: kept}}
            self._commit(reader, is_last=True)
            self._check_same_end(reader)
            yield from self._tell(reader.watermark_us, is_finished=reader.is_source_finished)

    def _read(
        self, reader: SplitReader, executor: StageExecutor, ids: SplitIds | None
    ) -> Iterator[Shipment]:
        writer = self._writer
        written = writer.read_so_far.records
        while True:
            # Not beyond what is written already: a bundle is either written or not.
            unwritten = reader.records >= written
            records_max = BUNDLE_RECORDS if unwritten else written - reader.records
            batch = reader.read(min(BUNDLE_RECORDS, records_max))
            if batch is None:
                return
            bundle = Bundle(batch.values, batch.timestamps_us)
            judged = None if ids is None else ids.judge(bundle, self._clock.watermark_us)
            outputs = executor.process(
                bundle if judged is None else judged.bundle,
                watermark_us=self._clock.watermark_us,
                now_us=self._clock.now_us,
            )
            outputs.dead[:0] = judged.dead if judged is not None else ()
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
            until_us=self._history.until_us,
            now_us=self._history.now_us,
        )
        self._writer.commit(ReadSoFar(reader.records, reader.position), is_last=is_last)

    def _check_same_end(self, reader: SplitReader) -> None:
        """Another attempt may have been first, and may have found more, or less."""
        mark = self._writer.mark
        if mark.is_end and mark.records != reader.records:
            raise UnrepeatableError(
                f"{self._stage.root} was read twice at once, up to {reader.records} records and to {mark.records}",
                hint="run the same again: the second counts",
            )

    def group(self, shipments: Iterable[Sent | Told]) -> Iterator[Shipment]:
        """Take everything in, let happen what is due, and leave the rest to the stream."""
        with self._writer as writer, ExitStack() as stack:
            if writer.is_finished and not self._gatherer.is_needed:
                return
            sent, told = [], dict[RangeId, Told]()
            for each in shipments:
                if isinstance(each, Told):
                    told[each.sender] = each
                else:
                    sent.append(each)
            assert told.keys() == self._history.senders[self._stage.name], told.keys()
            sent.sort(reverse=True)
            grouping = GroupingStage(
                self._plan, self._stage, is_replay=True, tries=self._history.tries
            )
            stack.callback(grouping.teardown)
            grouping.setup()
            cells: dict[CellId, Cell] = {}
            timers = Timers()
            while sent:
                # A list whatever they came as: what is left to the stream are cells, and nothing else.
                step = grouping.add(cells, list(loads(sent.pop().blob)), self._clock)
                yield from self._followed(step, timers)
            watermark_us = input_watermark_us(told.values())
            yield from self._let_happen(grouping, cells, timers, watermark_us)
            yield from self._sent(self._gatherer.flush())
            writer.left = self._left(grouping, cells, timers, watermark_us)
            writer.commit(is_last=True)
            holds_us = [us for item in cells.items() for _, us in window_holds(*item)]
            yield from self._tell(min([watermark_us, *holds_us]))

    def _let_happen(
        self,
        grouping: GroupingStage,
        cells: dict[CellId, Cell],
        timers: Timers,
        watermark_us: int,
    ) -> Iterator[Shipment]:
        """Event time goes to where the sources are."""
        clock = attrs.evolve(
            self._clock, watermark_us=watermark_us, percentile_watermark_us=watermark_us
        )
        while due := timers.pop_due(
            watermark_us=watermark_us,
            now_us=clock.now_us,
            percentile_watermark_us=watermark_us,
            timers_max=BUNDLE_TIMERS,
        ):
            yield from self._followed(grouping.fire_timers(cells, due, clock), timers)

    def _followed(self, step: Step, timers: Timers) -> Iterator[Shipment]:
        assert not step.effects.late
        for timer, fire_us in step.effects.timers.items():
            timers.set(timer, fire_us)
        self._writer.write(step.outputs.tables, step.outputs.dead)
        return self._sent(self._gatherer.add(step.outputs.groups))

    def _left(
        self,
        grouping: GroupingStage,
        cells: dict[CellId, Cell],
        timers: Timers,
        watermark_us: int,
    ) -> dict[str, Any]:
        name, encode = self._stage.name, grouping.codec.encode
        cell_writes = []
        for cell_id, cell in cells.items():
            key = encode(cell_id[0])
            cell_key = encode_cell_key(cell_id[1], key.encoded)
            cell_writes.append(CellWrite(name, key.hash, cell_key, encode_cell(cell)))
        timer_writes = []
        for (cell_id, window, domain), fire_us in timers.items():
            key = encode(cell_id[0])
            cell_key = encode_cell_key(cell_id[1], key.encoded)
            tag = encode_window(window)
            timer_writes.append(TimerWrite(name, key.hash, cell_key, tag, domain, fire_us))
        reached = {self._range_id: watermark_us}
        return {
            # In the order in which the store keeps them.
            "cells": sorted(cell_writes),
            "timers": sorted(timer_writes),
            "watermarks_us": reached,
            "percentiles_us": {} if grouping.percentile is None else reached,
        }

    def _sent(self, packed: Iterable[tuple[int, bytes]]) -> Iterator[Shipment]:
        for target, blob in packed:
            self._number += 1
            yield target, Sent(self._range_id, self._number, blob)

    def _tell(self, watermark_us: int, *, is_finished: bool = False) -> Iterator[Shipment]:
        """Let every range that is fed from here know how far this one is."""
        layout = self._history.layout
        told = Told(self._range_id, watermark_us, is_finished)
        for label in dict.fromkeys(group.label for group in self._stage.groups):
            for index in sorted(layout.wanted[label]):
                yield layout.offsets[label] + index, told
