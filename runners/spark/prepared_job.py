"""PreparedJob: everything that can be checked before Spark starts, checked.

In this order: the sources, the shape of the plan, that it can be pickled, the store, the job's name.
"""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import attrs

from dataflow.graph import PipelineGraph
from runners.core.ground.lineage import Lineage
from runners.core.stages.plan import ExecutionPlan, plan
from runners.millwheel.control.backfill_progress import check_backfill_is_whole
from runners.millwheel.control.job import job_spec
from runners.millwheel.store.guards import check_can_start_over
from runners.millwheel.store.port import JobRow, JobSpec, Store
from runners.millwheel.versions.job_versions import Update, open_version, plan_version
from runners.millwheel.versions.update import UpdatePlan
from runners.progress import print_line
from runners.registry import open_store, store_dsn
from runners.relay.job_outboxes import with_outboxes_of
from runners.spark.job_relays import send_all
from runners.spark.result import StoreResult
from runners.spark.shipped_plan import ShippedPlan

_RANGES_PER_WORKER = 2


@attrs.frozen(kw_only=True)
class JobOptions:
    """How a user wants a job to be run; see the runners for the meaning of each.

    Attributes:
        runs_stages_alone: whether a process that runs it runs one stage at a time.
    """

    job: str
    mode: str
    store: str | None = attrs.field(repr=False)  # may hold a password
    fresh: bool
    splits_desired: int
    ranges_per_grouping: int
    log_level: str | None = None
    check_types: bool = False
    lineage: Lineage | None = None
    runs_stages_alone: bool = False

    @classmethod
    def of_stream(
        cls,
        *,
        job: str,
        store: str | None,
        fresh: bool,
        workers: int,
        log_level: str | None = None,
        check_types: bool = False,
        lineage: Lineage | None = None,
    ) -> "JobOptions":
        """The options of a stream, whether it begins live or with a backfill.

        Args:
            job: its name.
            store: its DSN; None: see `store_dsn`.
            fresh: whether to start over.
            workers: the number of slots.
            log_level: what of that level or above workers log; None: see `wanted_level`.
            check_types: whether elements are checked against their types.
            lineage: how much is recorded of where rows come from; None: nothing.
        """
        return cls(
            job=job,
            mode="streaming",
            store=store,
            fresh=fresh,
            # One split per file: a stream keeps the order of its input.
            splits_desired=1,
            ranges_per_grouping=workers * _RANGES_PER_WORKER,
            log_level=log_level,
            check_types=check_types,
            lineage=lineage,
        )


@attrs.frozen(kw_only=True)
class PreparedJob:
    """A job that exists in its store and may start.

    Attributes:
        dsn: may contain a password, so it is not shown.
        incarnation: the incarnation of the store when the job was read from it (`Store.incarnation`).
        next: the pipeline that the job is on its way to, and how, when the plan is of a version that retracts; None of
            any other.
    """

    plan: ExecutionPlan
    shipped: ShippedPlan
    dsn: str = attrs.field(repr=False)
    job: JobRow
    options: JobOptions = attrs.field(repr=False)
    incarnation: str
    next: tuple[PipelineGraph, Update] | None = attrs.field(default=None, repr=False)

    @property
    def result(self) -> StoreResult:
        """The results of the job, now or later."""
        return StoreResult(self.dsn, self.job.job, self.plan.graph, is_drained=self.job.is_drained)

    def updated(self, graph: PipelineGraph, update: Update) -> "PreparedJob":
        """The job with another pipeline.  No driver may be running it; errors as those of `prepare`.

        Args:
            graph: of the new pipeline.
            update: which state goes where, and what may be lost.
        """
        return prepare(graph, attrs.evolve(self.options, fresh=False), update=update)

    def finish(
        self,
        check: Callable[[JobRow | None, str], None] = lambda *_: None,
        *,
        is_drained: bool = False,
    ) -> None:
        """Mark the job as done.

        Args:
            check: called before, with the job as the store has it and a text for its place; raises if something of the
                job is lost.
            is_drained: whether it ends because a drain was requested.

        Raises:
            StoreRestartedError: what was done may be lost.
        """
        with closing(open_store(self.dsn, incarnation=self.incarnation)) as store:
            check(store.read_job(self.job.job), repr(store))
            store.finish_job(self.job.job, is_drained=is_drained)

    def looked_at_again(self, check: Callable[[JobRow | None, str], None]) -> "PreparedJob":
        """The job as it is in the store that is there now, restarted or not.

        ``check``: called with the job and a text for its place; raises if it cannot go on from there.
        """
        with closing(open_store(self.dsn)) as store:
            incarnation = store.incarnation()
            job = store.read_job(self.job.job)
            check(job, repr(store))
        assert job is not None
        return attrs.evolve(self, job=job, incarnation=incarnation)


