"""Adapters that apply a production wrongly."""

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from dataflow.table import TableSpec
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.job import StoredJob, StoredTable
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, TakenRange


class AcknowledgesTooMuch(MemoryStore):
    """Deletes the whole channel, sent and unsent, as soon as one production is acknowledged."""

    def _apply_deliveries(self, job: StoredJob, production: Production) -> None:
        super()._apply_deliveries(job, production)
        for channel in production.acknowledged:
            job.checkpoints.pop(channel, None)


class ForgetsSentMarks(MemoryStore):
    """Gives sequence numbers out twice once the productions are gone."""

    def _apply_deliveries(self, job: StoredJob, production: Production) -> None:
        super()._apply_deliveries(job, production)
        job.acknowledged.clear()


class KeepsDeletedCells(MemoryStore):
    """State that was cleared comes back after a takeover."""

    def _apply_state(self, job: StoredJob, production: Production) -> None:
        cells = [cell for cell in production.cells if cell.value is not None]
        super()._apply_state(job, attrs.evolve(production, cells=cells))


class LetsWatermarksGoBack(MemoryStore):
    """Believes the last report, not the highest."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        super()._apply_progress(job, production)
        for range_id, watermark_us in production.watermarks_us.items():
            row = job.ranges[range_id]
            job.ranges[range_id] = attrs.evolve(row, watermark_us=watermark_us)


class LetsPercentilesGoBack(MemoryStore):
    """Lets percentile watermarks go back."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        super()._apply_progress(job, production)
        for range_id, percentile_us in production.percentiles_us.items():
            row = job.ranges[range_id]
            job.ranges[range_id] = attrs.evolve(row, percentile_us=percentile_us)


class ForgetsWatermarksOfFirings(MemoryStore):
    """Keeps no watermark by which a range has fired only some of what is due."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        super()._apply_progress(job, attrs.evolve(production, firing_us={}))


class LetsWatermarksOfFiringsGoBack(MemoryStore):
    """Lets the watermark by which a range is firing go back."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        super()._apply_progress(job, production)
        for range_id, firing_us in production.firing_us.items():
            row = job.ranges[range_id]
            job.ranges[range_id] = attrs.evolve(row, firing_us=firing_us)


class AddsRowsInPlaceOfReplacing(MemoryStore):
    """A correction stands beside what it corrects."""

    def _table(self, table: TableSpec) -> StoredTable:
        stored = super()._table(table)
        for key in [key for key in stored.rows if isinstance(key, tuple)]:
            stored.rows[len(stored.rows) + 1000] = stored.rows.pop(key)
        return stored


class RetractsRowsByTheirKey(MemoryStore):
    """One owner's retraction takes the row of another."""

    def _apply(self, job: StoredJob, production: Production) -> None:
        for write in production.tables:
            rows = self._table(write.table).rows
            for before, _ in write.changes:
                if before is not None:
                    rows.pop(tuple(before[index] for index in write.table.key_indexes), None)
        super()._apply(job, production)


class LetsRowsReplaceOthers(MemoryStore):
    """The last one to write a row of a key has it."""

    def _check_new(self, job: StoredJob, production: Production) -> None:
        for write in production.tables:
            rows = self._table(write.table).rows
            for _, after in write.changes:
                if after is not None:
                    rows.pop(tuple(after[index] for index in write.table.key_indexes), None)
        super()._check_new(job, production)


class CountsLateRows(MemoryStore):
    """Takes a row of late records for one record."""

    def read_late_counts(self, job: str) -> Mapping[str, int]:
        return Counter(row["transform"] for row in self.read_late(job))


class AsksSendersOnly(MemoryStore):
    """Numbers that only receivers have are given out again."""

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        found = super().acquire(job, range_ids, owner, version, cause)
        delivered = self._jobs[job].delivered
        return {
            range_id: attrs.evolve(
                taken, sent={c: n for c, n in taken.sent.items() if n != delivered.get(c)}
            )
            for range_id, taken in found.items()
        }


class ForgetsDeadLetters(MemoryStore):
    """A record that user code cannot take is nowhere."""

    def commit(self, production: Production) -> CommitOutcome:
        return super().commit(attrs.evolve(production, dead=()))
