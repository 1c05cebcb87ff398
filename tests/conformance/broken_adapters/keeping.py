"""Adapters that purge too much, forget how much there was, or count twice."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from runners.core.ground.lineage import LineageKind
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.job import Kept, StoredJob
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import (
    CommitOutcome,
    Fenced,
    JobRow,
    JobUpdate,
    KeptKind,
    PurgedKind,
    StoredLineage,
)


class PurgesWhateverItsAge(MemoryStore):
    """Takes what came today for old."""

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        return super().purge(job, kind, up_to=up_to)


class PurgesWhatCameLater(MemoryStore):
    """Does not look at the numbers, so what came while it was replayed goes with the rest."""

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        return super().purge(job, kind, older_than_s=older_than_s)


class ForgetsHowManyWereLate(MemoryStore):
    """The number of late records shrinks when they are purged."""

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
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


class AddsWhatIsCountedAnew(MemoryStore):
    """An attempt that is repeated counts twice."""

    def _apply(self, job: StoredJob, production: Production) -> None:
        if production.metrics is not None:
            metrics = production.metrics._replace(is_anew=False)
            production = attrs.evolve(production, metrics=metrics)
        super()._apply(job, production)


class CountsWhatIsFenced(MemoryStore):
    """What a former owner has counted counts, though nothing of what it did does."""

    def commit(self, production: Production) -> CommitOutcome:
        outcome = super().commit(production)
        if isinstance(outcome, Fenced) and production.metrics is not None:
            self._jobs[production.job].metrics.append(production.metrics)
        return outcome


class FoldsWhatRangesCount(MemoryStore):
    """What a range may count anew cannot be told from the rest any more."""

    def fold_metrics(self, job: str, fold: Callable[[Sequence[bytes]], bytes]) -> None:
        if job in self._jobs:
            stored = self._jobs[job]
            stored.metrics = [each._replace(range_id=None) for each in stored.metrics]
        super().fold_metrics(job, fold)


class FoldsWithoutDeleting(MemoryStore):
    """What is folded counts twice."""

    def fold_metrics(self, job: str, fold: Callable[[Sequence[bytes]], bytes]) -> None:
        before = list(self._jobs[job].metrics) if job in self._jobs else []
        super().fold_metrics(job, fold)
        if job in self._jobs:
            after = self._jobs[job].metrics
            self._jobs[job].metrics = [*before, *(each for each in after if each not in before)]


class ForgetsMetricsOfTheGone(MemoryStore):
    """An update begins to count anew."""

    def update_job(self, update: JobUpdate) -> JobRow:
        row = super().update_job(update)
        self._jobs[update.spec.job].metrics.clear()
        return row


class RecordsLineageOfTheFenced(MemoryStore):
    """Lineage is there although its commit is not."""

    def commit(self, production: Production) -> CommitOutcome:
        outcome = super().commit(production)
        if isinstance(outcome, Fenced) and production.job in self._jobs:
            with self._lock:
                for entry in production.lineage:
                    number = next(self._tokens)
                    row = StoredLineage(number, 0, entry)
                    self._jobs[production.job].lineage.append(Kept(number, 0, row))
        return outcome


class FindsLineageOfAnyKind(MemoryStore):
    """Takes the panes of a key for its input."""

    def read_lineage(
        self, job: str, kind: LineageKind, transform: str, key_hash: int
    ) -> Sequence[StoredLineage]:
        read = super().read_lineage
        return [each for of in LineageKind for each in read(job, of, transform, key_hash)]


class KeepsLineageForEver(MemoryStore):
    """Deletes none of it."""

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        if kind == "lineage":
            return 0
        return super().purge(job, kind, older_than_s=older_than_s, up_to=up_to)
