"""A Postgres for the runs: embedded, with durable settings, and with the instants of its commits kept.

The setting `track_commit_timestamp` needs a restart, and adds a few bytes to each commit.  And the server has files of
its log to use again, as one has that has run for some minutes.  Everything else is as users of the embedded server have
it.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runners.embedded.cluster import Cluster, open_cluster
from runners.embedded.postgres import embedded_postgres, release_embedded_postgres
from runners.embedded.temporary import temporary_home, temporary_postgres

_FLUSHES = 200
_PAGE_BYTES = 8192
#: Files of the log, of 16 MB each, and a setting that keeps so many of them.
_LOG_FILES, _LOG_KEPT = 48, "1GB"
_STOP_TIMEOUT_S = 30


@attrs.frozen
class Server:
    """A running server: the address of its first database, and where its data are."""

    dsn: str
    home: Path

    @property
    def pid(self) -> int:
        """The id of its main process."""
        server = self._cluster.server()
        assert server is not None, "the server is not running"
        return server.pid

    def restart(self, how: signal.Signals) -> None:
        """SIGINT is what ``pg_ctl restart`` does, SIGKILL what a power cut does; returns when it can be used again."""
        server = psutil.Process(self.pid)
        server.send_signal(how)
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while not _is_gone(server):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the server does not stop in {_STOP_TIMEOUT_S} s")
            time.sleep(0.01)
        embedded_postgres(self.home)

    @property
    def _cluster(self) -> Cluster:
        return open_cluster(self.home.resolve())

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """The DSN of a new database, dropped afterwards."""
        with database(self.dsn, name) as dsn:
            yield dsn


@contextmanager
def database(server: str, name: str = "dataflow_benchmark") -> Iterator[str]:
    """The DSN of a new database, dropped afterwards; one that a killed run has left is dropped before.

    Args:
        server: the DSN of a database that is there.
        name: of the new one.
    """
    dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(dropped)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        # Pages that earlier runs left to be written must not slow this run down.
        connection.execute("CHECKPOINT")
    try:
        yield make_conninfo(server, dbname=name)
    finally:
        # Another connection: the server may have been restarted.
        with closing(psycopg.connect(server, autocommit=True)) as connection:
            connection.execute(dropped)


@contextmanager
def server_at(dsn: str | None) -> Iterator[str]:
    """The server at a DSN, or one for the time being."""
    if dsn:
        yield dsn
        return
    with temporary_postgres() as started:
        yield started


@contextmanager
def commit_stamping_server() -> Iterator[Server]:
    """A server in a temporary directory, stopped and deleted afterwards."""
    with temporary_home() as home:
        with closing(psycopg.connect(embedded_postgres(home), autocommit=True)) as connection:
            connection.execute("ALTER SYSTEM SET track_commit_timestamp = on")
            connection.execute(sql.SQL("ALTER SYSTEM SET min_wal_size = {}").format(_LOG_KEPT))
        release_embedded_postgres(home)
        server = Server(embedded_postgres(home), home)
        _make_log_files(server.dsn)
        yield server


def _make_log_files(dsn: str) -> None:
    """Have a server make files of its log that it uses again: a commit that needs a new one waits until it is on disk.

    Args:
        dsn: of the server, which has just been made.
    """
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        for _ in range(_LOG_FILES):
            connection.execute("SELECT pg_logical_emit_message(FALSE, '', '')")
            connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")


@contextmanager
def open_snapshot(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A session that holds a snapshot until the block ends, or the session."""
    with closing(psycopg.connect(dsn, application_name="held_snapshot")) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        # The snapshot is that of the first statement which reads.
        connection.execute("SELECT count(*) FROM dataflow.jobs")
        yield connection


def server_of(dsn: str) -> int:
    """The process id of a Postgres on this machine."""
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        server = psutil.Process(connection.info.backend_pid).parent()
    assert server is not None
    return server.pid


def flush_ms(folder: Path) -> float:
    """The time until a page is on disk, by which the stamp of a commit is early: a median, in milliseconds."""
    took_s = []
    handle, path = tempfile.mkstemp(dir=folder)
    try:
        for number in range(_FLUSHES):
            os.pwrite(handle, bytes(_PAGE_BYTES), number * _PAGE_BYTES)
            started_s = time.perf_counter()
            os.fdatasync(handle)
            took_s.append(time.perf_counter() - started_s)
    finally:
        os.close(handle)
        Path(path).unlink()
    return median(took_s) * 1_000


def _is_gone(process: psutil.Process) -> bool:
    # A zombie is gone too: in a container it can take a second until its parent collects it.
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
