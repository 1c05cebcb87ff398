"""advise: what a balancer would do with a job, and what that would do and cost; from what its driver knew alone.

The judgement is that of the driver's own balancer (`runners.millwheel.master.load_policy`, `.placement_policy`), so
what is advised is what a driver with ``balance=True`` would do, if the load stays as it was in the last second.

Pure: a snapshot in, a value out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import attrs

from runners.millwheel.master.load_policy import (
    Change,
    MergeRanges,
    MoveRange,
    PlannedChange,
    PolicyOptions,
    RangeView,
    planned_changes,
)
from runners.millwheel.master.placement_policy import JobView, PlacementOptions, fits_one_worker
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.observability.evidence.snapshot import (
    Histogram,
    JobSnapshot,
    RangeEvidence,
    RangeState,
)

#: The part of its time that a worker should be at work: the rest is for what comes in bursts.
BUSY_SHARE = 0.6
#: Above this a job has too few workers, where its load is as well spread as it can be.
TOO_BUSY_SHARE = 0.85

#: Those of drivers.
_OPTIONS = PolicyOptions()


class AdviceKind(StrEnum):
    """What is advised."""

    MOVE = "move"
    SPLIT = "split"
    MERGE = "merge"
    GATHER = "gather"
    MORE_WORKERS = "more workers"
    FEWER_WORKERS = "fewer workers"


@attrs.frozen(kw_only=True)
class Cost:
    """What a change costs.

    Attributes:
        pause_us: for about how long nobody has a range that moves, in microseconds: half of those that have moved took
            at most so long; None: none has moved since the driver began, or the change moves none.
        moves: how many that is from.
        state_bytes: the state that the next owner has to read, in time; None: not known.
    """

    pause_us: int | None = None
    moves: int = 0
    state_bytes: int | None = None


@attrs.frozen(kw_only=True)
class Advice:
    """One thing that one can do.

    Attributes:
        text: what and why.
        command: that does it; None: it takes another start of the job.
        before, after: the load of each worker, in records a second; of a number of workers the part of their time at
            work.
    """

    kind: AdviceKind
    text: str
    command: str | None
    before: Sequence[float]
    after: Sequence[float]
    cost: Cost = Cost()


@attrs.frozen(kw_only=True)
class JobAdvice:
    """What is advised for a job, in the order in which it is to be done.

    Attributes:
        loads: of each worker now, in records a second.
        busy: the part of its time that each worker is at work; None: not known.
        balances: whether the driver does by itself what is advised for ranges; None: not known.
        reason: why nothing is advised; None: something is.
    """

    job: str
    loads: Sequence[float]
    busy: Sequence[float | None]
    balances: bool | None
    steps: Sequence[Advice]
    reason: str | None = None


def advise(
    snapshot: JobSnapshot,
    next_indexes: Mapping[str, int],
    state_bytes: Mapping[str, int],
    options: PolicyOptions = _OPTIONS,
) -> JobAdvice:
    """What a balancer would do.

    Args:
        snapshot: what the driver of the job knew.
        next_indexes: the number of the next range of each stage.
        state_bytes: of each range of which it is known.
        options: of the balancer; those of drivers by default.
    """
    views, slots = views_of(snapshot), len(snapshot.workers)
    loads = [
        float(sum(each.records for each in views if each.slot == slot)) for slot in range(slots)
    ]
    busy = [each.busy_share for each in snapshot.workers]
    found = JobAdvice(job=snapshot.job, loads=loads, busy=busy, balances=snapshot.balance, steps=())
    hindrance = _hindrance(snapshot)
    if hindrance is not None:
        return attrs.evolve(found, reason=hindrance)
    if _is_gathered(views, slots) and snapshot.gather_bytes_max is not None:
        reason = "one worker has all ranges, as the driver found that it can carry them"
        return attrs.evolve(found, reason=reason)
    steps = [
        _of_change(snapshot, planned, state_bytes)
        for planned in planned_changes(slots, views, options, next_indexes=next_indexes)
    ]
    if not any(each.kind in (AdviceKind.MOVE, AdviceKind.SPLIT) for each in steps):
        steps += _of_workers(snapshot, views)
    if steps:
        return attrs.evolve(found, steps=steps)
    if sum(loads) < options.records_min:
        reason = f"there is little to do: less than {options.records_min:,} records a second"
    else:
        reason = "the load is as well spread as it can be"
    return attrs.evolve(found, reason=reason)


def views_of(snapshot: JobSnapshot) -> list[RangeView]:
    """The ranges as the balancer sees them, over the last second.

    Args:
        snapshot: what the driver knew.
    """
    return [
        RangeView(
            range_id=RangeId(each.stage, each.index),
            slot=each.slot,
            keys=None if each.keys is None else KeyRange(each.keys[0], each.keys[1] + 1),
            records=round(each.records_per_s or 0),
            hashes=each.hashes,
        )
        for each in snapshot.ranges.values()
        if not each.is_ended
    ]


def _hindrance(snapshot: JobSnapshot) -> str | None:
    """Why nothing can be said now, where a balancer would wait, too."""
    ready, wanted = snapshot.driver.workers_ready, snapshot.driver.workers
    if ready < wanted:
        return f"{wanted - ready} of {wanted} workers are not there; dataflow why says why"
    ranges: list[RangeEvidence] = [*snapshot.ranges.values()]
    if any(each.state is not RangeState.OWNED or each.handover_with for each in ranges):
        return "ranges are on their way, or being split or merged: ask again when they are where they belong"
    if all(each.records_per_s is None for each in ranges):
        return "the driver has only just begun to look: ask again in two seconds"
    return None


def _is_gathered(views: Sequence[RangeView], slots: int) -> bool:
    return slots > 1 and len({each.slot for each in views}) == 1


def _of_change(
    snapshot: JobSnapshot, planned: PlannedChange, state_bytes: Mapping[str, int]
) -> Advice:
    change, job = planned.change, snapshot.job
    name = str(change.range_id)
    kind, text, command = _command_of(job, change, planned)
    moves = kind is not AdviceKind.SPLIT
    return Advice(
        kind=kind,
        text=text,
        command=command,
        before=planned.before,
        after=planned.after,
        cost=Cost(
            pause_us=median_us(snapshot.driver.moves) if moves else None,
            moves=sum(snapshot.driver.moves.counts) if moves else 0,
            # What a merge brings together is in one slot already, and a split moves nothing yet.
            state_bytes=state_bytes.get(name) if kind is AdviceKind.MOVE else 0,
        ),
    )


def _command_of(job: str, change: Change, planned: PlannedChange) -> tuple[AdviceKind, str, str]:
    name = f"'{change.range_id}'"
    if isinstance(change, MoveRange):
        text = (
            f"move {change.range_id} to slot {change.slot}: its worker has more to do than others"
        )
        return AdviceKind.MOVE, text, f"dataflow move {job} {name} {change.slot} --wait"
    if isinstance(change, MergeRanges):
        text = f"merge {change.range_id} with {change.gone}: both have little to do"
        return AdviceKind.MERGE, text, f"dataflow merge {job} {name} '{change.gone}' --wait"
    text = f"split {change.range_id} at {change.at:#018x}, which makes {planned.born}: it has more than others together"
    return AdviceKind.SPLIT, text, f"dataflow split {job} {name} {change.at:#018x} --wait"


def _of_workers(snapshot: JobSnapshot, views: Sequence[RangeView]) -> Iterator[Advice]:
    """Whether the job has too few or too many workers, where its load is as well spread as it can be."""
    known = [each.busy_share for each in snapshot.workers if each.busy_share is not None]
    workers = len(snapshot.workers)
    if len(known) < workers:
        return
    needed = max(1, math.ceil(sum(known) / BUSY_SHARE))
    if min(known) >= TOO_BUSY_SHARE and needed > workers:
        yield Advice(
            kind=AdviceKind.MORE_WORKERS,
            text=f"run it with {needed} workers: {workers} are at work nearly all the time",
            command=None,
            before=known,
            after=[sum(known) / needed] * needed,
        )
        return
    job = JobView(
        ranges=views,
        long_share=snapshot.rates.get("long_ms_per_s", 0.0) / 1_000,
        state_bytes=snapshot.counts.get("cache_bytes", 0),
    )
    limit = snapshot.gather_bytes_max
    fits = limit is not None and fits_one_worker(job, PlacementOptions(state_bytes_max=limit))
    if workers > 1 and fits and needed == 1:
        yield Advice(
            kind=AdviceKind.GATHER,
            text="one worker can carry it: its driver moves all ranges to one by itself when that has lasted; with "
            "workers=1 the others need no task slot of Spark",
            command=None,
            before=known,
            after=[sum(known)],
        )
    elif needed * 2 <= workers:
        yield Advice(
            kind=AdviceKind.FEWER_WORKERS,
            text=f"run it with {needed} {'worker' if needed == 1 else 'workers'}: {workers} have little to do",
            command=None,
            before=known,
            after=[sum(known) / needed] * needed,
        )


def median_us(found: Histogram) -> int | None:
    """The bound below which half of the values are; the last bound if they are above all; None: there are none.

    Args:
        found: a histogram.
    """
    half, seen = sum(found.counts) / 2, 0
    if not half:
        return None
    for bound_us, count in zip(found.bounds_us, found.counts, strict=False):
        seen += count
        if seen >= half:
            return bound_us
    return found.bounds_us[-1]
