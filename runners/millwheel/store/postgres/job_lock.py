"""JobLock: one driver at a time runs a job.

It does not keep the job right, which the fences do (ADR 0016).  Without it two drivers would take each other's ranges
away for ever, each time throwing away what the other's workers had in memory.

The lock belongs to a session, so it is gone the moment that its driver is dead, and a driver that was killed can be
started again at once.  A driver that loses its session (a restart of the server) takes the lock again, unless another
driver was quicker.

Not thread-safe: one thread at a time.
"""

import secrets
import time
from typing import Any

import psycopg

from runners.errors import JobRunningError, StoreUnreachableError
from runners.millwheel.store.postgres import connection
from runners.millwheel.store.postgres.outcomes import is_passing, refused
from runners.millwheel.store.postgres.patience import Backoff
from runners.millwheel.store.postgres.queries import QUERIES
from runners.process_name import process_name

#: The server needs a moment to notice that a driver was killed.
_WAIT_MAX_S = 3.0


class JobLock:
    """A driver's right to run a job.

    Args:
        dsn: of the store; never shown.
        job: the job's name; it need not exist yet.
        connect_timeout_s: how long to wait for a server that is starting up.
    """

    def __init__(self, dsn: str, job: str, *, connect_timeout_s: float = 30.0) -> None:
        self._dsn, self._job, self._connect_timeout_s = dsn, job, connect_timeout_s
        #: The name of this driver's sessions, which another driver's do not have.
        self._name = f"dataflow driver {process_name()} {secrets.token_hex(4)}"
        self._connection: psycopg.Connection[Any] | None = None
        self._has_had_it = False

    def hold(self) -> None:
        """Take the lock, or make sure that the session still has it; to be called now and then.

        Raises:
            JobRunningError: another driver has it.
            StoreUnreachableError: the server does not answer; the lock may be lost, and calling again takes it again.
        """
        if self._is_alive():
            return
        opened = self._connect()
        try:
            # A driver that has taken the job over is no dead predecessor, so there is nothing to wait for.
            self._take(opened, wait_max_s=0.0 if self._has_had_it else _WAIT_MAX_S)
        except psycopg.Error as error:
            can_pass = is_passing(error, opened)
            opened.close()
            if not can_pass:
                raise refused(error) from error
            raise StoreUnreachableError(
                "the connection to Postgres was lost", detail=connection.describe(self._dsn)
            ) from error
        except BaseException:
            opened.close()
            raise
        self._connection, self._has_had_it = opened, True

    def release(self) -> None:
        """Let others run the job.  Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_alive(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(QUERIES["is_alive"])
        except psycopg.Error:
            self.release()
            return False
        return True

    def _connect(self) -> psycopg.Connection[Any]:
        def introduce(opened: psycopg.Connection[Any]) -> None:
            opened.execute(QUERIES["name_session"], {"name": self._name})

        return connection.connect(
            self._dsn,
            timeout_s=self._connect_timeout_s,
            lock_timeout_ms=1_000,
            idle_timeout_ms=10_000,
            set_up=introduce,
        )

    def _take(self, opened: psycopg.Connection[Any], wait_max_s: float) -> None:
        parameters = {"name": self._job}
        deadline_s = time.monotonic() + wait_max_s  # noqa: TID251 - waits for a real server
        backoff = Backoff(0.05, 0.5)
        while not _only(opened, "lock_job_run", parameters):
            holder = opened.execute(QUERIES["job_run_holder"], parameters).fetchone()
            if holder is not None and holder[1] == self._name:
                opened.execute(QUERIES["end_session"], {"pid": holder[0]})
            elif time.monotonic() >= deadline_s:  # noqa: TID251 - a deadline of a connection, not of data
                raise self._is_running(holder)
            time.sleep(backoff.next_s())

    def _is_running(self, holder: tuple[Any, ...] | None) -> JobRunningError:
        pid, name, started = holder or ("unknown", "unknown", None)
        since = f", since {started:%Y-%m-%d %H:%M:%S %Z}" if started else ""
        where = str(name).removeprefix("dataflow driver ").split(" ", 1)[0]
        return JobRunningError(
            f"job {self._job!r} is being run by another driver",
            detail=f"its host and process: {where}{since}",
            hint="wait for it or end it, or give this job another name; if its machine is gone, "
            f"SELECT pg_terminate_backend({pid}) frees the job",
        )


def _only(opened: psycopg.Connection[Any], query: str, parameters: dict[str, Any]) -> Any:
    row = opened.execute(QUERIES[query], parameters).fetchone()
    assert row is not None
    return row[0]
