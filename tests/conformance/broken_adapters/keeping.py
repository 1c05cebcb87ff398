"""Adapters that purge too much, or forget how much there was."""

from collections.abc import Mapping
from typing import Any

from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import KeptKind


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

    def prune(self, job: str, **options: Any) -> Mapping[str, int]:
        with self._lock:
            kept = dict(self._jobs[job].checkpoints) if job in self._jobs else {}
            if job in self._jobs:
                self._jobs[job].checkpoints.clear()
            counts = super().prune(job, **options)
            if job in self._jobs:
                self._jobs[job].checkpoints.update(kept)
            return counts


class PrunesWhatTheMasterStillHas(MemoryStore):
    """Deletes a range that a worker may yet be given."""

    def prune(self, job: str, **options: Any) -> Mapping[str, int]:
        known = self._jobs[job].ranges if job in self._jobs else ()
        return super().prune(job, **{**options, "retired": known})


class PrunesTheLastIndex(MemoryStore):
    """The next range that is born is given the index of one that is gone."""

    def prune(self, job: str, **options: Any) -> Mapping[str, int]:
        with self._lock:
            counts = super().prune(job, **options)
            if job in self._jobs and options["older_than_s"] == 0:
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
