"""A Postgres server of a test's own whose log is logical, so that changes of tables can be followed."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runners.embedded.cluster import open_cluster
from runners.embedded.temporary import FOLLOWED, postgres_with, temporary_home
from tests.processes import kill

_numbers = itertools.count(1)


@attrs.frozen
class ChangingPostgres:
    """The server, which can be killed and started again."""

    dsn: str
    home: Path

    def crash(self) -> None:
        """Kill its main process, and start it again: what was not on disk is lost."""
        cluster = open_cluster(self.home)
        server = cluster.server()
        assert server is not None
        kill([server])
        cluster.ensure_running()

    @contextmanager
    def database(self) -> Iterator[str]:
        """A database that nothing has been done to; dropped afterwards, with its slots."""
        name = f"changing_{next(_numbers)}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        dsn = make_conninfo(self.dsn, dbname=name)
        yield dsn
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            # A session that ends needs a moment to let go of its slot.
            for (slot,) in connection.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = %s", [name]
            ).fetchall():
                drop_slot(connection, slot)
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def drop_slot(connection: psycopg.Connection, slot: str) -> None:
    """Drop a replication slot; whoever reads from it is ended.

    Args:
        connection: that commits at once.
        slot: its name.
    """
    while True:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.ObjectInUse:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
                [slot],
            )
        except psycopg.errors.UndefinedObject:
            return
        else:
            return


@contextmanager
def changing_postgres() -> Iterator[ChangingPostgres]:
    """Such a server, stopped and deleted afterwards."""
    with temporary_home() as home:
        yield ChangingPostgres(postgres_with(FOLLOWED, home), home)
