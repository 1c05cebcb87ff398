"""Counts: what a worker has done, or all workers together; with ids of records, and with its cache of cells."""

from collections.abc import Iterable, Mapping

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad


@attrs.define(kw_only=True)
class IdCounts:
    """Counts of what a worker has done with the ids of records since it started.

    Attributes:
        duplicates: records dropped, because they had been read before.
        passed: new ids that the filter let through.
        maybes: ids that the table was asked for because the filter was not sure.
        false_maybes: the maybes that were new.  Queries while a filter is loaded are not counted.
        kept: ids in the filters now.
    """

    duplicates: int = 0
    passed: int = 0
    maybes: int = 0
    false_maybes: int = 0
    kept: int = 0

    def __add__(self, other: "IdCounts") -> "IdCounts":
        mine, theirs = attrs.astuple(self), attrs.astuple(other)
        names = [field.name for field in attrs.fields(IdCounts)]
        return IdCounts(**dict(zip(names, map(sum, zip(mine, theirs, strict=True)), strict=True)))

    def of_the_past(self) -> "IdCounts":
        """The counts of a worker that is gone, together with its filters."""
        return attrs.evolve(self, kept=0)

    @property
    def false_positive_rate(self) -> float:
        """The part of the new ids that the table was asked for; 0 if there were none."""
        new = self.passed + self.false_maybes
        return self.false_maybes / new if new else 0.0


@attrs.frozen(kw_only=True)
class CacheCounts:
    """How many bytes the cells of a worker take in memory, and how many were read and evicted since it started.

    Attributes:
        bytes_buffered: what is in memory now.
        hits: cells that a step needed and that were in memory.
        misses: cells that a step needed and that were not in memory; neither hits nor misses are counted while all
            cells are in memory.
        loads: reads of the store because of misses.
        evictions: cells that were evicted.
    """

    bytes_buffered: int = 0
    hits: int = 0
    misses: int = 0
    loads: int = 0
    evictions: int = 0

    def __add__(self, other: "CacheCounts") -> "CacheCounts":
        return CacheCounts(
            bytes_buffered=self.bytes_buffered + other.bytes_buffered,
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            loads=self.loads + other.loads,
            evictions=self.evictions + other.evictions,
        )

    def of_the_past(self) -> "CacheCounts":
        """The counts of a worker that is gone, without what it had in memory."""
        return attrs.evolve(self, bytes_buffered=0)


@attrs.frozen(kw_only=True)
class Counts:
    """Counts since the worker started; of a job, since its master did.

    Attributes:
        records_read: from sources.
        records_late: dropped, because their window had expired.
        records_dead: that became dead letters.
        stragglers: weak productions that were made durable after all (`runners.millwheel.worker.committer`).
        long_ms: time in long rounds (`runners.millwheel.worker.worker`), in milliseconds.
        long_rounds: how many of these there were.
        record_ids: what became of the ids of records.
        cell_cache: what is in memory of the state.
        loads: of each range, since its worker owns it (`runners.millwheel.model.loads`).
    """

    records_read: int = 0
    records_late: int = 0
    records_dead: int = 0
    stragglers: int = 0
    long_ms: int = 0
    long_rounds: int = 0
    record_ids: IdCounts = attrs.field(factory=IdCounts)
    cell_cache: CacheCounts = attrs.field(factory=CacheCounts)
    loads: Mapping[RangeId, RangeLoad] = attrs.field(factory=dict)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            records_read=self.records_read + other.records_read,
            records_late=self.records_late + other.records_late,
            records_dead=self.records_dead + other.records_dead,
            stragglers=self.stragglers + other.stragglers,
            long_ms=self.long_ms + other.long_ms,
            long_rounds=self.long_rounds + other.long_rounds,
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
