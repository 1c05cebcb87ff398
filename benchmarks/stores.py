"""A Postgres for the runs: embedded, with durable settings, and with the instants of its commits kept.

The setting `track_commit_timestamp` needs a restart, and adds a few bytes to each commit; everything else is as users
of the embedded server have it.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

import attrs
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runners.embedded.postgres import embedded_postgres, release_embedded_postgres

_FLUSHES = 200
_PAGE_BYTES = 8192


@attrs.frozen
class Server:
    """A running server: the address of its first database, its main process, and where its data are."""

    dsn: str
    pid: int
    home: Path

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """The DSN of a new database, dropped afterwards."""
        identifier = sql.Identifier(name)
        with closing(psycopg.connect(self.dsn, autocommit=True)) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
            # What earlier runs left to be written is not this run's to pay for.
            connection.execute("CHECKPOINT")
            try:
                yield make_conninfo(self.dsn, dbname=name)
            finally:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


@contextmanager
def commit_stamping_server() -> Iterator[Server]:
    """A server in a temporary directory, stopped and deleted afterwards."""
    # Not below a long path: a socket's path must be short.
    home = Path(tempfile.mkdtemp(prefix="dataflow-bench-"))
    try:
        with closing(psycopg.connect(embedded_postgres(home), autocommit=True)) as connection:
            connection.execute("ALTER SYSTEM SET track_commit_timestamp = on")
        release_embedded_postgres(home)
        dsn = embedded_postgres(home)
        pid = int((home / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        yield Server(dsn, pid, home)
    finally:
        release_embedded_postgres(home)
        shutil.rmtree(home)


def flush_ms(folder: Path) -> float:
    """How long a page takes to be on disk: by so much is the stamp of a commit early; the median of some."""
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
