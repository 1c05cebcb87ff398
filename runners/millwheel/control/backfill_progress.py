"""Backfill progress: how far the backfill of a job is, as the store has it, and the commit that ends it.

A streaming job may begin with a backfill: the batch engine reads its sources up to a point, and leaves in the store
what a stream would have there if it had been paused at that point.  Until the backfill is complete the position of a
split is a `SplitMark`, from which no stream can go on reading.  `go_live` turns all marks into positions in one commit;
before it only the backfill may change the job, and after it only the stream.

**Invariants**

* How far a split is read is durable before any record of it is passed on, so a task that reads it again, because the
  records were lost, reads the same records.
* The positions of all splits appear in one commit, after everything that was read before them is in the store.

ADR 0022.
"""

from enum import Enum

from runners.errors import BackfillError, StoreUnreachableError
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.commit_or_resolve import commit_or_resolve
from runners.millwheel.store.port import Fenced, Indeterminate, JobRow, RangeRow, Store
from runners.stored.places import SplitMark, decode_split_mark, encode_position
from windowing.timestamps import MAX_TIMESTAMP_US

#: The owner of a job's ranges during its backfill, until a stream takes them over.
OWNER = "backfill"


def mark_of(row: RangeRow) -> SplitMark | None:
    """The mark of a range; None if it has none."""
    return None if row.position is None else decode_split_mark(row.position)


class BackfillState(Enum):
    """How much of a backfill a job has."""

    #: Nothing: no backfill and no stream has begun.
    NONE = "none"
    #: A part; only a backfill can go on.
    HALF = "half"
    #: All of it, and no stream has begun.
    LOADED = "loaded"
    #: A stream has the job, with a backfill or without.
    LIVE = "live"


def backfill_state(job: JobRow) -> BackfillState:
    """How far the backfill of a job is."""
    rows = job.ranges.values()
    sources = [row for row in rows if row.split is not None]
    if any(mark_of(row) is not None for row in sources):
        return BackfillState.HALF
    if not any(row.bundle for row in rows):
        return BackfillState.NONE
    is_ours = all(row.owner == OWNER for row in sources)
    return BackfillState.LOADED if is_ours else BackfillState.LIVE


def begun(job: JobRow) -> SplitMark | None:
    """Any mark of a split, with the point and processing time of the backfill under way; None if there is no mark."""
    sources = (row for row in job.ranges.values() if row.split is not None)
    return next(filter(None, map(mark_of, sources)), None)


def is_loaded(row: RangeRow) -> bool:
    """Whether the backfill of a range is complete, in a job whose backfill is under way."""
    mark = mark_of(row)
    return mark is not None and mark.is_end


def check_backfill_is_whole(job: JobRow) -> None:
    """Refuse to run a job as it is when a backfill has been interrupted.

    Raises:
        BackfillError: that is so.
    """
    if backfill_state(job) is BackfillState.HALF:
        loaded = sum(map(is_loaded, job.ranges.values()))
        raise BackfillError(
            f"the backfill of job {job.job!r} is loaded only in part, so it cannot go live",
            detail=f"a backfill was interrupted: {loaded} of {len(job.ranges)} ranges are complete",
            hint="run the backfill again, it keeps these and loads the others; or fresh=True, to start over",
        )


def check_may_be_loaded(job: JobRow) -> None:
    """Refuse to begin a backfill of a job that has gone live.

    Raises:
        BackfillError: that is so.
    """
    if backfill_state(job) is BackfillState.LIVE:
        moved = [str(row.range_id) for row in job.ranges.values() if row.bundle]
        raise BackfillError(
            f"job {job.job!r} has gone live, so no backfill can be loaded into it",
            detail=f"a stream has committed to {', '.join(sorted(moved)[:3])}{' and others' * (len(moved) > 3)}",
            hint="run it as a stream, which goes on; or choose another job name, or fresh=True, to start over",
        )


def go_live(store: Store, job: str) -> None:
    """Replace the marks by positions, when every range of a job is loaded.

    Called again after an error it does what is left to do, if anything.

    Args:
        store: that has the job.
        job: its name.

    Raises:
        BackfillError: a range is not loaded, or another process is changing the job.
        StoreUnreachableError: it is unknown whether it is done.
    """
    found = store.read_job(job)
    rows = {} if found is None else found.ranges
    missing = [str(range_id) for range_id, row in sorted(rows.items()) if not is_loaded(row)]
    if missing or not rows:
        raise BackfillError(
            f"the backfill of job {job!r} is not complete",
            detail=f"missing: {', '.join(missing[:3]) or 'the job'}",
            hint="run the backfill again; check whether another one is running, or the job was reset",
        )
    sources = [range_id for range_id, row in rows.items() if row.split is not None]
    taken = {each.row.range_id: each.row for each in store.acquire(job, sources, OWNER).values()}
    result = commit_or_resolve(store, _promotion(job, taken))
    outcome = result.outcome
    if isinstance(outcome, Indeterminate):
        raise StoreUnreachableError(
            f"it is not known whether job {job!r} may go live",
            detail=result.detail,
            hint="check that the store is up, and run the same again: it finds out first whether that was committed",
        )
    if isinstance(outcome, Fenced):
        raise BackfillError(
            f"another process has taken {outcome.range_id} of job {job!r}",
            detail=result.detail,
            hint="check whether another backfill of the job is running",
        )


def _promotion(job: str, sources: dict[RangeId, RangeRow]) -> Production:
    positions, watermarks_us, finished = {}, {}, set[RangeId]()
    for range_id, row in sources.items():
        mark = mark_of(row)
        assert mark is not None
        positions[range_id], watermarks_us[range_id] = (
            encode_position(mark.position),
            mark.watermark_us,
        )
        if mark.is_source_finished:
            watermarks_us[range_id] = MAX_TIMESTAMP_US
            finished.add(range_id)
    return Production(
        job=job,
        fences=[
            Fence(range_id=range_id, token=row.token, bundle=row.bundle + 1)
            for range_id, row in sources.items()
        ],
        positions=positions,
        watermarks_us=watermarks_us,
        finished=frozenset(finished),
    )
