"""Adapters that take what is too large, or lose what is much."""

import attrs

from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Fenced


class TakesAnySize(MemoryStore):
    """Does not look at sizes."""

    def commit(self, production: Production) -> CommitOutcome:
        known, self.value_bytes_max = self.value_bytes_max, 1 << 40
        outcome = super().commit(production)
        self.value_bytes_max = known
        return outcome


class FencesWhatIsTooLarge(MemoryStore):
    """Answers that a range is lost when a value is too large."""

    def commit(self, production: Production) -> CommitOutcome:
        values = [*(each.value or b"" for each in production.cells)]
        values += [each.payload for each in production.checkpoints]
        values += [each.payload for each in production.journal]
        if max(map(len, values), default=0) > self.value_bytes_max:
            return Fenced(production.fences[0].range_id)
        return super().commit(production)


class WritesTheFirstPortion(MemoryStore):
    """What is behind a bound is left out."""

    def commit(self, production: Production) -> CommitOutcome:
        return super().commit(attrs.evolve(production, journal=production.journal[:10]))
