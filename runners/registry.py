"""The composition root: from a user's settings to a store.

The only module that chooses a store adapter.
"""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from runners.millwheel.store.port import Store
from runners.millwheel.store.postgres.job_lock import JobLock
from runners.millwheel.store.postgres.store import PostgresStore

#: Names the store where a runner was given none.
STORE_VARIABLE = "DATAFLOW_STORE"


def store_dsn(given: str | None = None, *, data_dir: Path | None = None) -> str:
    """The store's DSN: the one given, else that of `STORE_VARIABLE`, else an embedded Postgres, started if need be.

    Args:
        given: as the user gave it; None: not at all.
        data_dir: of the embedded Postgres; None: its default.

    Raises:
        EmbeddedServiceError: an embedded Postgres is needed and not installed.
    """
    dsn = given or os.environ.get(STORE_VARIABLE)
    if dsn:
        return dsn
    # Imported here: the embedded server is an optional extra.
    from runners.embedded.postgres import embedded_postgres  # noqa: PLC0415 - the servers are an extra, and take long to import

    return embedded_postgres(data_dir)


def open_store(
    dsn: str,
    *,
    incarnation: str | None = None,
    connect_timeout_s: float = 30.0,
    statement_timeout_ms: int = 0,
    waits: Callable[[str], None] = lambda _: None,
) -> Store:
    """A store that is connected to when it is first used, and has passed its checks and has the current schema then.

    Args:
        dsn: of a Postgres.
        incarnation: the only one to work with (`Store.incarnation`); None: whichever is there.
        connect_timeout_s: how long to wait for a server that is starting up, in seconds.
        statement_timeout_ms: how long one statement may take; 0: as long as it likes.
        waits: called with the reason, each time that something without an effect so far is tried again.

    Raises, at its first use:
        StoreUnreachableError: nobody answers at ``dsn``.
        StoreRestartedError: it is another incarnation.
        UnsuitableStoreError: it cannot keep the guarantees, or its schema is newer than this code.
    """
    return PostgresStore(
        dsn,
        incarnation=incarnation,
        connect_timeout_s=connect_timeout_s,
        statement_timeout_ms=statement_timeout_ms,
        waits=waits,
    )


def job_lock(dsn: str, job: str) -> JobLock:
    """The lock that only one driver of a job can have; not acquired yet.

    Args:
        dsn: of a Postgres.
        job: the job's name.
    """
    return JobLock(dsn, job)


def forget_job(job: str, *, store: str | None = None) -> None:
    """Forget a job, and drop the result tables that are its own; no error if there is no such job.

    A table that another job writes to, or that was there before the job, stays as it is, with the job's rows.  A batch
    run that is at work on the job ends with an error.

    Args:
        job: its name.
        store: its DSN; by default as `store_dsn`.

    Raises:
        JobRunningError: a driver is running the job as a stream.
        StoreError: there is no suitable store.
    """
    dsn = store_dsn(store)
    lock = job_lock(dsn, job)
    lock.hold()
    try:
        with closing(open_store(dsn)) as opened:
            opened.reset_job(job)
    finally:
        lock.release()
