"""PreparedJob: everything that can be checked before Spark starts, checked.

In this order: the sources, the shape of the plan, that it can be pickled, the store, the job's name.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import attrs

from dataflow.graph import PipelineGraph
from runners.core.plan import ExecutionPlan, plan
from runners.millwheel.job import job_spec
from runners.millwheel.store.port import JobRow
from runners.progress import say
from runners.registry import open_store, store_dsn
from runners.spark.result import StoreResult
from runners.spark.shipped_plan import ShippedPlan


@attrs.frozen(kw_only=True)
class JobOptions:
    """How a user wants a job to be run; see the runners for the meaning of each."""

    job: str
    mode: str
    store: str | None
    fresh: bool
    splits_desired: int
    ranges_per_grouping: int


@attrs.frozen(kw_only=True)
class PreparedJob:
    """A job that exists in its store and may start.  ``dsn`` may hold a password, so it is not shown."""

    plan: ExecutionPlan
    shipped: ShippedPlan
    dsn: str = attrs.field(repr=False)
    job: JobRow

    @property
    def result(self) -> StoreResult:
        """What the job leaves, or has left."""
        return StoreResult(self.dsn, self.job.job, self.plan.graph)

    def finish(self) -> None:
        """Mark the job as done."""
        with closing(open_store(self.dsn)) as store:
            store.finish_job(self.job.job)


def prepare(
    graph: PipelineGraph, options: JobOptions, claim: Callable[[str], None] | None = None
) -> PreparedJob:
    """Check everything, and create the job in the store or find it there.

    ``claim``: called with the store's DSN when everything else is checked and before the job is touched; raises if the
    job is somebody else's at the moment.

    Raises:
        InputError: a source cannot be read.
        PipelineError: something in the pipeline cannot be sent to workers.
        StoreError: there is no suitable store, or the job's name is taken by another pipeline.
    """
    execution = plan(graph)
    for stage in execution.sources():
        operation: Any = stage.root.operation
        operation.source.check()
    shipped = ShippedPlan.of(execution)
    dsn = store_dsn(options.store)
    spec = job_spec(
        options.job,
        options.mode,
        execution,
        splits_desired=options.splits_desired,
        ranges_per_grouping=options.ranges_per_grouping,
    )
    if claim is not None:
        claim(dsn)
    # Closed before Spark starts: a run takes hours, and an idle connection does not always live as long.
    with closing(open_store(dsn)) as store:
        if options.fresh:
            store.reset_job(options.job)
        job = store.open_job(spec)
    if job.is_finished:
        say(
            f"job {options.job!r} is finished; nothing was done "
            "(fresh=True, or --fresh, forgets it and runs it again)"
        )
    return PreparedJob(plan=execution, shipped=shipped, dsn=dsn, job=job)
