"""What drivers know of their jobs, and events, in memory; the caller has the lock of the store."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from runners.millwheel.model.events import EVENTS_MAX, JobEvent, StoredEvent
from runners.millwheel.model.ids import Channel
from runners.millwheel.store.events import requested
from runners.millwheel.store.guards import escaped_event
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.port import PendingChannel

_US_PER_S = 1_000_000


def note_event(job: StoredJob, event: JobEvent, now_us: int) -> None:
    """Keep an event.

    Args:
        job: changed in place.
        event: what has happened.
        now_us: by the store's clock, in microseconds since 1970.
    """
    job.events.append(_stored(event, now_us))


def read_events(job: StoredJob, most: int) -> Sequence[StoredEvent]:
    """The last events, the latest first.

    Args:
        job: has them.
        most: at most so many.
    """
    requests = [_stored(requested(each), job.requested_us[each.number]) for each in job.requests]
    found = [*reversed(job.events), *reversed(requests)]
    return sorted(found, key=lambda each: each.at, reverse=True)[:most]


def forget_events(job: StoredJob) -> int:
    """Forget all but the last events; returns how many were forgotten."""
    gone = max(0, len(job.events) - EVENTS_MAX)
    del job.events[:gone]
    return gone


def read_pending(job: StoredJob, now_us: int) -> Mapping[Channel, PendingChannel]:
    """What is not acknowledged, by channel.

    Args:
        job: has it.
        now_us: by the store's clock, in microseconds since 1970.
    """
    return {
        channel: PendingChannel(
            pending=len(pending),
            hold_us=min(each.min_timestamp_us for each in pending.values()),
            age_s=(now_us - min(job.checkpointed_us[channel].values())) / _US_PER_S,
        )
        for channel, pending in job.checkpoints.items()
        if pending
    }


def _stored(event: JobEvent, at_us: int) -> StoredEvent:
    return StoredEvent(
        event=escaped_event(event), at=datetime.fromtimestamp(at_us / _US_PER_S, UTC)
    )
