"""Relays of a job, with its store and the clock of this machine."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from dataflow.sink import Sink
from dataflow.table import TableSpec
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.millwheel.store.port import Store
from runners.relay.relays import Relays
from runners.system_clock import SystemClock

#: How long a sink that fails again and again is waited for where nothing goes on without it.
_PATIENCE_S = 60.0


def relays_of(store: Store, job: str, sinks: Mapping[str, tuple[TableSpec, Sink[Any]]]) -> Relays:
    """Relays that keep their failures as troubles of the job.

    Args:
        store: of the thread that relays.
        job: its name.
        sinks: with their outboxes, by label.
    """

    def note(place: str, reason: str) -> None:
        store.note_troubles(job, [Trouble(kind=TroubleKind.WAIT, place=place, reason=reason)])

    return Relays(store, job, sinks, SystemClock(), on_failure=note)


def send_all(store: Store, job: str, sinks: Mapping[str, tuple[TableSpec, Sink[Any]]]) -> None:
    """Send everything that waits for sinks to whose outboxes nobody adds.

    Args:
        store: of this thread.
        job: its name.
        sinks: with their outboxes, by label.

    Raises:
        SinkError: a sink refuses the rows, or has failed for a minute; what waits stays in the outbox.
    """
    with closing(relays_of(store, job, sinks)) as relays:
        relays.flush(_PATIENCE_S, time.sleep)
