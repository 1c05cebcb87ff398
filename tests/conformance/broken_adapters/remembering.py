"""Adapters that remember the ids of records wrongly."""

from collections.abc import Sequence

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome


class ForgetsRecordIds(MemoryStore):
    """Keeps the ids of the last commit only."""

    def commit(self, production: Production) -> CommitOutcome:
        with self._lock:
            for range_id in production.record_ids:
                self._job(production.job).record_ids.pop(range_id, None)
            return super().commit(production)


class ForgetsRecordIdsAtTheHorizon(MemoryStore):
    """Takes the horizon for a time that is behind itself."""

    def commit(self, production: Production) -> CommitOutcome:
        horizons_us = {each: us + 1 for each, us in production.record_id_horizons_us.items()}
        return super().commit(attrs.evolve(production, record_id_horizons_us=horizons_us))


class ForgetsRecordIdsOfAllRanges(MemoryStore):
    """A horizon of one range is taken for that of all."""

    def commit(self, production: Production) -> CommitOutcome:
        horizons_us = production.record_id_horizons_us
        if horizons_us:
            latest_us = max(horizons_us.values())
            fenced = {fence.range_id: latest_us for fence in production.fences}
            production = attrs.evolve(production, record_id_horizons_us=fenced)
        return super().commit(production)


class SkipsRecordIdsBetweenPages(MemoryStore):
    """A page begins one id too late."""

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        page = super().read_record_ids(job, range_id, after, count + 1)
        return page[1:] if after else page[:count]
