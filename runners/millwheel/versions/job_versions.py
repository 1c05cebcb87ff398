"""Opening a job as the version that is about to run: creating it, continuing it, or updating it."""

from collections.abc import Callable, Collection, Mapping

import attrs

from dataflow.errors import DataflowError
from runners.core.stages.plan import ExecutionPlan
from runners.errors import JobMismatchError
from runners.millwheel.store.port import JobRow, JobSpec, Store
from runners.millwheel.versions.update import UpdatePlan, plan_update


@attrs.frozen(kw_only=True)
class Update:
    """Permission for a job to go over to the pipeline that it is run with.

    Attributes:
        renamed: transforms that have another name now: old label to new label.
        allow_loss: labels of transforms whose state, positions and records on their way may be lost.
    """

    renamed: Mapping[str, str] = attrs.field(factory=dict)
    allow_loss: Collection[str] = ()


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
    store: Store, spec: JobSpec, plan: ExecutionPlan, renamed: Mapping[str, str]
) -> UpdatePlan | None:
    """Plan what an update of the job would do; None if there is nothing to update.

    Args:
        store: that has the job.
        spec: the job as it would be created now.
        plan: of the new pipeline.
        renamed: new names of computations by their old ones.

    Raises:
        PipelineError, UpdateRefusedError: as `plan_update`.
    """
    stored = store.read_job(spec.job)
    if stored is None or not is_other_version(stored, spec):
        return None
    return plan_update(stored, store.count_state(spec.job), plan, renamed)


def open_version(
    store: Store,
    spec: JobSpec,
    plan: ExecutionPlan,
    update: Update | None,
    report: Callable[[str], None],
) -> JobRow:
    """Open the job; if it runs another pipeline, update it, after reporting what that does.

    No other driver may be running it (`JobKeeper`).  Former workers that are still there are fenced before anything is
    counted, so that the plan is still right when it is carried out.

    Args:
        store: that has the job, or will have it.
        spec: the job as it would be created now.
        plan: of the pipeline.
        update: which state goes where, and what may be lost; None: no update is wanted.
        report: takes a text for people about what an update does.

    Raises:
        JobMismatchError: it runs another pipeline and ``update`` is None; the hint is the plan.
        PipelineError, UpdateRefusedError: as `plan_update` and `UpdatePlan.check`.
        StoreError: the store refuses.
    """
    stored = store.read_job(spec.job)
    if stored is None or stored.mode != spec.mode or not is_other_version(stored, spec):
        return store.open_job(spec)
    if update is None:
        try:
            return store.open_job(spec)
        except JobMismatchError as error:
            raise JobMismatchError(
                error.fact, detail=error.detail, hint=_hint(store, spec, plan) or error.hint
            ) from None
    store.acquire(spec.job, list(stored.ranges), "update", stored.version)
    planned = plan_version(store, spec, plan, update.renamed)
    if planned is None:
        return store.open_job(spec)
    planned.check(update.allow_loss)
    report(str(planned))
    return store.update_job(planned.carried_out_by(spec))


def _hint(store: Store, spec: JobSpec, plan: ExecutionPlan) -> str | None:
    try:
        planned = plan_version(store, spec, plan, {})
    except DataflowError:
        return None
    losing = [each.name for each in planned.losing] if planned is not None else []
    allowed = f"allow_loss={losing}" if losing else ""
    return f"run it with update=Update({allowed}) to go over to this pipeline, or choose another job name; {planned}"
