"""What runs inside Spark's tasks: a split of a source, or a key range of a grouping.

Both are generators of *shipments*, ``(target, blob)`` or ``(target, failure)``, which the next
shuffle takes to their targets. An attempt may be run again at any time, also after it has
succeeded, when a machine is lost with its output for others: then it ships the same again, and
writes nothing that is already written (range_writer.py).

**Invariants**

* A task commits the end of its range only after it has seen all of its input, and no `Failure` in it.
* Before any receiver has all that a task has shipped, digests of it are committed; an attempt that ships something
  else afterwards has failed.

User code may see a record more than once, as in every engine that retries; its results count once.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import attrs
from pyspark import TaskContext
from pyspark.core.broadcast import Broadcast

from dataflow.errors import InputError
from dataflow.graph import Read
from dataflow.io.source import SplitStatus
from runners.batch.deadly_code import CodeWatch
from runners.batch.failures import Failure, FailureAccumulator, failure_of, is_transient
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.batch.letter_digests import Repeated
from runners.batch.overflow import Overflow
from runners.batch.range_writer import RangeWriter
from runners.batch.spill.spilled_groups import SPILL_BYTES, SpilledGroups
from runners.core.ground.bundle import Bundle
from runners.core.ground.dead_letters import letters_set_aside
from runners.core.stages.deduplication import Deduplicator, SplitIds
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.errors import UnrepeatableError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import Store
from runners.registry import open_store
from runners.spark.shipped_plan import ShippedPlan
from runners.stored.places import ReadSoFar, decode_split
from runners.worker_log import log_as
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Records read from a source in one go: as many as stay in the processor's cache with what is made of them.
BUNDLE_RECORDS = 1_000
#: The same where they come as columns.
BUNDLE_ROWS = 150_000
#: The target of a failure that no task is left to receive.
DRIVER = -1

_EMPTY_READ_PAUSE_S = 0.01

# Nothing is late in a batch: the watermark is at the beginning of time until all input is there,
# and then at its end. Stages downstream receive no watermark before that, so what is emitted cannot
# be late for them either.
_WHILE_INPUT = StageClocks(
    watermark_us=MIN_TIMESTAMP_US, output_watermark_us=MIN_TIMESTAMP_US, now_us=MIN_TIMESTAMP_US
)
_AT_THE_END = StageClocks(
    watermark_us=MAX_TIMESTAMP_US, output_watermark_us=MIN_TIMESTAMP_US, now_us=MAX_TIMESTAMP_US
)

#: The number of a target, and a blob for it or a `Failure`.
Shipment = tuple[int, Any]


@attrs.frozen(kw_only=True)
class Work:
    """What every task of a run knows.

    ``dsn`` may contain a password, so it is not shown.  ``connect``: opens the store there.
    ``attempts_max``: how often Spark tries a task.
    ``tries``: how often a record that makes user code fail is tried; see `StageExecutor`.
    ``run``: of the job; None: any.  ``bound``: ranges that must send again what earlier runs have sent.
    ``nondeterministic``: a transform that would not emit the same again; None: there is none.
    ``fenced_wait_s``: see `RangeWriter`.
    ``step_timeout_ms``: how long user code may be at work on one bundle; None: as long as it likes.
    ``can_fork``: whether each attempt has a process of its own; see `CodeWatch`.
    ``spill_bytes``: how much of a key range is kept in memory; see `SpilledGroups`.
    """

    job: str
    dsn: str = attrs.field(repr=False)
    plan: Broadcast[ShippedPlan]
    layout: Layout
    failures: FailureAccumulator
    attempts_max: int
    tries: int | None
    connect: Callable[[str], Store] = open_store
    run: int | None = None
    bound: frozenset[RangeId] = frozenset()
    nondeterministic: str | None = None
    spill_bytes: int = SPILL_BYTES
    fenced_wait_s: float | None = None
    step_timeout_ms: int | None = None
    can_fork: bool = False


@attrs.frozen
class SplitTask:
    """A split of a source, to be read by one task."""

    range_id: RangeId
    split: bytes


@attrs.frozen
class SourceWave:
    """Level 0: one task for each split."""

    work: Work

    def __call__(self, index: int, splits: Iterable[SplitTask]) -> Iterator[Shipment]:
        """Run the splits of one Spark partition."""
        for task in splits:
            attempt = Attempt(self.work, task.range_id)
            yield from attempt.run(attempt.read_split(task.split))


@attrs.frozen
class GroupingWave:
    """One level of groupings: tasks for its targets, and a way through for those of later ones."""

    work: Work
    level: int

    def __call__(self, index: int, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        """Run one target."""
        layout = self.work.layout
        target = layout.targets(self.level)[index]
        range_id = layout.range_of(target)
        if layout.levels[range_id.computation] > self.level:
            return iter(shipments)
        if range_id.index not in layout.wanted[range_id.computation]:
            return iter(())
        return self._run(range_id, shipments)

    def _run(self, range_id: RangeId, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        attempt = Attempt(self.work, range_id)
        return attempt.run(attempt.group(shipments))


class FailedInputError(Exception):
    """What a task was to receive is not there, because of a failure upstream."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def content_of(shipment: Shipment) -> Any:
    """The content of a shipment; raises `FailedInputError` for a failure."""
    content = shipment[1]
    if isinstance(content, Failure):
        raise FailedInputError(content)
    return content


