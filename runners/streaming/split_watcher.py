"""SplitWatcher: the thread of a driver that asks sources for splits which come and go, and writes them to the store.

A thread of its own: a system that does not answer for a minute must keep neither the master from its workers nor a
request of a person from the master.  What it does is `runners.millwheel.control.discovery`'s.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from types import TracebackType
from typing import Self

from runners.errors import JobMismatchError, StoreError, StoreRestartedError
from runners.millwheel.control.discovery import SplitDiscovery
from runners.millwheel.master.master import Master
from runners.millwheel.store.port import Store

#: Between two looks at whether something is to be asked or written.
_LOOK_INTERVAL_MS = 100
#: How long the end of the job waits for a question under way; after that the thread ends by itself.
_JOIN_TIMEOUT_MS = 1_000

_LOG = logging.getLogger(__name__)


class SplitWatcher:
    """A context manager, used by the thread of the master.  Does nothing where no source gets splits.

    Args:
        connect: opens a store, for the watcher alone, which closes it.
        job: the job's name in it.
        master: of the job.
        discovery: of the job.
    """

    def __init__(
        self, connect: Callable[[], Store], job: str, master: Master, discovery: SplitDiscovery
    ) -> None:
        self._connect, self._job = connect, job
        self._master, self._discovery = master, discovery
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._discovery.is_needed:
            self._thread = threading.Thread(
                target=self._run, name="dataflow-split-watcher", daemon=True
            )
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
            self._thread.join(_JOIN_TIMEOUT_MS / 1_000)

    def pass_on(self) -> None:
        """Pass on to the master what was found and written since the last call; never waits.

        Raises:
            StoreRestartedError: the store is not the one that the master began with.
            Exception: asking or writing failed for a reason that will not pass.
        """
        if self._failure is not None:
            raise self._failure
        self._discovery.pass_on(self._master)

    def _run(self) -> None:
        try:
            with closing(self._connect()) as store:
                self._ask_again_and_again(store)
        except Exception as error:  # noqa: BLE001 - handed to the thread of the master
            self._failure = error

    def _ask_again_and_again(self, store: Store) -> None:
        is_cut_off = False
        while not self._stopped.wait(_LOOK_INTERVAL_MS / 1_000):
            try:
                self._discovery.ask(store)
                is_cut_off = False
            except (StoreRestartedError, JobMismatchError):
                raise
            except StoreError as error:
                # The store connects again by itself, and what is to be written is kept.
                if not is_cut_off:
                    _LOG.warning(
                        "new splits of job %s cannot be written to the store, which is tried again: %s",
                        self._job,
                        error,
                    )
                is_cut_off = True
