"""Throwing faults at a running job: a server that can be killed, a gate in its COMMIT, a watch on what is committed."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import psutil
import psycopg
from psycopg.rows import dict_row

from runners.embedded.cluster import open_cluster
from runners.embedded.postgres import embedded_postgres
from runners.millwheel.store.postgres import PostgresStore
from tests.fault_job import ANSWER_TABLES, PANE_TABLES
from tests.waiting import WAIT_MAX_S, until

_POLL_S = 0.02
_TYPES = {str: "text", int: "bigint"}
_GATE_KEY = 8_001

#: Every COMMIT that touches a fence passes it: those of productions and those of takeovers.
_GATE = f"""
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({_GATE_KEY});
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER gate AFTER UPDATE ON dataflow.fences
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass_gate();
"""

#: A table without a key has no order; its journal has that of its transactions for each key, as a key has one writer.
_JOURNAL = """
CREATE TABLE {name} ({columns});
CREATE TABLE {name}_journal (LIKE {name}, number bigint GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION {name}_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {name}_journal SELECT NEW.*;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_note();
"""


class FaultServer:
    """An embedded Postgres of the test's own that may be killed; used by one thread."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.dsn = embedded_postgres(home)
        self._cluster = open_cluster(home.resolve())

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self._cluster.data

    def kill(self) -> None:
        """Send SIGKILL to its main process; its children find out by themselves."""
        self.stop(signal.SIGKILL)

    def stop(self, how: signal.Signals) -> None:
        """SIGINT cuts all sessions, SIGQUIT does so without a checkpoint; returns when it is gone."""
        server = self._cluster.server()
        assert server is not None
        server.send_signal(how)
        until(lambda: _is_gone(server), lambda: "the server does not stop")

    def start(self) -> None:
        """Start it again; recovers what a kill has left."""
        embedded_postgres(self._home)


def _is_gone(process: psutil.Process) -> bool:
    # A zombie is gone too: in a container it can take a second until somebody collects it.
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def prepare_database(dsn: str) -> None:
    """Put gate and journals in front of the tables that the job will write, before it runs for the first time."""
    store = PostgresStore(dsn)
    store.connect()
    store.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_GATE)
        for name, columns in PANE_TABLES.items():
            shape = ", ".join(
                f'"{column}" {_TYPES.get(kind, "timestamptz")}' for column, kind in columns.items()
            )
            connection.execute(_JOURNAL.format(name=name, columns=shape).encode())


@attrs.frozen
class FenceRow:
    """How far a range has come, and whose it is."""

    token: int
    bundle: int
    owner: str | None
    is_finished: bool
    is_source: bool


Fences = Mapping[tuple[str, int], FenceRow]


