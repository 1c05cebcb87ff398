"""One connection to Postgres: opened patiently, configured for commits, checked before use.

**Invariant:** the DSN is a secret.  Errors and logs name the place (host, port, database, user) and
nothing else of it, and no driver error that could quote it is kept as a cause.
"""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dataflow.postgres_links import NOTICED
from dataflow.postgres_logins import is_login_refused
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.store.postgres.arrays import register_arrays
from runners.millwheel.store.postgres.outcomes import is_passing, refused
from runners.millwheel.store.postgres.patience import Backoff
from runners.millwheel.store.postgres.poolers import refuse_shared_session
from runners.millwheel.store.postgres.queries import QUERIES

_BACKOFF_FIRST_S = 0.1
#: Bounds how long a server that is there again goes unnoticed.
_BACKOFF_MAX_S = 0.5

#: What a DSN may override.
_DEFAULTS: dict[str, Any] = {"application_name": "dataflow", **NOTICED}


def describe(dsn: str) -> str:
    """Where the DSN leads, for people: host, port, database and user, never the password.

    Raises:
        StoreError: it cannot be parsed; the message does not repeat it.
    """
    parameters = _parse(dsn)
    shown = ("host", "hostaddr", "port", "dbname", "user", "service")
    return ", ".join(f"{name} {parameters[name]}" for name in shown if name in parameters) or (
        "the default Postgres of this machine"
    )


def connect(
    dsn: str,
    *,
    timeout_s: float,
    lock_timeout_ms: int,
    idle_timeout_ms: int,
    set_up: Callable[[psycopg.Connection[Any]], None],
    statement_timeout_ms: int = 0,
    waits: Callable[[str], None] = lambda _: None,
) -> psycopg.Connection[Any]:
    """Open a connection, waiting for a server that is starting up, and set the session up.

    The connection is in autocommit mode: a transaction begins only with an explicit BEGIN.

    Args:
        dsn: libpq connection string or URI.
        timeout_s: how long to go on trying, in seconds.
        lock_timeout_ms: how long a statement waits for a lock before the server ends it.
        idle_timeout_ms: how long the session may sit inside a transaction before the server ends
            it: a frozen client must not keep its locks.
        set_up: what else a session needs before its first use; idempotent, because a connection that is lost
            meanwhile is opened again.
        statement_timeout_ms: how long a statement may take before the server ends it; 0: as long as it likes.
        waits: called with the reason, each time that it is tried again.

    Raises:
        StoreUnreachableError: no server answered in time, or it refused the login.
        UnsuitableStoreError: a connection pooler shares sessions.
        StoreError: it refused a statement of ``set_up``, or what that raised itself.
    """
    conninfo = conninfo_of(dsn)
    settings = {
        "lock_timeout_ms": str(lock_timeout_ms),
        "idle_timeout_ms": str(idle_timeout_ms),
        "statement_timeout_ms": str(statement_timeout_ms),
    }

    def attempt() -> psycopg.Connection[Any]:
        # psycopg prepares nothing itself: it would deallocate what the pipeline has prepared.
        opened = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        try:
            refuse_shared_session(opened, conninfo, describe(dsn))
            opened.execute(QUERIES["settings"], settings)
            register_arrays(opened)
            set_up(opened)
        except psycopg.Error as error:
            can_pass = isinstance(error, psycopg.OperationalError) and is_passing(error, opened)
            opened.close()
            if not can_pass:
                raise refused(error) from error
            raise
        except BaseException:
            opened.close()
            raise
        return opened

    return _patiently(attempt, timeout_s, describe(dsn), waits)


def conninfo_of(dsn: str) -> str:
    """A connection string with what a connection needs to notice that its server is gone.

    Raises:
        StoreError: it cannot be parsed; the message does not show it.
    """
    return make_conninfo("", **{**_DEFAULTS, **_parse(dsn), "client_encoding": "UTF8"})


def _parse(dsn: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(dsn)
    except psycopg.Error:
        pass
    # Outside the handler: libpq quotes the string, password and all, and `from None` would only
    # hide that from the default traceback.
    raise StoreError(
        "the Postgres connection string cannot be parsed",
        detail="it is not shown here, because it may contain a password",
        hint="write postgresql://user:password@host:port/database, with special characters in "
        "percent-encoding, or 'host=... dbname=... user=...'",
    )


def _patiently(
    attempt: Callable[[], psycopg.Connection[Any]],
    timeout_s: float,
    place: str,
    waits: Callable[[str], None],
) -> psycopg.Connection[Any]:
    deadline_s = time.monotonic() + timeout_s  # noqa: TID251 - waits for a real server
    backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
    while True:
        try:
            return attempt()
        except psycopg.OperationalError as error:
            reason = str(error)
        pause_s = backoff.next_s()
        if is_login_refused(reason) or time.monotonic() + pause_s > deadline_s:  # noqa: TID251 - a deadline of a connection, not of data
            break
        waits(f"the store: {' '.join(reason.split())}")
        time.sleep(pause_s)
    raise StoreUnreachableError(
        "no connection to Postgres",
        detail=f"{place}: {' '.join(reason.split())}",
        hint="check the DSN and that the server is up and accepts this user from this machine",
    )
