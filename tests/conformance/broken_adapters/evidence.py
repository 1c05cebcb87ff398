"""Adapters that tell people something else than what is, of drivers, events and what is on its way."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from runners.millwheel.model.events import UNKNOWN, Cause, EventKind, JobEvent, StoredEvent
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.troubles import Trouble
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import PendingChannel, StoredSnapshot, TakenRange

_UNANSWERED = {"is_done": None, "answer": None}


class KeepsTheFirstSnapshot(MemoryStore):
    """What a driver knew first is never replaced."""

    def note_snapshot(self, job: str, document: bytes, taken_us: int) -> None:
        if self.read_snapshot(job) is None:
            super().note_snapshot(job, document, taken_us)


class KeepsSnapshotsOfTheReset(MemoryStore):
    """What a driver knew outlives its job."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, tuple[bytes, int]] = {}

    def note_snapshot(self, job: str, document: bytes, taken_us: int) -> None:
        self._kept[job] = document, taken_us
        super().note_snapshot(job, document, taken_us)

    def read_snapshot(self, job: str) -> StoredSnapshot | None:
        found = super().read_snapshot(job)
        if found is None and job in self._kept:
            document, taken_us = self._kept[job]
            return StoredSnapshot(document=document, taken_us=taken_us, age_s=0.0)
        return found


class ShowsTheFirstEventsFirst(MemoryStore):
    """The oldest event comes first."""

    def read_events(self, job: str, most: int = 100) -> Sequence[StoredEvent]:
        return super().read_events(job, most)[::-1]


class ForgetsDetailsOfEvents(MemoryStore):
    """Keeps what everybody sees at first sight."""

    def note_event(self, job: str, event: JobEvent) -> None:
        super().note_event(job, attrs.evolve(event, details={}))


class ForgetsWhyRangesAreTaken(MemoryStore):
    """A takeover has no reason."""

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        return super().acquire(job, range_ids, owner, version)


class CountsFailuresOnce(MemoryStore):
    """A trouble that is known already is no event."""

    def note_troubles(self, job: str, troubles: Sequence[Trouble]) -> None:
        known = {each.trouble.reason for each in self.read_troubles(job)}
        super().note_troubles(job, [each for each in troubles if each.reason not in known])


class HidesAnswers(MemoryStore):
    """Shows requests as they were asked, and not what came of them."""

    def read_events(self, job: str, most: int = 100) -> Sequence[StoredEvent]:
        found = super().read_events(job, most)
        return [
            each
            if each.event.kind is not EventKind.REQUEST
            else attrs.evolve(
                each, event=attrs.evolve(each.event, details={**each.event.details, **_UNANSWERED})
            )
            for each in found
        ]


class KeepsAllEvents(MemoryStore):
    """The log of events grows for ever."""

    def prune(
        self,
        job: str,
        *,
        older_than_s: float,
        retired: Collection[RangeId] = (),
        signals_up_to: int = 0,
    ) -> Mapping[str, int]:
        kept = list(self._job(job).events)
        found = super().prune(
            job, older_than_s=older_than_s, retired=retired, signals_up_to=signals_up_to
        )
        self._job(job).events[:] = kept
        return found


class HoldsByTheFirstProduction(MemoryStore):
    """The hold of a channel is that of what was sent first."""

    def read_pending(self, job: str) -> Mapping[Channel, PendingChannel]:
        found = super().read_pending(job)
        return {
            channel: attrs.evolve(
                each,
                hold_us=next(iter(self._jobs[job].checkpoints[channel].values())).min_timestamp_us,
            )
            for channel, each in found.items()
        }


class ForgetsReshapes(MemoryStore):
    """A split or merge leaves no event."""

    def _note(self, job: StoredJob, event: JobEvent) -> None:
        if event.kind not in ("split", "merge"):
            super()._note(job, event)
