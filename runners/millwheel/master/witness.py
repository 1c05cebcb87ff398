"""Witness: which commits workers have reported, so that a store that has lost some of them is found out.

The driver of a job starts again from the store when that may have lost something
(`runners.millwheel.store.port.Store.incarnation`).  But others have already seen what is lost, so the loss must be
reported.  A part of a store may also be older than the rest, without any sign of that: so a range is given to its next
owner with the last commit that is known of it (ADR 0042).

Pure bookkeeping.
"""

from collections.abc import Collection, Mapping

from runners.errors import LostCommitsError
from runners.millwheel.model.ids import CommitMark, RangeId
from runners.millwheel.store.channel_ends import lost_by
from runners.millwheel.store.port import JobRow, RangeRow

#: Ranges that an error names.
_NAMED_MAX = 8


class Witness:
    """Lives in the master.

    Args:
        job: as it was when the master began.
    """

    def __init__(self, job: JobRow) -> None:
        self._job = job
        self._marks = {
            range_id: _mark_of(row) for range_id, row in job.ranges.items() if not row.is_retired
        }
        self._retired = job.ranges.keys() - self._marks.keys()

    def retire(self, range_id: RangeId) -> None:
        """Forget a range that was merged into another: the store may delete it (`Store.prune`)."""
        self._retired |= {range_id}
        self._marks.pop(range_id, None)

    def on_report(self, commits: Mapping[RangeId, CommitMark]) -> None:
        """Note how far the ranges of a worker are committed, as it reports; also one that has been replaced since.

        Raises:
            LostCommitsError: reports of two owners of a range contradict each other, so the later one began with too
                little.
        """
        for range_id, mark in commits.items():
            if range_id in self._retired:
                continue
            known = self._marks.get(range_id, mark)
            if (mark.token - known.token) * (mark.bundle - known.bundle) < 0:
                raise lost_by(self._job.job, range_id, min(mark, known))
            self._marks[range_id] = CommitMark(*map(max, known, mark))

    def known_of(self, computations: Collection[str]) -> Mapping[RangeId, CommitMark]:
        """How far the ranges of computations are committed, where that is known.

        Whoever takes a range over is given all of them, and not those alone that it is to take: with a range come those
        that the store has in handover with it, which in a store at an earlier moment can be others than the master has.
        """
        return {
            each: mark for each, mark in self._marks.items() if each.computation in computations
        }

    def check(self, job: JobRow | None, place: str) -> None:
        """Compare with what the store has now.

        Args:
            job: as the store has it; None if it has not.
            place: which store, for the message.

        Raises:
            LostCommitsError: something is missing; the message has what was reported and what there is, in numbers.
        """
        if job is None:
            lost = ["the job itself"]
        else:
            lost = [
                f"{range_id}: {mark} was committed, the store has {_found(job.ranges.get(range_id))}"
                for range_id, mark in sorted(self._marks.items())
                if not _has(job.ranges.get(range_id), mark)
            ]
            if job.version < self._job.version:
                lost.append(f"version {self._job.version} of the job, the store has {job.version}")
        if lost:
            more = f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
            raise LostCommitsError(
                f"the store has lost commits of job {self._job.job!r}: it is at an earlier moment",
                detail=f"{place}; {'; '.join(lost[:_NAMED_MAX])}{more}",
                hint="was a backup restored, or has a standby taken over that lagged behind? State and result tables "
                "are consistent, as of that moment: run the job again, and it goes on from there; but programs that "
                "have read rows since then have seen some that are gone (docs/how-to/fail-over-and-restore.md)",
            )


def _mark_of(row: RangeRow) -> CommitMark:
    return CommitMark(row.token, row.bundle)


def _has(row: RangeRow | None, mark: CommitMark) -> bool:
    return row is not None and row.token >= mark.token and row.bundle >= mark.bundle


def _found(row: RangeRow | None) -> str:
    return "no such range" if row is None else str(_mark_of(row))
