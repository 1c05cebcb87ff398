"""RangeTask: one attempt at one range, which is a split of a source or a key range of a grouping; knows no Spark.

It reads or takes in, runs the stage, and ships what the stage has for later groupings: ``(target, content)``.  A batch
and a backfill are the same task with different *ends* (`End`): where a split ends, what becomes of windows that are
open then, and what is left in the store.

An attempt may be run again at any time, also after it has succeeded, when a machine is lost with its output for
others: then it ships the same again, and writes nothing that is already written (range_writer.py).

**Invariants**

* A task commits the end of its range only after it has seen all of its input.
* Before any receiver has all that a task has shipped, digests of it are committed; an attempt that ships something
  else afterwards has failed.

User code may see a record more than once, as in every engine that retries; its results count once.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import attrs

from dataflow.errors import DataflowError
from dataflow.metric_updates import MetricValues, RunningAs, collecting_each, take_updates
from dataflow.source import SourceBatch
from runners.batch.deadly_code import UNWATCHED, CodeWatch
from runners.batch.digest_writer import DigestWriter
from runners.batch.gather import Gatherer, Packed
from runners.batch.layout import Layout
from runners.batch.overflow import Overflow
from runners.batch.range_writer import RangeWriter
from runners.batch.spill.spilled_groups import SPILL_BYTES
from runners.core.partials.parts import records_in
from runners.core.stages.deduplication import SplitIds
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.plan import ExecutionPlan
from runners.core.stages.source_stage import SourceStage
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import Store
from runners.stored.places import ReadSoFar
from runners.system_clock import SystemClock

#: Records read from a source in one go, at most: as many as stay in the processor's cache with what is made of them.
BUNDLE_RECORDS = 1_000
#: Where user code makes more than so many of each, fewer are read in one go, for the same reason.
_MADE_OF_EACH = 4

#: The number of a target, and what is for it, as a frame (`runners.stored`): what Spark's shuffle moves.
Shipment = tuple[int, bytes]


class Reading(Protocol):
    """A split, as far as the run reads it."""

    @property
    def records(self) -> int:
        """How many records are read, from the beginning of the split on."""

    @property
    def position(self) -> Any:
        """Where they end."""

    @property
    def bundle_max(self) -> int:
        """How many records to read in one go."""

    def read(self, records_max: int) -> SourceBatch | None:
        """Read at most so many more records, at least one, which may be set aside; None: there are no more.

        Raises:
            InputError: the input cannot be read on.
        """

    def finish(self, ids: SplitIds | None) -> None:
        """Prepare the last commit: everything is read.

        Args:
            ids: the ids of the records that were read; None: they have none.
        """

    def reports(self) -> Iterable[Shipment]:
        """What is sent to receivers when everything is committed, beside the partials."""

    def close(self) -> None:
        """Release the resources of the source."""


@attrs.frozen
class Portion:
    """Some keys of a range.

    Attributes:
        steps: their output.
        is_written: whether earlier attempts have committed what is to be written of it.
    """

    steps: Iterable[Step]
    is_written: bool = False


class Groups(Protocol):
    """The groups of a key range, and what becomes of them."""

    def portions(self, contents: Iterable[bytes]) -> Iterator[Portion]:
        """All keys; a portion is to be worked off before the next one is asked for.

        Args:
            contents: everything that was shipped to the range.
        """

    def finish(self) -> None:
        """Commit the end of the range, when everything is worked off."""

    def reports(self) -> Iterable[Shipment]:
        """What is sent to receivers when everything is committed, beside the partials."""

    def close(self) -> None:
        """Release files."""


class End(Protocol):
    """How the tasks of a run end; a value that is sent to all of them."""

    @property
    def parts(self) -> int | None:
        """Into how many parts receivers divide their keys; see `Gatherer`."""

    @property
    def while_input(self) -> StageClocks:
        """The clocks until all input is there: nothing is late."""

    @property
    def repeat_error(self) -> type[DataflowError]:
        """The error for code that must not be run again, and would have to."""

    def writer(self, task: "RangeTask") -> RangeWriter | DigestWriter:
        """The store's side of the task, not entered yet."""

    def reading(self, task: "RangeTask", split: bytes, *, is_resumable: bool) -> Reading:
        """Open a split: at its beginning, or where the commits of earlier attempts end if it is resumable.

        Args:
            task: the range's, with its stage and store.
            split: of the source.
            is_resumable: whether reading may go on where earlier attempts have committed.
        """

    def groups(self, task: "RangeTask", grouping: GroupingStage) -> Groups:
        """The groups of the task's key range.

        Args:
            task: the range's, with its stage and store.
            grouping: the stage.
        """

    def content(self, sender: RangeId, number: int, blob: bytes) -> bytes:
        """What is shipped of partials that were packed.

        Args:
            sender: the range that they come from.
            number: of the blob, among those that an attempt at the range ships.
            blob: the partials as bytes.
        """


