"""The events that verbs of the store keep in their own transactions, the same in both adapters."""

from collections.abc import Iterable, Mapping, Sequence

from runners.millwheel.model.events import Actor, Cause, EventKind, JobEvent
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Reshape
from runners.millwheel.model.requests import StoredRequest
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.millwheel.store.port import JobRow, JobUpdate
from runners.process_name import process_name


def takeover(former: Mapping[RangeId, str | None], owner: str, cause: Cause) -> JobEvent:
    """A worker has acquired ranges.

    Args:
        former: the owners that the ranges had; None: nobody.
        owner: that they have now.
        cause: why.
    """
    return JobEvent(
        kind=EventKind(cause.kind),
        actor=Actor.WORKER,
        who=owner,
        subject=", ".join(str(each) for each in sorted(former)),
        reason=cause.reason,
        details={"former": {str(each): before for each, before in former.items()}},
    )


def reshaped(reshape: Reshape, owner: str | None) -> JobEvent:
    """Ranges have other bounds.

    Args:
        reshape: as it is committed.
        owner: the worker that has them; None: the adapter knows.
    """
    (other,) = reshape.others
    keys = reshape.keys[other]
    is_split = keys is not None
    return JobEvent(
        kind=EventKind.SPLIT if is_split else EventKind.MERGE,
        actor=Actor.WORKER,
        who=owner,
        subject=str(reshape.handover_with),
        reason=reshape.reason,
        details={"born": str(other), "at": str(keys.low)} if keys else {"gone": str(other)},
    )


def updated(update: JobUpdate, row: JobRow) -> JobEvent:
    """A job runs another pipeline.

    Args:
        update: as it is carried out.
        row: the job before.
    """
    return JobEvent(
        kind=EventKind.UPDATE,
        actor=Actor.DRIVER,
        who=process_name(),
        reason=f"the job runs another pipeline, which is its version {update.version + 1}",
        details={
            "version": update.version + 1,
            "renamed": {old: new for old, new in update.kept.items() if old != new},
            "removed": sorted(row.computations.keys() - update.kept.keys()),
            "added": sorted(
                {each.range_id.computation for each in update.spec.ranges} - {*update.kept.values()}
            ),
            "emptied": [each.name for each in update.emptied],
        },
    )


def finished(*, is_drained: bool) -> JobEvent:
    """A job is done."""
    return JobEvent(
        kind=EventKind.DRAIN if is_drained else EventKind.FINISH,
        actor=Actor.DRIVER,
        who=process_name(),
        reason="its sources ended where they were, as somebody had asked, and every window has fired"
        if is_drained
        else "every source has ended, and every window has fired",
    )


def failures(troubles: Iterable[Trouble]) -> Sequence[JobEvent]:
    """The workers that have ended, among troubles."""
    return [
        JobEvent(
            kind=EventKind.FAILURE,
            actor=Actor.WORKER,
            who=None,
            subject=each.place,
            reason=each.reason,
            details={"count": each.count},
        )
        for each in troubles
        if each.kind is TroubleKind.DEATH
    ]


def requested(stored: StoredRequest) -> JobEvent:
    """Somebody has asked the job for something; its table is that of requests."""
    answer = stored.answer
    return JobEvent(
        kind=EventKind.REQUEST,
        actor=Actor.OPERATOR,
        who=None,
        subject=" ".join(stored.request.arguments) or None,
        reason=stored.request.verb.value,
        details={
            "number": stored.number,
            "is_done": None if answer is None else answer.is_done,
            "answer": None if answer is None else answer.text,
        },
    )