class Watch:
    """A person with psql: reads what is committed, closes the gate, ends sessions.  Connects again as need be."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """The rows of a query, which is sent again if the connection was cut since the last time.

        Raises:
            psycopg.OperationalError: the server is not there; the next call connects again.
        """
        if self._connection is not None and not self._connection.closed:
            with contextlib.suppress(psycopg.OperationalError):
                return self._ask(query, parameters)
            self._connection.close()
        self._connection = psycopg.connect(
            self._dsn, autocommit=True, row_factory=dict_row, application_name="watch"
        )
        return self._ask(query, parameters)

    def _ask(self, query: str, parameters: tuple[Any, ...]) -> list[dict[str, Any]]:
        assert self._connection is not None
        cursor = self._connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def fences(self) -> Fences:
        """The job's ranges; empty while there is no job."""
        found = self.rows(
            """SELECT c.name, r.range_index, f.token, f.bundle, f.owner, f.is_finished,
                      r.split IS NOT NULL AS is_source
               FROM dataflow.computations c
               JOIN dataflow.ranges r USING (computation_id) JOIN dataflow.fences f USING (range_id)"""
        )
        return {
            (row["name"], row["range_index"]): FenceRow(
                row["token"], row["bundle"], row["owner"], row["is_finished"], row["is_source"]
            )
            for row in found
        }

    def source_bundles(self) -> dict[tuple[str, int], int]:
        """How many bundles each split of the source has committed."""
        return {name: row.bundle for name, row in self.fences().items() if row.is_source}

    def wait_for_sources(self, more: int = 3) -> float:
        """Wait until every split has committed so many more bundles; return how long that took, in seconds.

        A split that has ended counts: the caller sees to it that there is enough left to read.
        """
        before: dict[tuple[str, int], int] = {}

        def have_moved() -> bool:
            now = self.fences()
            for name, row in now.items():
                if row.is_source:
                    before.setdefault(name, row.bundle)
            return bool(before) and all(
                now[name].is_finished or now[name].bundle >= bundle + more
                for name, bundle in before.items()
            )

        return self.wait(have_moved, what="progress of every source")

    def wait(self, happened: Callable[[], bool], *, what: str) -> float:
        """Wait until a condition holds, whatever becomes of the server; return how long that took, in seconds."""
        started_s = time.monotonic()
        while time.monotonic() < started_s + WAIT_MAX_S:
            with contextlib.suppress(psycopg.OperationalError):
                if happened():
                    return time.monotonic() - started_s
            time.sleep(_POLL_S)
        raise AssertionError(f"no {what} in {WAIT_MAX_S} s: {self.state()}")

    def state(self) -> list[str]:
        """What the server is doing, for a message."""
        try:
            sessions = self.rows(
                """SELECT pid, application_name, state, wait_event, left(query, 60) AS query
                   FROM pg_stat_activity WHERE datname = current_database()"""
            )
            return [*map(str, sessions), *(f"{n}: {f}" for n, f in self.fences().items())]
        except psycopg.OperationalError as error:
            return [str(error)]

    @contextlib.contextmanager
    def closed_gate(self) -> Iterator[None]:
        """Close the gate: no commit of the job gets through, and those under way wait inside COMMIT.

        For less than the store's lock timeout of five seconds.
        """
        keeper = psycopg.connect(self._dsn, autocommit=True, application_name="gate")
        try:
            keeper.execute(f"SELECT pg_advisory_lock({_GATE_KEY})".encode())
            yield
        finally:
            keeper.close()

    def sessions_in_commit(self) -> list[int]:
        """Server processes that the gate has stopped inside COMMIT."""
        found = self.rows(
            """SELECT pid FROM pg_stat_activity
               WHERE wait_event = 'advisory' AND datname = current_database()"""
        )
        return [row["pid"] for row in found]

    def wait_for_commits(self, count: int) -> list[int]:
        """Wait until so many sessions wait inside COMMIT; return their process numbers."""
        self.wait(lambda: len(self.sessions_in_commit()) >= count, what="commit")
        return self.sessions_in_commit()

    def terminate(self, pid: int) -> None:
        """End a session, as an administrator does."""
        self.rows("SELECT pg_terminate_backend(%s)", pid)

    def job_sessions(self) -> list[int]:
        """The server processes of the job's connections to this database."""
        found = self.rows(
            """SELECT pid FROM pg_stat_activity
               WHERE starts_with(application_name, 'dataflow') AND datname = current_database()"""
        )
        return [row["pid"] for row in found]

    def drivers(self) -> set[int]:
        """The processes that hold a job, by what they call their sessions."""
        found = self.rows(
            """SELECT substring(application_name FROM ':([0-9]+) ')::integer AS pid
               FROM pg_stat_activity
               WHERE starts_with(application_name, 'dataflow driver')
                 AND datname = current_database()"""
        )
        return {row["pid"] for row in found}

    def journal(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table of panes, in the order of their commits for each key."""
        columns = ", ".join(f'"{column}"' for column in PANE_TABLES[table])
        return self.rows(f"SELECT {columns} FROM {table}_journal ORDER BY number")

    def answers(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table of answers."""
        columns = ", ".join(f'"{column}"' for column in ANSWER_TABLES[table])
        return self.rows(f"SELECT {columns} FROM {table}")

    def open_work(self) -> dict[str, int]:
        """Counts of all that must be gone when the job has ended (invariant I10)."""
        counts = {
            kind: self.rows(f"SELECT count(*) FROM dataflow.{kind}")[0]["count"]
            for kind in ("cells", "timers", "productions", "late_records")
        }
        idle = self.rows(
            """SELECT pid FROM pg_stat_activity
               WHERE starts_with(state, 'idle in transaction') AND datname = current_database()"""
        )
        return {**counts, "sessions idle in a transaction": len(idle)}


def within(limit_s: float) -> float:
    """The limit for something that takes so long on a machine with nothing else to do."""
    return limit_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
