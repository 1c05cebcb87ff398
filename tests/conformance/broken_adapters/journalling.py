"""Adapters that keep the journal wrongly."""

from collections.abc import Mapping, Sequence

import attrs

from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, TakenRange


class SortsTheJournal(MemoryStore):
    """Sorts entries as text, which is their order until there are ten."""

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        taken = super().acquire(job, range_ids, owner, version, cause)
        return {
            each: attrs.evolve(found, journal=sorted(found.journal))
            for each, found in taken.items()
        }


class CompactsAllRanges(MemoryStore):
    """Compacts the journal of every range as far as that of one was compacted."""

    def commit(self, production: Production) -> CommitOutcome:
        with self._lock:
            for bundle in production.compacted.values():
                journal = self._job(production.job).journal
                for range_id, entries in journal.items():
                    journal[range_id] = [each for each in entries if each[0] > bundle]
            return super().commit(production)


class CompactsTooMuch(MemoryStore):
    """Everything that is there, whatever bundle was named."""

    def commit(self, production: Production) -> CommitOutcome:
        bundles = {fence.range_id: fence.bundle for fence in production.fences}
        compacted = {each: bundles[each] for each in production.compacted}
        return super().commit(attrs.evolve(production, compacted=compacted))


class KeepsWhatIsCompacted(MemoryStore):
    """The journal only grows."""

    def commit(self, production: Production) -> CommitOutcome:
        return super().commit(attrs.evolve(production, compacted={}))
