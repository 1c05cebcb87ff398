"""Counts: what a worker has done, or all workers together."""

from collections.abc import Iterable, Mapping

import attrs

from runners.millwheel.model.cache_counts import CacheCounts
from runners.millwheel.model.id_counts import IdCounts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad


@attrs.frozen(kw_only=True)
class Counts:
    """Counts since the worker started; of a job, since its master did.

    Attributes:
        records_read: from sources.
        records_late: dropped, because their window had expired.
        records_dead: that became dead letters.
        stragglers: weak productions that were made durable after all (`runners.millwheel.worker.committer`).
        record_ids: what became of the ids of records.
        cell_cache: what is in memory of the state.
        loads: of each range, since its worker owns it (`runners.millwheel.model.loads`).
    """

    records_read: int = 0
    records_late: int = 0
    records_dead: int = 0
    stragglers: int = 0
    record_ids: IdCounts = attrs.field(factory=IdCounts)
    cell_cache: CacheCounts = attrs.field(factory=CacheCounts)
    loads: Mapping[RangeId, RangeLoad] = attrs.field(factory=dict)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            records_read=self.records_read + other.records_read,
            records_late=self.records_late + other.records_late,
            records_dead=self.records_dead + other.records_dead,
            stragglers=self.stragglers + other.stragglers,
            record_ids=self.record_ids + other.record_ids,
            cell_cache=self.cell_cache + other.cell_cache,
            loads={**self.loads, **other.loads},
        )

    @classmethod
    def total(cls, counts: Iterable["Counts"]) -> "Counts":
        """The counts of many workers together; their loads by range are merged once, and not worker by worker."""
        each = list(counts)
        loads = {range_id: load for one in each for range_id, load in one.loads.items()}
        total = sum((attrs.evolve(one, loads={}) for one in each), cls())
        return attrs.evolve(total, loads=loads)

    def of_the_past(self) -> "Counts":
        """The counts of a worker that is gone, without what it had in memory."""
        return attrs.evolve(
            self,
            record_ids=self.record_ids.of_the_past(),
            cell_cache=self.cell_cache.of_the_past(),
            loads={},
        )
