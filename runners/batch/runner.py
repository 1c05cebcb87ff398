"""BatchRunner: a pipeline over bounded input, on Spark, with its results in the store exactly once.

Spark places, retries and shuffles; what is true is in the store.  So a run that dies is continued
by running the same job again: finished ranges are kept, and what only they would need is passed
over.

Everything that can be checked is checked, in this order, before Spark starts: sources, the plan,
that it can be pickled, the store, the job.
"""

import os
from contextlib import closing

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph, Read
from dataflow.serialization import dumps, dumps_code
from runners.batch.layout import layout
from runners.batch.waves import run_waves
from runners.core.plan import ExecutionPlan, plan
from runners.millwheel.ids import RangeId
from runners.millwheel.key_range import even_ranges
from runners.millwheel.store.port import JobRow, JobSpec, RangeSpec
from runners.progress import Progress, say
from runners.registry import open_store, store_dsn
from runners.spark.result import StoreResult
from runners.spark.session import LOCAL_MASTER, spark_context

_PARTITIONS_PER_CORE = 2


class BatchRunner:
    """Runs a pipeline to the end of its input.

    Args:
        job: names the run in the store; running it again continues it.
        store: DSN of a Postgres; by default that of the environment variable DATAFLOW_STORE, else
            an embedded one.
        fresh: forget the job, and drop the tables it created, before running.
        master: of Spark; by default all cores of this machine.
        partitions: how many parts sources are divided into, about, and how many key ranges each
            grouping has; fixed when the job is first run. By default two for each core of this
            machine.  One key range must fit into the memory of a worker, with what it has to write.
        show_progress: on stderr.
    """

    def __init__(
        self,
        *,
        job: str,
        store: str | None = None,
        fresh: bool = False,
        master: str | None = None,
        partitions: int | None = None,
        show_progress: bool = True,
    ) -> None:
        if partitions is not None and partitions < 1:
            raise PipelineError(f"partitions must be positive, not {partitions}")
        self._job, self._store, self._fresh = job, store, fresh
        self._master = master or LOCAL_MASTER
        self._partitions = partitions or _PARTITIONS_PER_CORE * (os.cpu_count() or 1)
        self._show_progress = show_progress

    def run(self, graph: PipelineGraph) -> StoreResult:
        """Run to the end of every source.

        Raises:
            InputError: a source cannot be read.
            PipelineError: something in the pipeline cannot be sent to workers.
            StoreError: there is no suitable store, or the job's name is taken by another pipeline.
            DataflowError: what went wrong in the run; run again to continue.
        """
        execution = plan(graph)
        for stage in execution.sources():
            _read(stage.root.operation).source.check()
        code = dumps_code(execution, "the pipeline")
        dsn = store_dsn(self._store)
        job = self._open_job(dsn, execution)
        result = StoreResult(dsn, self._job, graph)
        if job.is_finished:
            say(
                f"job {self._job!r} is finished; nothing was done "
                "(fresh=True, or --fresh, forgets it and runs it again)"
            )
            return result
        wanted = layout(execution, job.ranges)
        with Progress(f"batch {self._job}", show=self._show_progress) as progress:
            if any(wanted.wanted.values()):
                context = spark_context("dataflow", master=self._master)
                run_waves(context, code, job, wanted, dsn=dsn, progress=progress)
        with closing(open_store(dsn)) as store:
            store.finish_job(self._job)
        return result

    def _open_job(self, dsn: str, execution: ExecutionPlan) -> JobRow:
        # Closed before Spark starts: a run takes hours, and an idle connection does not always live
        # as long.
        with closing(open_store(dsn)) as store:
            if self._fresh:
                store.reset_job(self._job)
            return store.open_job(
                JobSpec(
                    job=self._job,
                    mode="batch",
                    fingerprint=execution.graph.fingerprint(),
                    ranges=_ranges(execution, self._partitions),
                    tables=execution.graph.tables(),
                )
            )


def _ranges(execution: ExecutionPlan, partitions: int) -> list[RangeSpec]:
    ranges = [
        RangeSpec(range_id=RangeId(stage.name, index), split=dumps(split))
        for stage in execution.sources()
        for index, split in enumerate(_read(stage.root.operation).source.splits(partitions))
    ]
    ranges += [
        RangeSpec(range_id=RangeId(stage.name, index), keys=keys)
        for stage in execution.groupings()
        for index, keys in enumerate(even_ranges(partitions))
    ]
    return ranges


def _read(operation: object) -> Read:
    assert isinstance(operation, Read)
    return operation
