"""EvidenceWriter: writes what the driver knows to its store once a second, and what happens to the driver itself.

It writes in a thread of its own, with a connection of its own, and each statement has a short time.  No result depends
on it: what cannot be written is reported once, and is not written.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from runners.core.ground.clock import Clock
from runners.errors import StoreRestartedError
from runners.millwheel.master.view import MasterView
from runners.millwheel.model.events import Actor, EventKind, JobEvent
from runners.millwheel.model.troubles import reason_of
from runners.millwheel.store.port import Store
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.process_name import process_name

#: Between two snapshots.
SNAPSHOT_INTERVAL_MS = 1_000
#: The longest that one statement may take.
STATEMENT_TIMEOUT_MS = 2_000
#: How long the end of a job waits until the last snapshot and the last events are written.
_JOIN_TIMEOUT_MS = 3_000

_LOG = logging.getLogger(__name__)


class EvidenceWriter:
    """A context manager, used by the thread of the master.

    Args:
        open_store: opens a store for the writer alone, which closes it.
        job: the job's name in it.
        view: what the master knows now.
        taker: makes a document of that; None: no snapshots are written, and events alone.
        clock: for the interval.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        job: str,
        view: Callable[[], MasterView],
        taker: SnapshotTaker | None,
        clock: Clock,
    ) -> None:
        self._open_store, self._job, self._view = open_store, job, view
        self._taker, self._clock = taker, clock
        # Opened by the thread that writes, when there is something to write.
        self._opened: Store | None = None
        #: What is to be written; None: nothing more.
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_written = threading.Event()
        self._is_written.set()
        self._due_ms = clock.monotonic_ms()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="dataflow-evidence", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What follows a restart of the store is an event of its own.
        if exc is not None and not isinstance(exc, StoreRestartedError):
            self.note(EventKind.FAILURE, reason_of(exc))
        self._take(is_ended=True)
        self._waiting.put(None)
        self._thread.join(_JOIN_TIMEOUT_MS / 1_000)

    def note(self, kind: EventKind, reason: str) -> None:
        """Have an event of the driver written; never waits.

        Args:
            kind: what has happened to it.
            reason: why.
        """
        event = JobEvent(kind=kind, actor=Actor.DRIVER, who=process_name(), reason=reason)
        self._waiting.put(lambda: self._store().note_event(self._job, event))

    def pass_on(self) -> None:
        """Have a snapshot written, if it is time and the one before is written; never waits."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._due_ms and self._is_written.is_set():
            self._due_ms = now_ms + SNAPSHOT_INTERVAL_MS
            self._take(is_ended=False)

    def _take(self, *, is_ended: bool) -> None:
        if self._taker is None:
            return
        taker, view = self._taker, self._view()
        self._is_written.clear()

        def write() -> None:
            try:
                snapshot = taker.take(view, is_ended=is_ended)
                self._store().note_snapshot(self._job, snapshot.write(), snapshot.taken_us)
            finally:
                self._is_written.set()

        self._waiting.put(write)

    def _run(self) -> None:
        while (write := self._waiting.get()) is not None:
            try:
                write()
            except Exception as error:  # noqa: BLE001 - the job goes on, whatever it is
                self._report(error)
            else:
                self._is_failing = False
        if self._opened is not None:
            self._opened.close()

    def _store(self) -> Store:
        if self._opened is None:
            self._opened = self._open_store()
        return self._opened

    def _report(self, error: Exception) -> None:
        if not self._is_failing:
            _LOG.warning(
                "what job %s does cannot be written to its store for people to see; it is tried again: %s",
                self._job,
                error,
            )
        self._is_failing = True
