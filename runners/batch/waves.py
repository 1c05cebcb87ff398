"""Waves: the one Spark job of a batch run, and the driver that waits for it.

Wave 0 reads the sources; after it there is a shuffle and a wave for each level of groupings.  A
shuffle has the targets of all later levels, so what a source has for a grouping further down is
carried past the waves in between, and no stage runs twice. The job returns nothing but failures;
results are in the store.
"""

import itertools
import re
from collections.abc import Sequence
from concurrent.futures import Future, wait

import attrs
from pyspark import RDD, InheritableThread, SparkContext
from pyspark.accumulators import Accumulator

from runners.batch.failures import FailureAccumulator, FailuresParam, raise_failure
from runners.batch.kept_store import KeptStore
from runners.batch.range_task import Shipment, TaskSettings
from runners.batch.tasks import GroupingWave, SourceWave, SplitTask, Work
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import JobRow
from runners.progress import ProgressDisplay
from runners.spark.driver_log import driver_log
from runners.spark.interrupted import interrupts_deferred
from runners.spark.prepared_job import PreparedJob
from runners.spark.session import driver_host, setting_of
from runners.spark.shipped_code import spark_gave_up
from runners.spark.whole_input import whole

_POLL_S = 0.1
_STOP_WAIT_S = 1.0
_STOPS_MAX = 30
#: Spark's own default for `spark.task.maxFailures`.
_ATTEMPTS_DEFAULT = 4

_run_numbers = itertools.count(1)


@attrs.frozen
class _Shift:
    """Spark partition of a target: targets of a shuffle start at ``base``."""

    base: int

    def __call__(self, target: int) -> int:
        return target - self.base


def run_waves(
    context: SparkContext,
    prepared: PreparedJob,
    settings: TaskSettings,
    progress: ProgressDisplay,
    *,
    step_timeout_ms: int | None = None,
    incarnation: str | None = None,
) -> None:
    """Run every wanted range.  An interrupt stops the Spark job and is raised again.

    Args:
        context: of Spark.
        prepared: the job, with its pipeline as bytes.
        settings: of the tasks.
        progress: shows how far the Spark job is.
        step_timeout_ms: how long user code may be at work on one bundle, in milliseconds; None: as long as it likes.
        incarnation: of their store, the only one to work with; None: whichever is there.

    Raises:
        DataflowError: what a task raised, with its traceback as the cause.
        JobFailedError: Spark gave up for another reason, e.g. because workers died again and again.
    """
    shipped = context.broadcast(prepared.shipped)
    log, job = driver_log(driver_host(context)), settings.job
    received_before = log.received(job)
    failures: FailureAccumulator = context.accumulator([], FailuresParam())
    logged: Accumulator[int] = context.accumulator(0)
    work = Work(
        settings=settings,
        dsn=prepared.dsn,
        plan=shipped,
        failures=failures,
        attempts_max=_attempts_max(context),
        step_timeout_ms=step_timeout_ms,
        log=log.target(job),
        logged=logged,
        can_fork=True,
        connect=KeptStore(incarnation),
    )
    layout = settings.layout
    try:
        waves, tasks = _waves(context, work, prepared.job)
        names = [
            ", ".join(name for name, at in layout.levels.items() if at == level)
            for level in range(layout.level_max + 1)
        ]
        _await(context, waves, failures, _Watch(context, progress, names, tasks))
    except BaseException:
        # Attempts that have failed have not said how many records they had sent.
        log.await_rest()
        raise
    else:
        log.await_records(job, received_before + logged.value)
    finally:
        shipped.destroy()


def _waves(context: SparkContext, work: Work, job: JobRow) -> tuple[RDD[Shipment], int]:
    """The job as an RDD, and the number of its tasks."""
    layout = work.settings.layout
    splits: list[SplitTask] = []
    for name in layout.wanted.keys() - layout.counts.keys():
        for index in sorted(layout.wanted[name]):
            split = job.ranges[RangeId(name, index)].split
            assert split is not None
            splits.append((name, index, split))
    rdd: RDD[Shipment] = context.parallelize(splits, max(1, len(splits))).mapPartitionsWithIndex(
        SourceWave(work)
    )
    tasks = max(1, len(splits))
    for level in range(1, layout.level_max + 1):
        targets = layout.targets(level)
        shuffled = whole(rdd.partitionBy(len(targets), _Shift(targets.start)))
        rdd = shuffled.mapPartitionsWithIndex(GroupingWave(work, level))
        tasks += len(targets)
    return rdd, tasks


class _Watch:
    """Shows how far a Spark job is."""

    def __init__(
        self, context: SparkContext, progress: ProgressDisplay, names: Sequence[str], tasks: int
    ) -> None:
        self.group = f"dataflow batch {next(_run_numbers)}"
        self._tracker = context.statusTracker()
        self._progress, self._names, self._tasks = progress, names, tasks

    def look(self) -> None:
        """Bring the progress up to date; each look is some thirty calls of Spark's Java."""
        if not self._progress.is_shown:
            return
        stage_ids = {
            stage_id
            for job_id in self._tracker.getJobIdsForGroup(self.group)
            if (job := self._tracker.getJobInfo(job_id))
            for stage_id in job.stageIds
        }
        # Spark numbers the stages of a job from its inputs on, as we number the waves.
        stages = [self._tracker.getStageInfo(stage_id) for stage_id in sorted(stage_ids)]
        done = [stage.numCompletedTasks if stage else 0 for stage in stages]
        running = [index for index, stage in enumerate(stages) if stage and stage.numActiveTasks]
        note = self._names[running[0]] if running and running[0] < len(self._names) else ""
        self._progress.update(done=sum(done), total=self._tasks, note=note)


def _await(
    context: SparkContext, waves: RDD[Shipment], failures: FailureAccumulator, watch: _Watch
) -> None:
    """Run the job in a thread of its own, so that this one can look around and be interrupted."""
    ended: Future[list[Shipment]] = Future()

    def run() -> None:
        try:
            context.setJobGroup(watch.group, "dataflow batch")
            ended.set_result(waves.collect())
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread that waits
            ended.set_exception(error)

    thread = InheritableThread(target=run, daemon=True)
    thread.start()
    try:
        while not wait([ended], _POLL_S).done and not failures.value:
            with interrupts_deferred():
                watch.look()
    finally:
        for _ in range(_STOPS_MAX):
            # More than once, because a job that is just about to start is not there to be stopped.
            if not ended.done():
                context.cancelJobGroup(watch.group)
            thread.join(_STOP_WAIT_S)
            if not thread.is_alive():
                break
    if failures.value:
        raise_failure(failures.value[0])
    _check(ended)


def _check(ended: "Future[list[Shipment]]") -> None:
    error = ended.exception()
    if error is not None:
        raise spark_gave_up(error) from error
    for _, failure in ended.result():
        raise_failure(failure)


def _attempts_max(context: SparkContext) -> int:
    """How often Spark tries a task: `local[n]` once, `local[n,4]` four times."""
    local = re.fullmatch(r"local(?:\[[^,\]]+(?:,\s*(\d+))?\])?", context.master or "")
    if local:
        return int(local[1] or 1)
    return int(setting_of(context, "spark.task.maxFailures") or _ATTEMPTS_DEFAULT)
