"""Adapters that purge too much, or forget how much there was."""

from collections.abc import Mapping

from runners.millwheel.store.memory import MemoryStore
from runners.millwheel.store.memory_job import delete_retired
from runners.millwheel.store.port import PRUNED, KeptKind


class PurgesWhateverItsAge(MemoryStore):
    """Takes what came today for old."""

    def purge(
        self, job: str, kind: KeptKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        return super().purge(job, kind, up_to=up_to)


class PurgesWhatCameLater(MemoryStore):
    """Does not look at the numbers, so what came while it was replayed goes with the rest."""

    def purge(
        self, job: str, kind: KeptKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        return super().purge(job, kind, older_than_s=older_than_s)


class ForgetsHowManyWereLate(MemoryStore):
    """The number of late records shrinks when they are purged."""

    def purge(
        self, job: str, kind: KeptKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        purged = super().purge(job, kind, older_than_s=older_than_s, up_to=up_to)
        with self._lock:
            if job in self._jobs:
                self._jobs[job].purged_late.clear()
        return purged


class PrunesWhatIsOnItsWay(MemoryStore):
    """Deletes a range although somebody has not taken in yet what it sent."""

    def prune(self, job: str, *, older_than_s: float, signals_up_to: int = 0) -> Mapping[str, int]:
        with self._lock:
            counts = dict.fromkeys(PRUNED, 0)
            if job in self._jobs:
                stored = self._jobs[job]
                kept = dict(stored.checkpoints)
                stored.checkpoints.clear()
                until_ms = self._clock.monotonic_ms() - round(older_than_s * 1_000)
                counts["ranges"] = delete_retired(stored, until_ms)
                stored.checkpoints.update(kept)
            return counts


class PrunesTheLastIndex(MemoryStore):
    """The next range that is born is given the index of one that is gone."""

    def prune(self, job: str, *, older_than_s: float, signals_up_to: int = 0) -> Mapping[str, int]:
        with self._lock:
            counts = dict(super().prune(job, older_than_s=older_than_s))
            if job in self._jobs and older_than_s == 0:
                stored = self._jobs[job]
                for range_id in list(stored.retired_ms):
                    if not any(range_id in channel for channel in stored.checkpoints):
                        del stored.ranges[range_id], stored.retired_ms[range_id]
            return counts


class ReplaysWhateverThereIs(MemoryStore):
    """A replay that was cut off is about more rows the second time."""

    def begin_replay(self, job: str, kind: KeptKind) -> int | None:
        self.end_replay(job, kind)
        return super().begin_replay(job, kind)
