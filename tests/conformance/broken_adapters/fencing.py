"""Adapters whose fence is no fence."""

import attrs

from runners.core.tables.changelog import apply_table_write
from runners.millwheel.model.ids import Fence
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Committed, Fenced

MANY_ROWS = 1_000


class NeverFences(MemoryStore):
    """Commits whatever comes."""

    def _holds(self, job: StoredJob, fence: Fence) -> bool:
        return True


class ChecksTheTokenOnly(MemoryStore):
    """A commit that was delayed on the wire lands on top of its successor."""

    def _holds(self, job: StoredJob, fence: Fence) -> bool:
        row = job.ranges.get(fence.range_id)
        return row is not None and row.token == fence.token


class FencesTheFirstRangeOnly(MemoryStore):
    """A worker with two ranges keeps writing to the one it lost."""

    def commit(self, production: Production) -> CommitOutcome:
        with self._lock:
            job = self._jobs.get(production.job)
            if job is None or not self._holds(job, production.fences[0]):
                return Fenced(production.fences[0].range_id)
            self._apply(job, production)
            return Committed()


class CommitsHalf(MemoryStore):
    """Not one transaction: what precedes the lost fence stays."""

    def commit(self, production: Production) -> CommitOutcome:
        with self._lock:
            job = self._jobs.get(production.job)
            valid = [f for f in production.fences if job is not None and self._holds(job, f)]
            if job is not None and valid and len(valid) < len(production.fences):
                self._apply_progress(job, attrs.evolve(production, fences=valid))
            return super().commit(production)


class LeavesItsFences(MemoryStore):
    """Writes all that the production asks for, fenced or not."""

    def commit(self, production: Production) -> CommitOutcome:
        with self._lock:
            job = self._jobs.get(production.job)
            if job is None:
                return Fenced(production.fences[0].range_id)
            for fence in production.fences:
                if not self._holds(job, fence):
                    return Fenced(fence.range_id)
            self._apply(job, production)
            return Committed()


class WritesManyRowsByTheWay(MemoryStore):
    """Copies rows into their table in a transaction of their own."""

    def commit(self, production: Production) -> CommitOutcome:
        kept = []
        for write in production.tables:
            if len(write.inserts) < MANY_ROWS:
                kept.append(write)
            else:
                apply_table_write(self._table(write.table).rows, write)
        return super().commit(attrs.evolve(production, tables=kept))
