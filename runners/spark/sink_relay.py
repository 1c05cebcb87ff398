"""SinkRelay: relays the outboxes of a job from its driver, in a thread of its own with a connection of its own."""

import threading
from contextlib import closing
from types import TracebackType
from typing import Self

from runners.millwheel.store.port import Store
from runners.registry import open_store
from runners.relay.relays import Relays
from runners.spark.job_relays import relays_of, send_all
from runners.spark.prepared_job import PreparedJob

#: Between two looks at lanes that had nothing: it grows from the first to the second.
_IDLE_MIN_S, _IDLE_MAX_S = 0.02, 0.1


class SinkRelay:
    """A context manager: relays while it is entered.  Does nothing for a job without sinks.

    Args:
        prepared: the job.
    """

    def __init__(self, prepared: PreparedJob) -> None:
        self._prepared = prepared
        self._has_sinks = bool(prepared.plan.graph.sinks())
        self._failure: BaseException | None = None
        self._stopped, self._is_last = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin."""
        if self._has_sinks:
            self._thread = threading.Thread(target=self._run, name="dataflow-sinks", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise what has ended the relay, if anything has."""
        if self._failure is not None:
            raise self._failure

    def is_flushed(self) -> bool:
        """Whether nothing waits any more, from the first call on: no more rows may come.

        Raises:
            Exception: what has ended the relay.
        """
        self.check()
        self._is_last.set()
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with closing(_store_of(self._prepared)) as store:
                prepared = self._prepared
                relays = relays_of(store, prepared.job.job, prepared.plan.graph.sinks())
                with closing(relays):
                    self._relay(relays)
        except BaseException as error:  # noqa: BLE001 - handed to the thread of the master
            self._failure = error

    def _relay(self, relays: Relays) -> None:
        idle_s = _IDLE_MIN_S
        while not self._stopped.is_set():
            is_last = self._is_last.is_set()
            if relays.step(is_last=is_last):
                idle_s = _IDLE_MIN_S
                continue
            if is_last and relays.is_empty():
                return
            self._stopped.wait(idle_s)
            idle_s = min(2 * idle_s, _IDLE_MAX_S)


def relay_all(prepared: PreparedJob) -> None:
    """Send everything that waits in the outboxes of a job.

    Args:
        prepared: a job to whose outboxes nobody adds.

    Raises:
        SinkError: a sink refuses the rows, or has failed for a minute; what waits stays in the outbox.
    """
    sinks = prepared.plan.graph.sinks()
    if sinks:
        with closing(_store_of(prepared)) as store:
            send_all(store, prepared.job.job, sinks)


def _store_of(prepared: PreparedJob) -> Store:
    return open_store(prepared.dsn, incarnation=prepared.incarnation)
