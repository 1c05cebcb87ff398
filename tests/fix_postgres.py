"""Postgres for tests: one server for the session, a fresh database for each test that asks.

The server is that of `DATAFLOW_TEST_DSN` where the variable is set (its role must be allowed to
create databases), else an embedded one in a temporary directory that is stopped at the end.
A missing server is a failure, never a skip.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runners.embedded.postgres import (
    embedded_postgres,
    release_embedded_postgres,
    stop_unused_postgres,
)
from runners.temporary_dirs import abandoned_dir, make_temporary_dir, remove_temporary_dir

#: Stands in front of this server, so it comes with it.
pytest_plugins = ["tests.fix_proxy"]

_numbers = itertools.count(1)
#: Of directories of servers for tests.
_PREFIX = "dataflow-tests-"


def temporary_server() -> Iterator[str]:
    """The DSN of an embedded server of one's own, stopped and deleted afterwards."""
    stop_abandoned_servers()
    # Not tmp_path: a socket's path must be short.
    directory = make_temporary_dir(_PREFIX)
    # Where the tests are run by root, the server runs as somebody else, who must get to his own part.
    directory.chmod(0o711)
    home = directory / "pg"
    try:
        yield embedded_postgres(home)
    finally:
        release_embedded_postgres(home)
        remove_temporary_dir(directory)


def stop_abandoned_servers() -> None:
    """Stop the servers of test runs that were ended by a signal, and delete their data."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with abandoned_dir(directory) as is_abandoned:
            home = directory / "pg"
            if is_abandoned and (not home.exists() or stop_unused_postgres(home)):
                shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """A server to create databases in."""
    given = os.environ.get("DATAFLOW_TEST_DSN")
    if given:
        yield given
    else:
        yield from temporary_server()


@pytest.fixture
def store_dsn(postgres_dsn: str) -> Iterator[str]:
    """A database that nothing has been done to, dropped afterwards."""
    name = f"dataflow_test_{os.getpid()}_{next(_numbers)}"
    identifier = sql.Identifier(name)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            yield make_conninfo(postgres_dsn, dbname=name)
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
