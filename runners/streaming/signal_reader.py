"""SignalReader: brings a job's signals from the store to its master, while the job runs.

It reads in a thread of its own: a store that does not answer for a while must not keep the master from its workers,
who take a silent master for a dead one.

**Invariant:** signals reach the master in the order of their numbers, each once, and all that are in the store when the
reader starts before anything else happens.
"""

import logging
import threading
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from runners.errors import StoreError
from runners.millwheel.master import Master
from runners.millwheel.signals import Signal
from runners.millwheel.store.port import Store

#: Between two looks into the store: bounds how long a signal goes unnoticed.
READ_INTERVAL_MS = 150
#: How long the end of the job waits for a read under way; after that the thread ends by itself.
_JOIN_TIMEOUT_MS = 1_000

_LOG = logging.getLogger(__name__)


class SignalReader:
    """A context manager, used by the thread of the master; does nothing for a pipeline that listens to no signal.

    Args:
        store: one that nobody else uses; closed by the reader.
        job: the job's name in it.
        master: of the job; has not made a step yet.
    """

    def __init__(self, store: Store, job: str, master: Master) -> None:
        self._store, self._job, self._master = store, job, master
        self._found: SimpleQueue[Signal] = SimpleQueue()
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Tell the master what is in the store already, and begin to read on.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._master.is_listening:
            try:
                self._read(self._master.latest_signal)
            except BaseException:
                self._store.close()
                raise
            self.pass_on()
            self._thread = threading.Thread(
                target=self._run,
                args=(self._master.latest_signal,),
                name="dataflow-signals",
                daemon=True,
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
        if self._thread is None:
            self._store.close()
        else:
            self._thread.join(_JOIN_TIMEOUT_MS / 1_000)

    def pass_on(self) -> None:
        """Tell the master what has been read since the last time; never waits.

        Raises:
            Exception: reading failed for a reason that will not pass.
        """
        if self._failure is not None:
            raise self._failure
        signals: list[Signal] = []
        try:
            while True:
                signals.append(self._found.get_nowait())
        except Empty:
            pass
        if signals:
            self._master.hear_signals(signals)

    def _run(self, after: int) -> None:
        is_cut_off = False
        try:
            while not self._stopped.wait(READ_INTERVAL_MS / 1_000):
                try:
                    after = self._read(after)
                    is_cut_off = False
                except StoreError as error:
                    # The store connects again by itself; what is sent meanwhile is kept there.
                    if not is_cut_off:
                        _LOG.warning("signals of job %s wait for the store: %s", self._job, error)
                    is_cut_off = True
        except Exception as error:  # noqa: BLE001 - handed to the thread of the master
            self._failure = error
        finally:
            self._store.close()

    def _read(self, after: int) -> int:
        """Look once; the number of the last signal that is known now."""
        for signal in self._store.read_signals(self._job, after):
            self._found.put(signal)
            after = signal.number
        return after