def prepare(
    graph: PipelineGraph,
    options: JobOptions,
    claim: Callable[[str], None] | None = None,
    update: Update | None = None,
    look: Callable[[JobRow], None] = check_backfill_is_whole,
    begin: Callable[[Store, JobRow], JobRow] = lambda _, job: job,
) -> PreparedJob:
    """Check everything, and create the job in the store or find it there.

    Args:
        graph: the pipeline.
        options: how the job is to be run.
        claim: called with the store's DSN when everything else is checked and before the job is touched; raises if
            another driver has the job at the moment.
        update: if the job runs another pipeline, have it go over to this one.
        look: called with the job as it is found, if there is one; raises if it cannot be run like this.
        begin: called with the store and the job, if it is not finished; returns the job as it is from there on.

    Raises:
        InputError: a source cannot be read.
        PipelineError: something in the pipeline cannot be sent to workers.
        StoreError: there is no suitable store, or the job's name is taken by another pipeline.
        UpdateRefusedError: the update would lose state without permission.
        BackfillError: the job's backfill is loaded only in part.
        TableOwnedError: a result table has rows of another job; or the job is to start over, and has rows in such a
            table.
    """
    if update is not None:
        update = attrs.evolve(update, former=_former(update, options.job))
    execution = _execution(graph, options)
    for stage in execution.sources():
        operation: Any = stage.root.operation
        operation.source.check()
    for _, sink in execution.graph.sinks().values():
        sink.check()
    shipped = _shipped(execution, options)
    dsn = store_dsn(options.store)
    spec = _spec(execution, options)
    if claim is not None:
        claim(dsn)
    # Closed before Spark starts: a run takes hours, and an idle connection does not always live as long.
    with closing(open_store(dsn)) as store:
        incarnation = store.incarnation()
        if options.fresh:
            check_can_start_over(options.job, store.result_tables(options.job))
            store.reset_job(options.job)
        found = store.read_job(options.job)
        if found is not None:
            look(found)
        send = partial(send_all, store, options.job)
        opened = open_version(store, spec, execution, update, print_line, send)
        job = opened.job if opened.job.is_finished else begin(store, opened.job)
    is_next = opened.plan is execution
    if not is_next:
        shipped = _shipped(opened.plan, options)
    if job.is_finished:
        print_line(
            f"job {options.job!r} is finished; nothing was done "
            "(fresh=True, or --fresh, forgets it and runs it again)"
        )
    return PreparedJob(
        plan=opened.plan,
        shipped=shipped,
        dsn=dsn,
        job=job,
        options=options,
        incarnation=incarnation,
        next=None if is_next or update is None else (graph, update),
    )


def planned_update(graph: PipelineGraph, options: JobOptions, update: Update) -> UpdatePlan | None:
    """What an update of the job to the pipeline would do; None if the job does not exist or runs this pipeline.

    Args:
        graph: of the new pipeline.
        options: of the job.
        update: new names of computations by their old ones, and whether anything is retracted.

    Raises:
        PipelineError, UpdateRefusedError: as `plan_version`.
        StoreError: there is no suitable store.
    """
    update = attrs.evolve(update, former=_former(update, options.job))
    execution = plan(with_outboxes_of(graph, options.job))
    with closing(open_store(store_dsn(options.store))) as store:
        return plan_version(store, _spec(execution, options), execution, update)


def _shipped(execution: ExecutionPlan, options: JobOptions) -> ShippedPlan:
    return ShippedPlan.of(execution, options.log_level, by_stage=options.runs_stages_alone)


def _execution(graph: PipelineGraph, options: JobOptions) -> ExecutionPlan:
    return plan(
        with_outboxes_of(graph, options.job),
        check_types=options.check_types,
        lineage=options.lineage,
        slices=options.mode == "batch",
    )


def _former(update: Update, job: str) -> PipelineGraph | None:
    return None if update.former is None else with_outboxes_of(update.former, job)


def _spec(execution: ExecutionPlan, options: JobOptions) -> JobSpec:
    return job_spec(
        options.job,
        options.mode,
        execution,
        splits_desired=options.splits_desired,
        ranges_per_grouping=options.ranges_per_grouping,
    )
