"""BackfillRunner: reads the history of a streaming job with the batch engine, and leaves the rest to the stream."""

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

from dataflow.do_fn import is_nondeterministic
from dataflow.errors import PipelineError
from dataflow.graph import ParDo, PipelineGraph, StatefulParDo
from runners.batch.history.history_waves import history_of, history_waves
from runners.batch.waves import run_waves
from runners.core.poison import checked_tries
from runners.errors import BackfillError
from runners.millwheel.history import (
    HistoryState,
    SplitMark,
    begun,
    check_may_be_loaded,
    go_live,
    history_state,
)
from runners.millwheel.store.port import JobRow
from runners.progress import Progress, say
from runners.registry import open_store
from runners.spark.job_keeper import JobKeeper
from runners.spark.prepared_job import JobOptions, PreparedJob, prepare
from runners.spark.result import StoreResult
from runners.spark.session import local_master, spark_context
from runners.system_clock import SystemClock
from windowing.timestamps import TimestampLike, to_timestamp_us


class BackfillRunner:
    """Loads the history of a job: a `StreamingRunner` with the same job name goes on where this one ends.

    Windows that are still open then, timers, ids of records, positions and watermarks are carried over.
    A run that dies is continued by running it again: nothing counts twice, and nothing is left out.

    Args:
        job: names the job in the store.  It must not have gone live.
        until: an instant of event time: a split of a source is read up to its first record at or after it, and no
            further than until the source says that its event time is there.  None: as far as there is anything now.
            What a run that died was told counts, not what the next one is.
        store: DSN of a Postgres; by default that of the environment variable DATAFLOW_STORE, else an embedded one.
        fresh: forget the job, and drop the tables it created, before running.
        workers: of the stream; decides into how many key ranges groupings are divided.  One key range must fit into
            the memory of a worker, with what it has to write.
        tries_per_record: as for `StreamingRunner`.
        master: of Spark; by default this machine.
        show_progress: on stderr.
    """

    def __init__(
        self,
        *,
        job: str,
        until: TimestampLike | None = None,
        store: str | None = None,
        fresh: bool = False,
        workers: int = 2,
        tries_per_record: int | None = None,
        master: str | None = None,
        show_progress: bool = True,
    ) -> None:
        if workers < 1:
            raise PipelineError(f"a stream needs at least one worker, not {workers}")
        self._options = JobOptions.of_stream(job=job, store=store, fresh=fresh, workers=workers)
        self._until_us = None if until is None else to_timestamp_us(until)
        self._tries = checked_tries(tries_per_record)
        self._master = master or local_master(workers)
        self._show_progress = show_progress

    @property
    def job(self) -> str:
        """What names the run in the store."""
        return self._options.job

    def run(self, graph: PipelineGraph) -> StoreResult:
        """Load what is not loaded yet.

        Raises:
            BackfillError: the job has gone live, or what was interrupted cannot be continued.
            InputError: a source cannot be read.
            JobRunningError: another driver is running the job.
            PipelineError: something in the pipeline cannot be sent to workers.
            StoreError: there is no suitable store, or the job's name is taken by another pipeline.
            DataflowError: what went wrong in the run; run again to continue.
        """
        return self._load(graph, check_may_be_loaded)

    def load_unless_live(self, graph: PipelineGraph) -> None:
        """As `run`, but a job that has gone live is left alone, also where the pipeline is another one by now."""

        def leave_live(job: JobRow) -> None:
            if history_state(job) is HistoryState.LIVE:
                raise _LiveError

        with suppress(_LiveError):
            self._load(graph, leave_live)

    def _load(self, graph: PipelineGraph, check: Callable[[JobRow], None]) -> StoreResult:
        def look(job: JobRow) -> None:
            if not job.is_finished:
                check(job)
            if history_state(job) is HistoryState.HALF:
                _check_continuable(graph, job)

        keeper = JobKeeper(self.job)
        with ExitStack() as until_loaded:
            until_loaded.callback(keeper.release)
            prepared = prepare(graph, self._options, keeper.claim, look=look)
            if prepared.job.is_finished:
                return prepared.result
            if history_state(prepared.job) is HistoryState.LOADED:
                say(f"the history of job {self.job!r} is loaded; nothing was done")
                return prepared.result
            self._run_waves(prepared)
            keeper.check()
            with closing(open_store(prepared.dsn)) as store:
                go_live(store, self.job)
            return prepared.result

    def _run_waves(self, prepared: PreparedJob) -> None:
        began = begun(prepared.job) or SplitMark(
            until_us=self._until_us, now_us=SystemClock().now_us()
        )
        history = history_of(
            prepared.plan,
            prepared.job,
            until_us=began.until_us,
            now_us=began.now_us,
            tries=self._tries,
        )
        if not any(history.layout.wanted.values()):
            return
        context = spark_context("dataflow", master=self._master)
        with Progress(f"backfill {self.job}", show=self._show_progress) as progress:
            run_waves(
                context,
                prepared,
                history.layout,
                progress,
                tries=self._tries,
                wave=history_waves(history),
            )


class _LiveError(Exception):
    """There is nothing to load any more."""


def _check_continuable(graph: PipelineGraph, job: JobRow) -> None:
    for node in graph.transforms:
        if isinstance(node.operation, ParDo | StatefulParDo) and is_nondeterministic(
            node.operation.fn
        ):
            raise BackfillError(
                f"the backfill of job {job.job!r} was interrupted, and cannot be continued",
                detail=f"{node} is marked as nondeterministic: read again, records would not make what they have made",
                hint="start over with fresh=True",
            )
