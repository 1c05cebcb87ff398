"""Postgres for tests: one server for the session, a fresh database for each test that asks.

The server is that of `DATAFLOW_TEST_DSN` where the variable is set (its role must be allowed to
create databases), else an embedded one in a temporary directory that is stopped at the end.
A missing server is a failure, never a skip.
"""

import itertools
import os
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runners.embedded.temporary import temporary_postgres
from tests.stored_bytes import complaints_of

#: Stands in front of this server, so it comes with it.
pytest_plugins = ["tests.fix_proxy"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """A server to create databases in."""
    given = os.environ.get("DATAFLOW_TEST_DSN")
    if given:
        yield given
    else:
        with temporary_postgres() as dsn:
            yield dsn


@pytest.fixture
def store_dsn(postgres_dsn: str) -> Iterator[str]:
    """A database that nothing has been done to, dropped afterwards.

    What a test has left in it must be of the stored format: every real job of these tests is an example of it.
    """
    name = f"dataflow_test_{os.getpid()}_{next(_numbers)}"
    identifier = sql.Identifier(name)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            yield make_conninfo(postgres_dsn, dbname=name)
            with psycopg.connect(make_conninfo(postgres_dsn, dbname=name)) as store:
                assert complaints_of(store) == []
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
