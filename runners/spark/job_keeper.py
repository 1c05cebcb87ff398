"""JobKeeper: keeps a job's lock while its driver runs it, in a thread of its own.

A store that does not answer for a while must not keep the driver from its workers.
"""

import logging
import threading

from runners.errors import StoreUnreachableError
from runners.millwheel.store.postgres.job_lock import JobLock
from runners.registry import job_lock

#: Between two looks at the lock: bounds how long two drivers can be at work at once.
_LOOK_INTERVAL_MS = 1_000
_JOIN_TIMEOUT_MS = 1_000

_LOG = logging.getLogger(__name__)


class JobKeeper:
    """For one run of a job.  `claim`, `check` and `release` are for one thread at a time."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, dsn: str) -> None:
        """Take the lock, and keep it from here on.

        Raises:
            JobRunningError: another driver is running the job.
            StoreError: there is no suitable store.
        """
        lock = job_lock(dsn, self._job)
        try:
            lock.hold()
        except BaseException:
            lock.release()
            raise
        self._thread = threading.Thread(
            target=self._run, args=(lock,), name="dataflow-job-lock", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Check whether this driver still has the job; never waits.

        Raises:
            JobRunningError: another driver has the job now, so this one must stop.
            StoreError: the store does not answer the question.
        """
        if self._failure is not None:
            raise self._failure

    def release(self) -> None:
        """Let others run the job.  Idempotent."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_MS / 1_000)

    def _run(self, lock: JobLock) -> None:
        is_cut_off = False
        try:
            while not self._stopped.wait(_LOOK_INTERVAL_MS / 1_000):
                try:
                    lock.hold()
                    is_cut_off = False
                except StoreUnreachableError as error:
                    # A driver that cannot reach the store cannot harm it; when it can again, it checks again whose job
                    # it is.
                    if not is_cut_off:
                        _LOG.warning(
                            "the lock of job %s cannot be renewed in the store, which is tried again: %s",
                            self._job,
                            error,
                        )
                    is_cut_off = True
        except Exception as error:  # noqa: BLE001 - handed to the thread of the master
            self._failure = error
        finally:
            lock.release()
