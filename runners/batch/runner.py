"""BatchRunner: a pipeline over bounded input, on Spark, with its results in the store exactly once.

Spark places, retries and shuffles; the store has the truth.  So a run that dies is continued
by running the same job again: finished ranges are kept, and input that only they would need is
passed over.

Everything that can be checked is checked, in this order, before Spark starts: sources, the plan,
that it can be pickled, the store, the job.

The memory of a task for its key range is bounded (spilled_groups.py), and what does not fit waits in files; so does a
group of `GroupByKey` that does not fit by itself (large_key.py).  The rows that a key range writes have to fit.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.source import open_split
from runners.batch.batch_end import BatchEnd
from runners.batch.layout import layout
from runners.batch.range_task import TaskSettings
from runners.batch.repeating import (
    begin_run,
    binding_ranges,
    check_continuable,
    nondeterministic,
)
from runners.batch.spill.spilled_groups import SPILL_BYTES
from runners.batch.waves import run_waves
from runners.core.ground.dead_letters import checked_tries
from runners.core.ground.lineage import checked_lineage
from runners.core.stages.committed_positions import CommittedPositions
from runners.core.stages.plan import ExecutionPlan
from runners.core.stages.source_stage import release_sources
from runners.errors import LostCommitsError, StoreRestartedError
from runners.log_format import checked_format, use_format
from runners.millwheel.store.port import JobRow
from runners.progress import ProgressDisplay
from runners.spark.interrupted import stays_in_store
from runners.spark.prepared_job import JobOptions, PreparedJob, prepare
from runners.spark.result import StoreResult
from runners.spark.session import LOCAL_MASTER
from runners.spark.sink_relay import relay_all
from runners.spark.spark_options import SparkOptions
from runners.spark.stream_options import checked_step_timeout_ms
from runners.stored.places import decode_read_so_far, decode_split
from runners.worker_log import checked_level
from windowing.timestamps import DurationLike

#: Where parts differ, a core that is done early has another one.
_PARTITIONS_PER_CORE = 2
#: What a core reads at most where it has one part alone: a part more is a task more in each round of tasks, some 50 ms,
#: and little is lost by parts of so little that differ.
_PART_BYTES = 256 << 20


class BatchRunner:
    """Runs a pipeline to the end of its input.

    Args:
        job: names the run in the store; running it again continues it, and keeps what is written.  Code may be
            corrected before, unless its results for records whose results are written would be different.
            A run ends every other one of the same job that is still at work.
        store: DSN of a Postgres; by default that of the environment variable DATAFLOW_STORE, else
            an embedded one.
        fresh: forget the job, and drop the tables it created, before running.  Refused where it has rows in a
            table that is not its own (`TableOwnedError`): they would stay, and be written once more.
        master: of Spark; by default all cores of this machine.
        spark_settings: more `spark.*` settings, e.g. ``{"spark.executor.memory": "4g"}``; one Spark runs in a process,
            so all its jobs have the same ones (docs/how-to/run-on-a-cluster.md).
        code: modules, package directories and archives to bring to executors that do not have them.
        partitions: how many parts sources are divided into, about, and how many key ranges each
            grouping has; fixed when the job is first run. By default two for each core of this
            machine, or one where all input is known to be small: at most 256 MiB a core by `Source.estimate_size`.
            What one key range has to write must fit into the memory of a worker.
        log_level: what of this level ("DEBUG", "INFO", ...) or above user code logs reaches `logging` in this process;
            None: that of the environment variable DATAFLOW_LOG_LEVEL, else INFO.
        log_format: as for `DirectRunner`.
        check_types: as for `DirectRunner`.
        lineage: as for `DirectRunner`; kept with the job.  What a key range records has to fit into the memory of a
            worker, as what it writes.
        spill_bytes: how much of a key range a task keeps in memory, counted as pickles, and of columns half of their
            bytes; the rest waits in temporary files.  A group of `GroupByKey` that does not fit is given as a sequence
            that reads such a file; see there, and docs/how-to/run-on-a-cluster.md for what must fit all the same.
        tries_per_record: how often a record that makes user code fail is tried before it is left
            out and kept as a dead letter (`PipelineResult.dead_letters`); None: the first failure
            ends the run.  So is one that ends its process, or takes longer than ``step_timeout``, where Spark tries a
            task more than once, as it does by default: the next attempt at the task runs user code in a process of
            its own before.
        step_timeout: how long user code may be at work on the records of one bundle (`timedelta`, text, or seconds),
            and on a single record where it is tried alone, before the process is ended; None: as long as it likes.
        show_progress: on stderr.
    """

    def __init__(
        self,
        *,
        job: str,
        store: str | None = None,
        fresh: bool = False,
        master: str | None = None,
        spark_settings: Mapping[str, str] = MappingProxyType({}),
        code: Sequence[str] = (),
        partitions: int | None = None,
        tries_per_record: int | None = None,
        step_timeout: DurationLike | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        check_types: bool = False,
        lineage: str | None = None,
        spill_bytes: int = SPILL_BYTES,
        show_progress: bool = True,
    ) -> None:
        if partitions is not None and partitions < 1:
            raise PipelineError(f"partitions must be positive, not {partitions}")
        self._job, self._store, self._fresh = job, store, fresh
        self._spark = SparkOptions(master or LOCAL_MASTER, spark_settings, code)
        self._partitions = partitions
        self._tries = checked_tries(tries_per_record)
        self._step_timeout_ms = checked_step_timeout_ms(step_timeout)
        self._log_level, self._check_types = checked_level(log_level), check_types
        self._log_format = checked_format(log_format)
        self._lineage = checked_lineage(lineage)
        self._spill_bytes = checked_spill_bytes(spill_bytes)
        self._show_progress = show_progress

    @property
    def job(self) -> str:
        """The name of the run in the store."""
        return self._job

    def run(self, graph: PipelineGraph) -> StoreResult:
        """Run to the end of every source.

        Raises:
            InputError: a source cannot be read.
            PipelineError: something in the pipeline cannot be sent to workers.
            StoreError: there is no suitable store, or the job's name is taken by another pipeline.
            UnrepeatableError: the job was interrupted, and its code returns something else when it is run again, or is
                marked with `df.nondeterministic`; what it has written stays as it is.
            DataflowError: what went wrong in the run; run again to continue.
            InterruptedRun: Ctrl-C; run again to continue.
        """
        with stays_in_store(self._job):
            try:
                return self._run(graph)
            finally:
                release_sources(graph)

    def _run(self, graph: PipelineGraph) -> StoreResult:
        use_format(self._log_format)
        partitions = self._partitions or partitions_of(graph, os.cpu_count() or 1)
        prepared = prepare(
            graph,
            JobOptions(
                job=self._job,
                mode="batch",
                store=self._store,
                fresh=self._fresh,
                splits_desired=partitions,
                ranges_per_grouping=partitions,
                log_level=self._log_level,
                check_types=self._check_types,
                lineage=self._lineage,
                runs_stages_alone=True,
            ),
            begin=begin_run,
        )
        if prepared.job.is_finished:
            return prepared.result
        bound = binding_ranges(prepared.plan, prepared.job.ranges)
        check_continuable(prepared.plan, prepared.job, bound)
        settings = TaskSettings(
            job=self._job,
            layout=layout(prepared.plan, prepared.job.ranges),
            end=BatchEnd(run=prepared.job.version, bound=bound),
            tries=self._tries,
            nondeterministic=nondeterministic(prepared.plan.graph),
            spill_bytes=self._spill_bytes,
        )
        with ProgressDisplay(
            f"batch {self._job}", unit="tasks", show=self._show_progress
        ) as progress:
            if any(settings.layout.wanted.values()):
                context = self._spark.context()
                run_waves(
                    context,
                    prepared,
                    settings,
                    progress,
                    step_timeout_ms=self._step_timeout_ms,
                )
        relay_all(prepared)
        finish(prepared)
        return prepared.result


def partitions_of(graph: PipelineGraph, cores: int) -> int:
    """How many parts a batch is divided into where its user does not say.

    Args:
        graph: of the pipeline.
        cores: of this machine.

    Raises:
        InputError: a source cannot be read.
    """
    sizes = [source.estimate_size() for source in graph.sources()]
    is_small = None not in sizes and sum(filter(None, sizes)) <= cores * _PART_BYTES
    return cores if is_small else cores * _PARTITIONS_PER_CORE


def finish(prepared: PreparedJob) -> None:
    """Mark a job as done; if its store was restarted while it ran, only if it still has everything.

    Raises:
        LostCommitsError: what tasks had finished is gone.
    """
    while True:
        try:
            prepared.finish(partial(notify_of_end, prepared.plan))
        except StoreRestartedError:
            prepared = prepared.looked_at_again(partial(check_is_whole, prepared))
        else:
            return


def notify_of_end(execution: ExecutionPlan, job: JobRow | None, place: str) -> None:
    """Notify the sources that acknowledge of where their splits end: everything that was made of them is durable.

    A run that dies after that does so again, since it is not marked as done yet.

    Args:
        execution: the plan.
        job: as the store has it; None: it does not.
        place: the store, which needs no mention.
    """
    del place
    if job is None:
        return
    for range_id, row in sorted(job.ranges.items()):
        stage = execution.stages[range_id.computation]
        if row.split is None or row.position is None or not stage.read.source.acknowledges:
            continue
        position = decode_read_so_far(row.position).position
        source = stage.read.source.repeatable()
        with closing(
            open_split(source, decode_split(row.split), position, fence=row.token)
        ) as reader:
            committed = CommittedPositions(source, reader, where=f"{range_id} of job {job.job}")
            committed.note(position)
            committed.close()


def check_is_whole(prepared: PreparedJob, job: JobRow | None, place: str) -> None:
    """Check that a store has the rows of a batch job all of whose tasks have ended.

    Args:
        prepared: the job.
        job: as the store has it; None: it does not.
        place: the store, without secrets, for messages.

    Raises:
        LostCommitsError: ranges that write rows are not finished there.
    """
    stages = prepared.plan.stages
    ranges = {} if job is None else job.ranges
    missing = [
        str(range_id)
        for range_id, row in sorted(ranges.items())
        if stages[range_id.computation].tables and not row.is_finished
    ]
    if missing or not ranges:
        raise LostCommitsError(
            f"the store has lost commits of job {prepared.job.job!r}: it is at an earlier moment",
            detail=f"{place}; finished, and not any more: {', '.join(missing[:8]) or 'the job itself'}"
            f"{f' and {len(missing) - 8} more' if len(missing) > 8 else ''}",
            hint="was a backup restored, or has a standby taken over that lagged behind? run the same job again: what "
            "is finished is kept (docs/how-to/fail-over-and-restore.md)",
        )


def checked_spill_bytes(spill_bytes: int) -> int:
    """The limit of a task's memory in bytes, checked.

    Raises:
        PipelineError: it is not valid.
    """
    if spill_bytes < 0:
        raise PipelineError(f"spill_bytes must not be negative, not {spill_bytes}")
    return spill_bytes
