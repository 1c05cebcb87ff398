"""StreamingRunner: a pipeline as a stream, exactly once, on long-lived Spark tasks (DESIGN section 7)."""

import os
from contextlib import ExitStack

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.runner import PipelineResult
from runners.core.poison import checked_tries
from runners.spark.prepared_job import JobOptions, prepare
from runners.spark.session import LOCAL_MASTER, spark_context
from runners.streaming.job_keeper import JobKeeper
from runners.streaming.job_thread import StreamingJob

_RANGES_PER_WORKER = 2


class StreamingRunner:
    """Runs a pipeline until its sources end, or for ever.

    Kill anything with -9, the driver included: running the same job again continues it.  One driver at a time runs a
    job: a second one is refused while the first is alive.

    Args:
        job: names the run in the store.
        store: DSN of a Postgres; by default that of the environment variable DATAFLOW_STORE, else an embedded one.
        fresh: forget the job, and drop the tables it created, before running.
        workers: how many; each is one Spark task that stays.
        tries_per_record: how often a record that makes user code fail is tried before it is left out and kept as a
            dead letter (`PipelineResult.dead_letters`); None: the first failure stops the job.
        records_per_second: slows each split of each source down to this speed; for replays and demonstrations.
        master: of Spark; by default this machine.
        show_progress: on stderr.
    """

    def __init__(
        self,
        *,
        job: str,
        store: str | None = None,
        fresh: bool = False,
        workers: int = 2,
        tries_per_record: int | None = None,
        records_per_second: float | None = None,
        master: str | None = None,
        show_progress: bool = True,
    ) -> None:
        if workers < 1:
            raise PipelineError(f"a stream needs at least one worker, not {workers}")
        if records_per_second is not None and records_per_second <= 0:
            raise PipelineError(f"records_per_second must be positive, not {records_per_second}")
        self._options = JobOptions(
            job=job,
            mode="streaming",
            store=store,
            fresh=fresh,
            # One split per file: a stream keeps the order of its input.
            splits_desired=1,
            ranges_per_grouping=workers * _RANGES_PER_WORKER,
        )
        self._workers, self._records_per_second = workers, records_per_second
        self._tries = checked_tries(tries_per_record)
        self._master = master or _local_master(workers)
        self._show_progress = show_progress

    @property
    def job(self) -> str:
        """What names the run in the store."""
        return self._options.job

    def run(self, graph: PipelineGraph) -> PipelineResult:
        """Start the job, or continue it; returns at once.

        Raises:
            InputError: a source cannot be read.
            PipelineError: something in the pipeline cannot be sent to workers.
            JobRunningError: another driver is running the job.
            StoreError: there is no suitable store, or the job's name is taken by another pipeline.
        """
        keeper = JobKeeper(self.job)
        with ExitStack() as until_started:
            until_started.callback(keeper.release)
            prepared = prepare(graph, self._options, keeper.claim)
            if prepared.job.is_finished:
                return prepared.result
            context = spark_context("dataflow", master=self._master)
            started = StreamingJob(
                prepared,
                context,
                keeper,
                workers=self._workers,
                records_per_second=self._records_per_second,
                tries=self._tries,
                show_progress=self._show_progress,
            )
            until_started.pop_all()
            return started


def _local_master(workers: int) -> str:
    """All cores, or more threads than cores where there are more workers: every worker must run at once."""
    return LOCAL_MASTER if workers <= (os.cpu_count() or 1) else f"local[{workers},4]"
