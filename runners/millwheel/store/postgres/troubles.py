"""Troubles on their way through the database."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from psycopg import Connection

from runners.millwheel.model.troubles import TROUBLES_MAX, StoredTrouble, Trouble, TroubleKind
from runners.millwheel.store import events
from runners.millwheel.store.guards import escape_text
from runners.millwheel.store.postgres.evidence import insert_event
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES


class TroubleVerbs(JobReads):
    """The verbs of the port that are about troubles."""

    def note_troubles(self, job: str, troubles: Sequence[Trouble]) -> None:
        """Keep troubles; if the connection is lost they may be counted once more, which does no harm."""
        self._transact(lambda opened: _note(opened, job, troubles))

    def read_troubles(self, job: str) -> Sequence[StoredTrouble]:
        """The troubles of a job, the latest first."""
        return self._transact(lambda opened: _read(opened, job), is_one_statement=True)


def _note(connection: Connection[Any], job: str, troubles: Sequence[Trouble]) -> None:
    for each in troubles:
        parameters = {
            "name": job,
            "kind": each.kind.value,
            "place": escape_text(each.place),
            "headline": escape_text(each.headline),
            "reason": escape_text(each.reason),
            "count": each.count,
        }
        connection.execute(QUERIES["note_trouble"], parameters)
    for event in events.failures(troubles):
        insert_event(connection, job, event)
    connection.execute(QUERIES["forget_troubles"], {"name": job, "most": TROUBLES_MAX})


def _read(connection: Connection[Any], job: str) -> list[StoredTrouble]:
    rows = connection.execute(QUERIES["read_troubles"], {"name": job})
    return [
        StoredTrouble(
            trouble=Trouble(kind=TroubleKind(kind), place=place, reason=reason, count=count),
            first_at=first_at.astimezone(UTC),
            last_at=last_at.astimezone(UTC),
        )
        for kind, place, reason, count, first_at, last_at in rows
    ]
