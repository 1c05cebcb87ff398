"""What drivers know of their jobs, and events, on their way through the database."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from psycopg import Connection

from runners.millwheel.model.events import Actor, EventKind, JobEvent, StoredEvent
from runners.millwheel.model.ids import Channel
from runners.millwheel.store.guards import escape_text, escaped_event
from runners.millwheel.store.port import PendingChannel, StoredSnapshot
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES, job_queries


class EvidenceVerbs(JobReads):
    """The verbs of the port that are about snapshots of drivers, and events."""

    def note_snapshot(self, job: str, document: bytes, taken_us: int) -> None:
        """Keep what the driver of the job knows."""
        parameters = {
            "name": job,
            "document": escape_text(document.decode()),
            "taken_us": taken_us,
        }
        self._transact(
            lambda opened: opened.execute(QUERIES["note_snapshot"], parameters),
            is_one_statement=True,
        )

    def read_snapshot(self, job: str) -> StoredSnapshot | None:
        """What the driver of the job knew last."""
        found = self._transact(
            lambda opened: opened.execute(QUERIES["read_snapshot"], {"name": job}).fetchone(),
            is_one_statement=True,
        )
        if found is None:
            return None
        document, taken_us, age_s = found
        return StoredSnapshot(document=document.encode(), taken_us=taken_us, age_s=age_s)

    def note_event(self, job: str, event: JobEvent) -> None:
        """Keep an event; if the connection is lost it may be kept twice, which does no harm."""
        self._transact(lambda opened: insert_event(opened, job, event), is_one_statement=True)

    def read_events(self, job: str, most: int = 100) -> Sequence[StoredEvent]:
        """The last events of the job, the latest first."""

        def work(opened: Connection[Any]) -> Sequence[tuple[Any, ...]]:
            return opened.execute(QUERIES["read_events"], {"name": job, "most": most}).fetchall()

        return [_stored(*row) for row in self._transact(work, is_one_statement=True)]

    def read_pending(self, job: str) -> Mapping[Channel, PendingChannel]:
        """What is durable and not acknowledged, by channel."""

        def work(opened: Connection[Any]) -> Sequence[tuple[Any, ...]]:
            # No other transaction can reset the job before this one ends, so its tables are there.
            number = self._find_job(opened, job)
            if number is None:
                return []
            opened.execute(QUERIES["allow_scans"])
            return opened.execute(job_queries(number)["read_pending"]).fetchall()

        ids = self._load(job)
        if ids is None:
            return {}
        return {
            Channel(ids.by_number[sender], ids.by_number[receiver]): PendingChannel(
                pending=pending, hold_us=hold_us, age_s=age_s
            )
            for sender, receiver, pending, hold_us, age_s in self._transact(work)
            # A range may have been created since, or be gone.
            if sender in ids.by_number and receiver in ids.by_number
        }


def insert_event(connection: Connection[Any], job: str, event: JobEvent) -> None:
    """Keep an event, in the transaction of what it tells of where there is one.

    Args:
        connection: to the store.
        job: its name; of an unknown one nothing is kept.
        event: what has happened.
    """
    escaped = escaped_event(event)
    parameters = {
        "name": job,
        "kind": escaped.kind.value,
        "actor": escaped.actor.value,
        "who": escaped.who,
        "subject": escaped.subject,
        "reason": escaped.reason,
        "details": json.dumps(escaped.details),
    }
    connection.execute(QUERIES["note_event"], parameters)


def _stored(
    kind: str,
    actor: str,
    who: str | None,
    subject: str | None,
    reason: str,
    details: Mapping[str, Any],
    at: Any,
) -> StoredEvent:
    event = JobEvent(
        kind=EventKind(kind),
        actor=Actor(actor),
        who=who,
        subject=subject,
        reason=reason,
        details=details,
    )
    return StoredEvent(event=event, at=at.astimezone(UTC))
