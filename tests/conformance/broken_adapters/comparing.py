"""Adapters that do not find out, or find too often, that a part of the store has gone back."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from runners.errors import LostCommitsError, StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.channel_ends import check_channels
from runners.millwheel.store.memory.job import StoredJob, ends_of, has_committed
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, JobRow, JobUpdate, TakenRange


class TakesRangesAsTheyAre(MemoryStore):
    """Gives out ranges whose channels contradict each other."""

    def _check_taken(self, job: StoredJob, range_ids: Sequence[RangeId]) -> None:
        pass


class BlamesWhoAsks(MemoryStore):
    """Answers of a range that is not there that somebody was mistaken, so that whoever comes next asks for it again."""

    def acquire(self, *args: Any, **options: Any) -> Mapping[RangeId, TakenRange]:
        try:
            return super().acquire(*args, **options)
        except LostCommitsError as error:
            raise StoreError(str(error)) from None

    def commit(self, production: Production) -> CommitOutcome:
        try:
            return super().commit(production)
        except LostCommitsError as error:
            raise StoreError(str(error)) from None


class SendsToTheRetired(MemoryStore):
    """Gives out productions that nobody will ever take in."""

    def _check_receivers(self, job: StoredJob, range_ids: Sequence[RangeId]) -> None:
        pass


class AsksForWhatWasNeverKept(MemoryStore):
    """Believes that every receiver writes down what it takes in."""

    def _check_taken(self, job: StoredJob, range_ids: Sequence[RangeId]) -> None:
        ends = [
            attrs.evolve(each, receipt=each.receipt._replace(is_remembered=True))
            for each in ends_of(job, range_ids)
            if each.receipt is not None
        ]
        check_channels(
            job.spec.job, ends, lambda range_id, mark: has_committed(job, range_id, mark)
        )


class ComparesNumbersOnly(MemoryStore):
    """Keeps the numbers of a channel, and forgets the commits that they rely on."""

    def _apply_deliveries(self, job: StoredJob, production: Production) -> None:
        super()._apply_deliveries(job, production)
        job.origins.clear()
        job.receipts.clear()


class ForgetsCuts(MemoryStore):
    """Forgets how far others had come when the next commit says nothing of it."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        job.cuts.clear()
        super()._apply_progress(job, production)


class KeepsTheFirstCut(MemoryStore):
    """Does not keep the cut of a later commit in place of an earlier one."""

    def _apply_progress(self, job: StoredJob, production: Production) -> None:
        before = dict(job.cuts)
        super()._apply_progress(job, production)
        job.cuts.update(before)


class ForgetsCutsInAnUpdate(MemoryStore):
    """Takes what ranges know of each other to be about a former version."""

    def update_job(self, update: JobUpdate) -> JobRow:
        row = super().update_job(update)
        self._jobs[update.spec.job].cuts.clear()
        return row


class CommitsWhateverIsReliedOn(MemoryStore):
    """Lets a commit rely on what its sender has lost."""

    def _check_relied_on(self, job: StoredJob, production: Production) -> None:
        super()._check_relied_on(job, attrs.evolve(production, origins={}))


class BelievesEveryReceipt(MemoryStore):
    """Deletes what its receiver has lost."""

    def _check_relied_on(self, job: StoredJob, production: Production) -> None:
        super()._check_relied_on(job, attrs.evolve(production, receipts={}))


class LooksAtOwnersOfNowOnly(MemoryStore):
    """Believes whatever is claimed of what a former owner has committed."""

    def _check_relied_on(self, job: StoredJob, production: Production) -> None:
        origins = {
            channel: mark
            for channel, mark in production.origins.items()
            if mark.token == job.ranges[channel.sender].token
        }
        super()._check_relied_on(job, attrs.evolve(production, origins=origins))


class ForgetsWhomItHasPruned(MemoryStore):
    """Takes what a former owner had committed for lost, because it is pruned."""

    def prune(self, job: str, **options: Any) -> Mapping[str, int]:
        pruned = super().prune(job, **options)
        self._jobs[job].forgotten_tokens.clear()
        return pruned