def _numbers_by_spark() -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber(), context.taskAttemptId()


class Attempt:
    """One attempt at one range.

    Args:
        work: the settings of the run.
        range_id: the range.
        attempt: how many attempts at the task there were before, and a number of this attempt alone; by default
            Spark's.
    """

    def __init__(
        self, work: Work, range_id: RangeId, attempt: tuple[int, int] | None = None
    ) -> None:
        self._work, self._range_id = work, range_id
        self._number, unique = attempt or _numbers_by_spark()
        self._owner = f"batch {range_id} attempt {unique}"
        self._watch = CodeWatch(
            self._number,
            work.attempts_max,
            tries=work.tries,
            step_timeout_ms=work.step_timeout_ms,
            can_fork=work.can_fork,
        )

    def run(self, body: Iterator[Shipment]) -> Iterator[Shipment]:
        """Run one of the generators below; an error becomes a shipment to every task downstream."""
        where = f"the stage {self._range_id.computation!r}"
        try:
            # Loaded for each attempt, so that no two share the user's objects.
            shipped = self._work.plan.value
            plan = shipped.load()
            log_as(self._owner, shipped.log_level)
            stage = plan.stages[self._range_id.computation]
            where = str(stage.root)
            with ExitStack() as stack:
                self._plan, self._stage, self._stack = plan, stage, stack
                self._gatherer = Gatherer(plan, stage, self._work.layout)
                yield from body
        except Exception as error:
            if is_transient(error) and self._number + 1 < self._work.attempts_max:
                raise
            failure = failure_of(error, where)
            self._work.failures.add([failure])
            yield from self._spread(failure)

    def read_split(self, split: bytes) -> Iterator[Shipment]:
        """Read the split to its end."""
        writer = self._enter_writer()
        if writer is not None and writer.is_finished and not self._gatherer.is_needed:
            return
        self._check_repeatable(writer)
        written = ReadSoFar() if writer is None else writer.read_so_far
        operation = self._stage.root.operation
        assert isinstance(operation, Read)
        # A reader that continues in the middle does not know the ids of what came before.
        is_resumable = not self._gatherer.is_needed and operation.record_ids is None
        source = operation.source.repeatable()
        reader = source.open(decode_split(split), written.position if is_resumable else None)
        self._stack.callback(reader.close)
        executor = StageExecutor(self._plan, self._stage, tries=self._work.tries)
        executor.trial = self._watch.trial
        overflow = self._overflow(executor)
        self._set_up(executor)
        ids = None
        if operation.record_ids is not None:
            ids = SplitIds(Deduplicator(self._stage.root, tries=self._work.tries))
        records = written.records if is_resumable else 0
        if writer is not None and is_resumable:
            writer.resume()
        status = SplitStatus.ACTIVE
        while status is not SplitStatus.FINISHED:
            # Not beyond the rows that are written already: a bundle is either written or not.
            unwritten = records >= written.records
            bundle_max = BUNDLE_ROWS if reader.reads_columns else BUNDLE_RECORDS
            records_max = bundle_max if unwritten else written.records - records
            batch = reader.read(min(bundle_max, records_max))
            status, records = batch.status, records + batch.records
            aside = letters_set_aside(batch, self._stage.root, tries=self._work.tries)
            bundle = Bundle(batch.values, batch.timestamps_us)
            # The watermark stays at the beginning, so every id is kept, and nothing is late.
            deduplicated = (
                None if ids is None else ids.deduplicate(bundle, _WHILE_INPUT.watermark_us)
            )
            with self._watch.at_work():
                outputs = executor.process(
                    bundle if deduplicated is None else deduplicated.bundle,
                    _WHILE_INPUT,
                )
            outputs.dead[:0] = [*aside, *(deduplicated.dead if deduplicated is not None else ())]
            yield from overflow.packed()
            yield from self._gatherer.add(outputs.groups)
            if writer is not None and not unwritten:
                writer.pass_over(outputs.dead)
            elif writer is not None:
                writer.write(outputs.tables, outputs.dead)
                if writer.is_full:
                    sent = self._gatherer.digests()
                    writer.commit(ReadSoFar(records, batch.position), is_last=False, sent=sent)
            if writer is not None and batch.records and records == written.records:
                # Here, and not before the next batch: these may be the last rows.
                writer.check_sent(self._gatherer.digests())
            if not batch.records and status is not SplitStatus.FINISHED:
                self._pause(status)
        yield from self._gatherer.flush()
        self._commit_end(writer, ReadSoFar(records, batch.position))

    def group(self, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        """Take in all partials, then fire every window."""
        writer = self._enter_writer()
        if writer is not None and writer.is_finished and not self._gatherer.is_needed:
            return
        self._check_repeatable(writer)
        grouping = GroupingStage(self._plan, self._stage, is_replay=True, tries=self._work.tries)
        grouping.try_first(self._watch.trial)
        overflow = self._overflow(grouping.executor)
        groups = SpilledGroups(grouping, _WHILE_INPUT, _AT_THE_END, self._work.spill_bytes)
        # Closed after all that may read from it: user code, and what gathers for later groupings.
        self._stack.callback(groups.close)
        self._set_up(grouping)
        try:
            blobs = self._watch.inputs(map(content_of, shipments))
            for step in self._watch.steps(groups.steps(blobs)):
                yield from overflow.packed()
                yield from self._followed(step, writer)
        except FailedInputError as failed:
            yield from self._spread(failed.failure)
            return
        yield from self._gatherer.flush()
        self._commit_end(writer)

    def _overflow(self, executor: StageExecutor) -> Overflow:
        overflow = Overflow(executor, self._gatherer)
        self._stack.callback(overflow.close)
        return overflow

    def _followed(self, step: Step, writer: RangeWriter | None) -> Iterator[Shipment]:
        assert not step.effects.late
        if writer is not None:
            writer.write(step.outputs.tables, step.outputs.dead)
        return self._gatherer.add(step.outputs.groups)

    def _spread(self, failure: Failure) -> Iterator[Shipment]:
        """The failure, sent to every receiver that could otherwise take the input to be complete."""
        layout = self._work.layout
        level = layout.levels[self._range_id.computation] + 1
        for target in layout.wanted_targets(level) or [DRIVER]:
            yield target, failure

    def _set_up(self, stage: StageExecutor | GroupingStage) -> None:
        self._stack.callback(stage.teardown)
        stage.setup()

    def _enter_writer(self) -> RangeWriter | None:
        """The range, taken over; None for a stage that writes no rows, and takes its range over at its end."""
        operation = self._stage.root.operation
        may_have_dead = self._work.tries is not None or (
            isinstance(operation, Read) and operation.source.keeps_set_aside
        )
        if not self._stage.tables and not may_have_dead:
            return None
        return self._stack.enter_context(self._writer())

    def _writer(self) -> RangeWriter:
        work, stage = self._work, self._stage
        follows = ", ".join(repr(node.label) for node in stage.nodes)
        return RangeWriter(
            work.connect(work.dsn),
            work.job,
            self._range_id,
            self._owner,
            run=work.run,
            is_binding=self._range_id in work.bound,
            repeated=Repeated.by(stage.root.operation),
            fenced_wait_s=work.fenced_wait_s,
            where=f"{stage.root}, or what follows it ({follows})," if follows else str(stage.root),
        )

    def _commit_end(self, writer: RangeWriter | None, so_far: ReadSoFar | None = None) -> None:
        sent = self._gatherer.digests()
        if writer is not None:
            writer.commit(so_far, is_last=True, sent=sent)
        elif sent is not None:
            with self._writer() as late:
                late.commit(so_far, is_last=True, sent=sent)

    def _check_repeatable(self, writer: RangeWriter | None) -> None:
        """Refuse to repeat where a receiver may have the output of an earlier attempt."""
        rolling = self._work.nondeterministic
        if rolling is None or not self._gatherer.is_needed:
            return
        if writer is None:
            with self._writer() as taken:
                before = taken.read_so_far
        else:
            before = writer.read_so_far
        if before.sent is not None:
            raise UnrepeatableError(
                f"{self._range_id} of job {self._work.job!r} has been worked off before, and cannot be once more",
                detail=f"{rolling} is marked as nondeterministic: run again, it would not say what it has said",
                hint="start over with fresh=True",
            )

    def _pause(self, status: SplitStatus) -> None:
        if status is SplitStatus.IDLE:
            raise InputError(
                f"{self._stage.root} waits for input that is still to come, so a batch cannot end",
                detail=f"split {self._range_id.index} of the source says that it is idle",
                hint="use the streaming runner, or a source that ends",
            )
        time.sleep(_EMPTY_READ_PAUSE_S)
