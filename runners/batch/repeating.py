"""Repetition: a batch run that continues one that has died, and code that is not deterministic.

A run that is continued keeps the ranges that are finished, and reads and sends again what the others need.  What it
sends must then be what was sent before, or records are lost and others count twice.  So every range keeps digests of
what it has sent (`digests.py`), which later attempts are compared with (`range_writer.py`).  They do not bind as long
as nothing was made of what was sent: code may be corrected and the run continued.

**Invariant:** an attempt of an earlier run commits nothing once a later one has begun.
"""

from collections.abc import Mapping

from dataflow.do_fn import is_nondeterministic
from dataflow.graph import ParDo, PipelineGraph, StatefulParDo
from runners.core.stages.plan import ExecutionPlan
from runners.errors import UnrepeatableError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import JobRow, JobSpec, JobUpdate, RangeRow, RangeSpec, Store
from runners.stored.places import decode_read_so_far


def begin_run(store: Store, job: JobRow) -> JobRow:
    """The job, as it is once only a new run can still change it.

    A run is a version of the job that differs in nothing: a worker of an earlier one is fenced, and gets no range.
    A job that this driver has just created has had no other run; who opens it at the same moment begins the next.

    Args:
        store: that has the job.
        job: its name.

    Raises:
        StoreError: the store refuses.
    """
    if job.is_new:
        return job
    ranges = [
        RangeSpec(range_id=row.range_id, keys=row.keys, split=row.split)
        for row in job.ranges.values()
    ]
    shapes = {name: shape for name, shape in job.computations.items() if shape is not None}
    spec = JobSpec(
        job=job.job,
        mode=job.mode,
        fingerprint=job.fingerprint,
        ranges=ranges,
        signals=job.signals,
        computations=shapes,
    )
    kept = {range_id.computation: range_id.computation for range_id in job.ranges}
    counts = store.count_state(job.job)
    return store.update_job(JobUpdate(spec=spec, kept=kept, version=job.version, counts=counts))


def binding_ranges(plan: ExecutionPlan, ranges: Mapping[RangeId, RangeRow]) -> frozenset[RangeId]:
    """The ranges that must send what they have sent: their own rows are committed, or rows made of what they sent.

    Lineage is rows of theirs too: what is recorded of an input has to be what its receiver was sent.

    Args:
        plan: of the pipeline.
        ranges: the job's, as the store has them.
    """
    with_rows = {
        range_id for range_id, row in ranges.items() if _has_rows(row, plan, range_id.computation)
    }
    bound: set[str] = set()
    for stage in reversed(tuple(plan.stages.values())):  # receivers come first
        if any(group.label in bound for group in stage.groups):
            with_rows |= {each for each in ranges if each.computation == stage.name}
        if any(each.computation == stage.name for each in with_rows):
            bound.add(stage.name)
    return frozenset(with_rows)


def _has_rows(row: RangeRow, plan: ExecutionPlan, stage: str) -> bool:
    if plan.stages[stage].tables or plan.lineage is not None:
        return row.bundle > 0
    return row.position is not None and decode_read_so_far(row.position).dead > 0


def nondeterministic(graph: PipelineGraph) -> str | None:
    """The first transform whose code may not return the same for the same records again; None if there is none."""
    for node in graph.transforms:
        operation = node.operation
        if isinstance(operation, ParDo | StatefulParDo) and is_nondeterministic(operation.fn):
            return str(node)
    return None


def check_continuable(plan: ExecutionPlan, job: JobRow, bound: frozenset[RangeId]) -> None:
    """Refuse to continue a run whose code would emit something else.

    Args:
        plan: of the pipeline.
        job: as the store has it.
        bound: the ranges that must send what they have sent before.

    Raises:
        UnrepeatableError: it would.
    """
    rolling = nondeterministic(plan.graph)
    senders = {stage.name for stage in plan.stages.values() if stage.groups}
    if rolling is not None and any(each.computation in senders for each in bound):
        raise UnrepeatableError(
            f"job {job.job!r} was interrupted, and cannot be continued",
            detail=f"{rolling} is marked as nondeterministic: run again, it could return other "
            "outputs, and results of both runs would be mixed",
            hint="start over with fresh=True",
        )
