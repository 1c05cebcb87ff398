"""What runs inside Spark's tasks: an attempt at a split of a source, or at a key range of a grouping.

Both are generators of *shipments*, ``(target, content)`` or ``(target, failure)``, which the next shuffle takes to
their targets.  What an attempt does is `RangeTask`'s; here is how it is started, and what becomes of its errors.

**Invariants:** a task that has received a `Failure` commits nothing, and passes it on; a task whose input breaks off
commits nothing, and Spark runs it again.
"""

from collections.abc import Callable, Iterable, Iterator

import attrs
from pyspark import TaskContext
from pyspark.accumulators import Accumulator
from pyspark.core.broadcast import Broadcast

from runners.batch.deadly_code import CodeWatch
from runners.batch.failures import Failure, FailureAccumulator, failure_of, is_transient
from runners.batch.range_task import RangeTask, Shipment, TaskSettings
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import Store
from runners.spark.driver_log import LogTarget
from runners.spark.shipped_plan import ShippedPlan
from runners.spark.whole_input import BrokenInputError
from runners.stored.errors import is_error
from runners.worker_log import log_as, records_sent

#: The target of a failure that no task is left to receive.
DRIVER = -1


@attrs.frozen(kw_only=True)
class Work:
    """What every task of a run on Spark knows.

    Attributes:
        settings: what it does.
        dsn: may contain a password, so it is not shown.
        attempts_max: how often Spark tries a task.
        connect: opens the store at ``dsn``.
        step_timeout_ms: how long user code may be at work on one bundle; None: as long as it likes.
        log: where its tasks send what is logged in them; None: it is on their stderr.
        logged: counts the records that they have sent there; None: nobody waits for these.
        can_fork: whether each attempt has a process of its own; see `CodeWatch`.
    """

    settings: TaskSettings
    dsn: str = attrs.field(repr=False)
    plan: Broadcast[ShippedPlan]
    failures: FailureAccumulator
    attempts_max: int
    connect: Callable[[str], Store]
    step_timeout_ms: int | None = None
    log: LogTarget | None = None
    logged: Accumulator[int] | None = None
    can_fork: bool = False


#: A split of a source, to be read by one task: its computation and index, and the split as bytes.
SplitTask = tuple[str, int, bytes]


@attrs.frozen
class SourceWave:
    """Level 0: one task for each split."""

    work: Work

    def __call__(self, index: int, splits: Iterable[SplitTask]) -> Iterator[Shipment]:
        """Run the splits of one Spark partition."""
        for computation, number, split in splits:
            yield from Attempt(self.work, RangeId(computation, number)).read_split(split)


@attrs.frozen
class GroupingWave:
    """One level of groupings: tasks for its targets, and a way through for those of later ones."""

    work: Work
    level: int

    def __call__(self, index: int, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        """Run one target."""
        layout = self.work.settings.layout
        target = layout.targets(self.level)[index]
        range_id = layout.range_of(target)
        if layout.levels[range_id.computation] > self.level:
            return iter(shipments)
        if range_id.index not in layout.wanted[range_id.computation]:
            return iter(())
        return Attempt(self.work, range_id).group(shipments)


class FailedInputError(Exception):
    """What a task was to receive is not there, because of a failure upstream."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def _content_of(shipment: Shipment) -> bytes:
    """The content of a shipment; raises `FailedInputError` for a failure."""
    content = shipment[1]
    if is_error(content):
        raise FailedInputError(content)
    return content


def _numbers_by_spark() -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber(), context.taskAttemptId()


class Attempt:
    """One attempt at one range; an error becomes a shipment to every task downstream.

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
            tries=work.settings.tries,
            step_timeout_ms=work.step_timeout_ms,
            can_fork=work.can_fork,
        )

    def read_split(self, split: bytes) -> Iterator[Shipment]:
        """Read a split; see `RangeTask.read_split`."""
        return self._run(lambda task: task.read_split(split))

    def group(self, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        """Work a key range off; see `RangeTask.group`.

        Args:
            shipments: to this range.
        """
        return self._run(lambda task: task.group(map(_content_of, shipments)))

    def _run(self, body: Callable[[RangeTask], Iterator[Shipment]]) -> Iterator[Shipment]:
        work, where = self._work, f"the stage {self._range_id.computation!r}"
        sent_before = records_sent()
        try:
            # Loaded for each attempt, so that no two share the user's objects.
            shipped = work.plan.value
            plan = shipped.load(self._range_id.computation)
            send = None if work.log is None else work.log.send
            log_as(self._owner, shipped.log_level, work.settings.job, send, shipped.log_format)
            where = str(plan.stages[self._range_id.computation].root)
            task = RangeTask(
                work.settings,
                plan,
                self._range_id,
                lambda: work.connect(work.dsn),
                self._owner,
                self._watch,
            )
            yield from body(task)
        except BrokenInputError:
            # Whoever would receive a failure is gone, or waits for another attempt.
            raise
        except FailedInputError as failed:
            yield from self._spread(failed.failure)
        except Exception as error:
            if is_transient(error) and self._number + 1 < work.attempts_max:
                raise
            failure = failure_of(error, where)
            work.failures.add([failure])
            yield from self._spread(failure)
        finally:
            if work.logged is not None:
                work.logged.add(records_sent() - sent_before)

    def _spread(self, failure: Failure) -> Iterator[Shipment]:
        """The failure, sent to every receiver that could otherwise take the input to be complete."""
        layout = self._work.settings.layout
        level = layout.levels[self._range_id.computation] + 1
        for target in layout.wanted_targets(level) or [DRIVER]:
            yield target, failure
