"""Adapters that get splits and merges wrong."""

from typing import Any

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.guards import unknown_range
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Committed


class AcceptsAnyBounds(MemoryStore):
    """Does not look at what new bounds cover."""

    def commit(self, production: Production) -> CommitOutcome:
        reshape = production.reshape
        outcome = super().commit(attrs.evolve(production, reshape=None))
        if reshape is not None and isinstance(outcome, Committed):
            job = self._jobs[production.job]
            for range_id, keys in reshape.keys.items():
                if range_id in job.ranges:
                    job.ranges[range_id] = attrs.evolve(job.ranges[range_id], keys=keys)
        return outcome


class _Afterwards(MemoryStore):
    """Spoils something after a production has been applied."""

    def _apply(self, job: StoredJob, production: Production) -> None:
        super()._apply(job, production)
        for range_id in production.reshape.keys if production.reshape else ():
            job.ranges[range_id] = attrs.evolve(job.ranges[range_id], **self.spoilt)

    spoilt: dict[str, Any]


class ForgetsHandovers(_Afterwards):
    """Hands out a new range without the one that it comes from."""

    spoilt = {"handover_with": None}


class StartsNewRangesFromNothing(_Afterwards):
    """A new range has no input watermark."""

    spoilt = {"watermark_us": None}


class KeepsHandovers(MemoryStore):
    """Handovers never end."""

    def _apply(self, job: StoredJob, production: Production) -> None:
        super()._apply(job, attrs.evolve(production, ended_handovers=frozenset()))


class KnowsRangesFromItsFirstCommit(MemoryStore):
    """An owner has looked up the ranges of the job once, and what was made since it cannot send to."""

    def commit(self, production: Production) -> CommitOutcome:
        owner = tuple((fence.range_id, fence.token) for fence in production.fences)
        job = self._jobs[production.job]
        known = self._known.setdefault(owner, frozenset(job.ranges))
        if unknown := production.named_ranges() - known:
            raise unknown_range(production.job, min(unknown))
        return super().commit(production)

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[tuple[RangeId, int], ...], frozenset[RangeId]] = {}


class SendsToAnybody(MemoryStore):
    """Keeps productions for ranges that nobody has."""

    def commit(self, production: Production) -> CommitOutcome:
        job = self._jobs[production.job]
        known = [each for each in production.checkpoints if each.channel.receiver in job.ranges]
        outcome = super().commit(attrs.evolve(production, checkpoints=known))
        if isinstance(outcome, Committed):
            self._apply_deliveries(job, production)
        return outcome