@attrs.frozen(kw_only=True)
class TaskSettings:
    """What all tasks of a run know, whoever starts them.

    Attributes:
        job: its name.
        layout: the targets, and which ranges are wanted.
        end: how the tasks end.
        tries: how often a record that makes user code fail is tried; see `StageExecutor`.
        nondeterministic: a transform that would not emit the same again; None: there is none.
        spill_bytes: how much of a key range is kept in memory, in bytes of pickles; attempts may differ in it.
    """

    job: str
    layout: Layout
    end: End
    tries: int | None
    nondeterministic: str | None = None
    spill_bytes: int = SPILL_BYTES


def _next_bundle(bundle_max: int, records: int, made: int) -> int:
    """How many records to read next, one at least, from what the last bundle has become."""
    # Of records that are all set aside something may be made too.
    few = _MADE_OF_EACH * max(1, records)
    return bundle_max if made <= few else -(-bundle_max * few // made)


class RangeTask:
    """One attempt at one range.

    Args:
        settings: of the run.
        plan: loaded for this attempt, so that no two share the user's objects.
        range_id: the range.
        connect: opens the store.
        owner: unique among the attempts.
        watch: watches the user's code.
    """

    def __init__(
        self,
        settings: TaskSettings,
        plan: ExecutionPlan,
        range_id: RangeId,
        connect: Callable[[], Store],
        owner: str,
        watch: CodeWatch = UNWATCHED,
    ) -> None:
        self.settings, self.plan, self.range_id = settings, plan, range_id
        self.connect, self.owner, self.watch = connect, owner, watch
        self.stage = plan.stages[range_id.computation]
        self.gatherer = Gatherer(plan, self.stage, settings.layout, settings.end.parts)
        self.writer: RangeWriter | DigestWriter
        self._shipped_count = 0

    @property
    def where(self) -> str:
        """Names the stage, for errors."""
        follows = ", ".join(repr(node.label) for node in self.stage.nodes)
        root = self.stage.root
        return f"{root}, or what follows it ({follows})," if follows else str(root)

    def read_split(self, split: bytes) -> Iterator[Shipment]:
        """Read the split as far as the run reads it.

        Raises:
            InputError: it cannot be read.
            DataflowError: it must not be run again (`End.repeat_error`).
            UnrepeatableError: it is not what earlier attempts have read, or user code has emitted something else.
        """
        return collecting_each(self._read_split(split))

    def _read_split(self, split: bytes) -> Generator[Shipment]:
        settings = self.settings
        with ExitStack() as stack:
            if not self._begin(stack):
                return
            source = SourceStage(self.plan, self.stage, tries=settings.tries)
            source.try_first(self.watch.trial)
            ids = source.ids_in_memory()
            # A reader that continues in the middle does not know the ids of what came before.
            is_resumable = not self.gatherer.is_needed and ids is None
            reading = settings.end.reading(self, split, is_resumable=is_resumable)
            stack.callback(reading.close)
            if is_resumable:
                self.writer.resume()
            overflow = self._overflow(source.executor, stack)
            stack.callback(source.teardown)
            source.setup()
            yield from self._read(reading, source, ids, overflow)
            yield from self._shipped(self.gatherer.flush())
            reading.finish(ids)
            self._commit_read(reading, is_last=True)
            yield from reading.reports()

    def _read(
        self, reading: Reading, source: SourceStage, ids: SplitIds | None, overflow: Overflow
    ) -> Iterator[Shipment]:
        writer, clocks = self.writer, self.settings.end.while_input
        written, bundle_max = writer.read_so_far.records, reading.bundle_max
        while True:
            if written and reading.records == written:
                writer.check_sent(self.gatherer.digests())
            # Not beyond the rows that are written already: a bundle is either written or not.
            unwritten = reading.records >= written
            records_max = bundle_max if unwritten else written - reading.records
            with RunningAs(self.stage.name):
                batch = reading.read(min(bundle_max, records_max))
            if batch is None:
                return
            # The watermark stays at the beginning, so every id is kept, and nothing is late.
            admitted = source.admit(batch, watermark_us=clocks.watermark_us, ids=ids)
            with self.watch.at_work():
                outputs = source.process(admitted, clocks)
            made = sum(map(records_in, outputs.groups.values()))
            bundle_max = _next_bundle(reading.bundle_max, batch.records, made)
            yield from self._shipped(overflow.packed())
            yield from self._shipped(self.gatherer.add(outputs.groups))
            if not unwritten:
                writer.pass_over(outputs.dead)
                continue
            writer.write(outputs.tables, outputs.dead, outputs.lineage)
            if writer.is_full:
                self._commit_read(reading, is_last=False)

    def group(self, contents: Iterable[bytes]) -> Iterator[Shipment]:
        """Take in everything that was shipped to the range, and fire what is due.

        Raises:
            DataflowError: it must not be run again (`End.repeat_error`).
            UnrepeatableError: user code has emitted something else than before.
        """
        return collecting_each(self._group(contents))

    def _group(self, contents: Iterable[bytes]) -> Generator[Shipment]:
        settings = self.settings
        with ExitStack() as stack:
            if not self._begin(stack):
                return
            grouping = GroupingStage(
                self.plan, self.stage, is_time_sorted=True, tries=settings.tries
            )
            grouping.try_first(self.watch.trial)
            overflow = self._overflow(grouping.executor, stack)
            groups = settings.end.groups(self, grouping)
            # Closed after all that may read from it: user code, and what gathers for later groupings.
            stack.callback(groups.close)
            stack.callback(grouping.teardown)
            grouping.setup()
            for portion in groups.portions(contents):
                for step in self.watch.steps(portion.steps):
                    yield from self._shipped(overflow.packed())
                    yield from self._followed(step, is_written=portion.is_written)
            yield from self._shipped(self.gatherer.flush())
            groups.finish()
            yield from groups.reports()

    def _followed(self, step: Step, *, is_written: bool) -> Iterator[Shipment]:
        assert not step.effects.late
        if is_written:
            self.writer.pass_over(step.outputs.dead)
        else:
            outputs = step.outputs
            self.writer.write(outputs.tables, outputs.dead, outputs.lineage)
        return self._shipped(self.gatherer.add(step.outputs.groups))

    def _begin(self, stack: ExitStack) -> bool:
        """Take the range over; returns whether there is anything to do."""
        self.writer = self.settings.end.writer(self)
        stack.enter_context(self.writer)
        if self.writer.is_finished and not self.gatherer.is_needed:
            return False
        self.gatherer.follow(self.writer.read_so_far.packings)
        self._check_repeatable()
        return True

    def _check_repeatable(self) -> None:
        """Refuse to repeat where a receiver may have the output of an earlier attempt."""
        rolling = self.settings.nondeterministic
        if rolling is not None and self.gatherer.is_needed and self.writer.has_sent:
            raise self.settings.end.repeat_error(
                f"{self.range_id} of job {self.settings.job!r} has been processed before, and cannot be "
                "processed again",
                detail=f"{rolling} is marked as nondeterministic: run again, it could return something else",
                hint="start over with fresh=True",
            )

    def _overflow(self, executor: StageExecutor, stack: ExitStack) -> Overflow:
        overflow = Overflow(executor, self.gatherer)
        stack.callback(overflow.close)
        return overflow

    def _shipped(self, packed: Iterable[Packed]) -> Iterator[Shipment]:
        for target, blob in packed:
            self._shipped_count += 1
            content = self.settings.end.content(self.range_id, self._shipped_count, blob)
            yield target, content

    def _commit_read(self, reading: Reading, *, is_last: bool) -> None:
        so_far = ReadSoFar(reading.records, reading.position)
        sent, packings = self.gatherer.digests(), self.gatherer.packings()
        self.writer.commit(
            so_far, is_last=is_last, sent=sent, packings=packings, metrics=self.counted()
        )

    def counted(self) -> MetricValues:
        """What user code has counted since this was last asked."""
        return take_updates(SystemClock().now_us())
