"""Adapters that guess what became of a commit."""

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Committed, Fenced


class ComparesBundlesOnly(MemoryStore):
    """Takes a successor's bundle of the same number for the lost one."""

    def resolve(self, production: Production) -> CommitOutcome:
        with self._lock:
            job = self._jobs.get(production.job)
            for fence in production.fences:
                row = job.ranges.get(fence.range_id) if job else None
                if row is None or row.bundle < fence.bundle:
                    return super().resolve(production)
            return Committed()


class ForgetsFormerOwners(MemoryStore):
    """After a takeover, answers Fenced for what had landed: its effects would be repeated."""

    def _move_token(self, job: StoredJob, range_id: RangeId, owner: str | None) -> None:
        super()._move_token(job, range_id, owner)
        job.last_bundles.clear()


class LeavesTheTokenAlone(MemoryStore):
    """Answers that a commit did not land, while it still can."""

    def resolve(self, production: Production) -> CommitOutcome:
        with self._lock:
            job = self._jobs.get(production.job)
            ranges = job.ranges if job else {}
            before = {f.range_id: ranges.get(f.range_id) for f in production.fences}
            outcome = super().resolve(production)
            if isinstance(outcome, Fenced) and job is not None:
                job.ranges.update({r: row for r, row in before.items() if row is not None})
            return outcome
