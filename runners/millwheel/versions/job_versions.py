"""Opening a job as the version that is about to run: creating it, continuing it, or updating it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from dataflow.errors import DataflowError, SinkError
from dataflow.graph import PipelineGraph
from dataflow.pipeline import Pipeline
from dataflow.sink import Sink
from dataflow.table import TableSpec
from runners.core.panes.signal_delivery import signals_of
from runners.core.stages.plan import ExecutionPlan
from runners.core.stages.plan import plan as plan_of
from runners.errors import JobMismatchError, UpdateRefusedError
from runners.millwheel.store.port import JobRow, JobSpec, JobUpdate, Store
from runners.millwheel.versions.retraction import Between, Former, Retraction, is_retracting
from runners.millwheel.versions.state_shape import state_shapes
from runners.millwheel.versions.update import UpdatePlan, left_outboxes, plan_update

#: Sinks with their outboxes, by label.
Sinks = Mapping[str, tuple[TableSpec, Sink[Any]]]


def _graph_of(former: Pipeline | PipelineGraph | None) -> PipelineGraph | None:
    return former.graph() if isinstance(former, Pipeline) else former


@attrs.frozen(kw_only=True)
class Update:
    """Permission for a job to go over to the pipeline that it is run with.

    Attributes:
        renamed: transforms that have another name now: old label to new label.
        allow_loss: labels of transforms whose state, positions and records on their way may be lost; with
            ``retract_removed`` also of those that have emitted what cannot be retracted, and may stay; and of removed
            sinks for which what waits need not be sent.
        retract_removed: whether what removed and changed transforms have emitted is retracted: rows are deleted, and
            groupings that stay no longer count it.
        former: the pipeline that the job has run so far, which retracts it, and whose removed sinks take what still
            waits for them; `StreamingJob.update` has it.
    """

    renamed: Mapping[str, str] = attrs.field(factory=dict)
    allow_loss: Collection[str] = ()
    retract_removed: bool = False
    former: PipelineGraph | None = attrs.field(default=None, converter=_graph_of, repr=False)


@attrs.frozen(kw_only=True)
class OpenedJob:
    """A job, ready to run.

    Attributes:
        job: as the store has it.
        plan: of what is to be run: the pipeline; or, on the way to it, the former one, which retracts.
    """

    job: JobRow
    plan: ExecutionPlan


def is_other_version(stored: JobRow, spec: JobSpec) -> bool:
    """Whether a job differs from what this spec would create.

    Args:
        stored: the job as it is.
        spec: as it would be created now.
    """
    return stored.fingerprint != spec.fingerprint or any(
        text is not None and text != spec.computations.get(name)
        for name, text in stored.computations.items()
    )


def plan_version(
    store: Store,
    spec: JobSpec,
    plan: ExecutionPlan,
    update: Update,
) -> UpdatePlan | None:
    """Plan what an update of the job would do; None if there is nothing to update.

    Args:
        store: that has the job.
        spec: the job as it would be created now.
        plan: of the new pipeline.
        update: which state goes where, and whether anything is retracted; what may be lost is not asked.

    Raises:
        PipelineError, UpdateRefusedError: as `plan_update`; or the former pipeline is not that of the job.
    """
    stored = store.read_job(spec.job)
    if stored is None or not is_other_version(stored, spec):
        return None
    planned = _planned(store, stored, spec, plan, update)
    left = left_outboxes(spec.job, store.read_lanes(spec.job), plan.graph, update.former)
    return attrs.evolve(planned, outboxes=left)


def _planned(
    store: Store, stored: JobRow, spec: JobSpec, plan: ExecutionPlan, update: Update
) -> UpdatePlan:
    counts = store.count_state(spec.job)
    if not update.retract_removed:
        if is_retracting(stored.fingerprint):
            raise _is_on_its_way(stored)
        if update.former is not None and stored.fingerprint != update.former.fingerprint():
            raise _is_no_former(stored, update.former)
        return plan_update(stored, counts, plan, update.renamed)
    if update.former is None:
        raise UpdateRefusedError(
            f"what removed transforms of job {spec.job!r} have emitted cannot be retracted without their functions",
            detail="retract_removed=True needs the pipeline that the job has run so far",
            hint="give it as former=, or on the command line as --former MODULE:PIPELINE",
        )
    # What waits in an outbox is not what its sink has: that is retracted by rows that go there.
    tables = [each for each in update.former.tables() if not each.is_outbox]
    former = Former(plan=plan_of(update.former), own=store.own_tables(spec.job, tables))
    planned = plan_update(stored, counts, plan, update.renamed, former)
    assert planned.retraction is not None
    fingerprint = update.former.fingerprint()
    if is_retracting(stored.fingerprint):
        if all(
            stored.fingerprint != planned.retraction.fingerprint(fingerprint, each)
            for each in Between
        ):
            raise _is_on_its_way(stored)
    elif stored.fingerprint != fingerprint:
        raise _is_no_former(stored, update.former)
    return planned


def _is_no_former(stored: JobRow, former: PipelineGraph) -> UpdateRefusedError:
    return UpdateRefusedError(
        f"the former pipeline is not the one that job {stored.job!r} has run",
        detail=f"it has the fingerprint {former.fingerprint()}, and that of the job is {stored.fingerprint}",
        hint="give the pipeline as it was when the job ran it last",
    )


def _is_on_its_way(stored: JobRow) -> UpdateRefusedError:
    return UpdateRefusedError(
        f"an update of job {stored.job!r} has begun to retract what removed transforms have emitted",
        detail="a part of it is retracted, so the job can go on only to the pipeline of that update",
        hint="run that pipeline with update=Update(retract_removed=True, former=...) as before; "
        "or start over with fresh=True",
    )


def open_version(
    store: Store,
    spec: JobSpec,
    plan: ExecutionPlan,
    update: Update | None,
    report: Callable[[str], None],
    send: Callable[[Sinks], None],
) -> OpenedJob:
    """Open the job; if it runs another pipeline, update it, after reporting what that does.

    No other driver may be running it (`JobKeeper`).  Former workers that are still there are fenced before anything is
    counted, so that the plan is still right when it is carried out.
    Where something is to be retracted first, the job goes over to a version that does, and to the next one when it is
    opened again after that one has come to rest: to the pipeline (ADR 0066), or to a version that converts state and
    then to the pipeline (ADR 0069).

    Args:
        store: that has the job, or will have it.
        spec: the job as it would be created now.
        plan: of the pipeline.
        update: which state goes where, and what may be lost; None: no update is wanted.
        report: takes a text for people about what an update does.
        send: sends all that waits for sinks of the former pipeline, to which nobody adds any more.

    Raises:
        JobMismatchError: it runs another pipeline and ``update`` is None; the hint is the plan.
        PipelineError, UpdateRefusedError: as `plan_version` and `UpdatePlan.check`.
        StoreError: the store refuses.
    """
    stored = store.read_job(spec.job)
    if stored is None or stored.mode != spec.mode or not is_other_version(stored, spec):
        return OpenedJob(job=store.open_job(spec), plan=plan)
    if update is None:
        if is_retracting(stored.fingerprint):
            raise _is_on_its_way(stored)
        try:
            return OpenedJob(job=store.open_job(spec), plan=plan)
        except JobMismatchError as error:
            raise JobMismatchError(
                error.fact, detail=error.detail, hint=_hint(store, spec, plan) or error.hint
            ) from None
    store.acquire(spec.job, list(stored.ranges), "update", stored.version)
    planned = plan_version(store, spec, plan, update)
    if planned is None:
        return OpenedJob(job=store.open_job(spec), plan=plan)
    is_begun = is_retracting(stored.fingerprint)
    planned.check(update.allow_loss, is_begun=is_begun)
    if not is_begun:
        report(str(planned))
    if planned.retraction is None or planned.retraction.left is None:
        _send(planned, update, send)
        return OpenedJob(job=store.update_job(planned.carried_out_by(spec)), plan=plan)
    assert update.former is not None
    return _between(
        store, stored, planned, planned.retraction, planned.retraction.left, spec, update.former
    )


def _send(planned: UpdatePlan, update: Update, send: Callable[[Sinks], None]) -> None:
    labels = planned.sent(update.allow_loss)
    if not labels:
        return
    assert update.former is not None
    sinks = update.former.sinks()
    try:
        send({label: sinks[label] for label in labels})
    except SinkError as error:
        raise UpdateRefusedError(
            f"what waits for {', '.join(map(repr, labels))} of job {planned.job!r} cannot be sent",
            detail=f"{error.fact}: {error.detail}",
            hint="see to it that the sink can be reached, and update again; nothing was lost, and the former pipeline "
            f"can go on; or name what need not be sent: allow_loss={labels}",
        ) from error


def _between(
    store: Store,
    stored: JobRow,
    planned: UpdatePlan,
    retraction: Retraction,
    left: Between,
    spec: JobSpec,
    former: PipelineGraph,
) -> OpenedJob:
    """The job at a version between two pipelines, which it has been at before, or goes over to now."""
    execution = plan_of(former)
    shapes = {name: shape.encoded() for name, shape in state_shapes(execution).items()}
    known = {name: text or shapes[name] for name, text in stored.computations.items()}
    between = attrs.evolve(
        spec,
        fingerprint=retraction.fingerprint(former.fingerprint(), left),
        ranges=(),
        tables=former.tables(),
        signals=signals_of(former),
        computations=known,
    )
    if stored.fingerprint == between.fingerprint:
        job = store.open_job(between)
    else:
        job = store.update_job(
            JobUpdate(
                spec=between,
                kept={name: name for name in known},
                version=planned.version,
                counts=planned.counts,
            )
        )
    retirement = retraction.retirement(job.version, left)
    return OpenedJob(job=job, plan=attrs.evolve(execution, retirement=retirement))


def _hint(store: Store, spec: JobSpec, plan: ExecutionPlan) -> str | None:
    try:
        planned = plan_version(store, spec, plan, Update())
    except DataflowError:
        return None
    losing = [] if planned is None else [*(each.name for each in planned.losing), *planned.unsent]
    allowed = f"allow_loss={losing}" if losing else ""
    return f"run it with update=Update({allowed}) to go over to this pipeline, or choose another job name; {planned}"
