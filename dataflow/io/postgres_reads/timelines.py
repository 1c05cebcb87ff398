"""Timelines: whether a server that has taken over has the log that was read of the one before it.

A standby that is promoted begins a timeline of its own where it has received the log up to.  A place in the log before
that is the same place on both; one behind it is another one, and what was read there is not in the new server's tables.

PostgreSQL, "Continuous Archiving and Point-in-Time Recovery", "Timelines".
"""

from __future__ import annotations

from typing import Any

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import raw_rows
from dataflow.io.postgres_reads.slot import WAYS_OUT, lsn_of, lsn_text

#: Of a position: its timeline was not noted.
UNKNOWN = 0


def checked_timeline(replication: Any, slot: str, known: int, read_to: int) -> int:
    """The timeline of a server, which has all of the log that was read.

    Args:
        replication: a session for replication.
        slot: by which it was read, for messages.
        known: the timeline of the server that it was read of; `UNKNOWN`: nothing was, or it was not noted.
        read_to: the last place in the log that was read.

    Raises:
        InputError: it has not.
    """
    ((_, timeline, *_),) = raw_rows(replication, "IDENTIFY_SYSTEM")
    now = int(timeline)
    if known in {UNKNOWN, now}:
        return now
    end = _ends(replication, now).get(known) if known < now else None
    if end is not None and read_to <= end:
        return now
    where = "is of no timeline of it" if end is None else f"it has that up to {lsn_text(end)}"
    raise InputError(
        f"the server that slot {slot!r} is on now does not have all that was read",
        detail=f"it is on timeline {now}; read was timeline {known}, up to {lsn_text(read_to)}, and {where}",
        hint="a standby has taken over that had not received it, or a backup was restored; to have nothing read that "
        f"the standby has not, name it in synchronized_standby_slots of the primary; {WAYS_OUT}",
    )


def _ends(replication: Any, timeline: int) -> dict[int, int]:
    """Where each timeline ended, on the way to one."""
    if timeline <= 1:
        return {}
    ((_, content),) = raw_rows(replication, f"TIMELINE_HISTORY {timeline}")
    fields = [line.split() for line in content.decode("utf-8", "replace").splitlines()]
    return {int(each[0]): lsn_of(each[1]) for each in fields if len(each) > 1 and each[0].isdigit()}
