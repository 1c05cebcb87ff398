"""Adapters that open or update jobs wrongly."""

from collections.abc import Mapping, Sequence

import attrs

from dataflow.table import TableSpec
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow, JobSpec, JobUpdate, TakenRange


class CreatesTheJobForAll(MemoryStore):
    """Each of several drivers takes its run for the first, and none fences the others."""

    def open_job(self, spec: JobSpec) -> JobRow:
        return attrs.evolve(super().open_job(spec), is_new=True)


class GivesRangesToOldVersions(MemoryStore):
    """A worker that does not know of the update goes on with code of the old version."""

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        return super().acquire(job, range_ids, owner, cause=cause)


class LeavesOwnersTheirTokens(MemoryStore):
    """Workers of the old version go on committing."""

    def update_job(self, update: JobUpdate) -> JobRow:
        with self._lock:
            before = self._jobs[update.spec.job].ranges if update.spec.job in self._jobs else {}
            row = super().update_job(update)
            ranges = self._jobs[update.spec.job].ranges
            for range_id, old in before.items():
                name = update.kept.get(range_id.computation)
                if name is not None:
                    new = RangeId(name, range_id.index)
                    ranges[new] = attrs.evolve(ranges[new], token=old.token)
            return attrs.evolve(row, ranges=dict(ranges))


class KeepsChannelsOfTheGone(MemoryStore):
    """What was sent to a computation that begins anew is delivered to the new one."""

    def update_job(self, update: JobUpdate) -> JobRow:
        with self._lock:
            before = self._jobs.get(update.spec.job)
            row = super().update_job(update)
            if before is not None:
                after = self._jobs[update.spec.job]
                for channel, pending in before.checkpoints.items():
                    if {channel.sender, channel.receiver} <= after.ranges.keys():
                        after.checkpoints.setdefault(channel, dict(pending))
            return row


class KeepsCellsByName(MemoryStore):
    """Cells of a computation that is renamed stay under the old name."""

    def update_job(self, update: JobUpdate) -> JobRow:
        with self._lock:
            before = self._jobs.get(update.spec.job)
            row = super().update_job(update)
            if before is not None:
                self._jobs[update.spec.job].cells = before.cells
            return row


class UpdatesWhateverThereIs(MemoryStore):
    """What was planned for other state than there is, is carried out."""

    def update_job(self, update: JobUpdate) -> JobRow:
        counts = self.count_state(update.spec.job)
        return super().update_job(attrs.evolve(update, counts=counts))


class LeavesRowsOfTheGone(MemoryStore):
    """What is gone has left its rows behind."""

    def update_job(self, update: JobUpdate) -> JobRow:
        return super().update_job(attrs.evolve(update, emptied=()))


class EmptiesTablesOfOthers(MemoryStore):
    """Another job that shares a table loses its rows with those of this one."""

    def _own(self, job: str, tables: Sequence[TableSpec]) -> dict[str, int]:
        return {
            each.name: len(self._tables[each.name].rows)
            for each in tables
            if each.name in self._tables and job in self._tables[each.name].users
        }
