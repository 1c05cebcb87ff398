"""Postgres for tests: one server for the session, a fresh database for each test that asks.

The server is that of `DATAFLOW_TEST_DSN` where the variable is set (its role must be allowed to
create databases), else an embedded one in a temporary directory that is stopped at the end.
A missing server is a failure, never a skip.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runners.embedded.temporary import temporary_postgres
from runners.registry import open_store
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


@pytest.fixture(scope="session")
def store_template(postgres_dsn: str) -> Iterator[str]:
    """The name of a database that has the tables of a store, which takes a tenth of a second to make."""
    with _database(postgres_dsn) as dsn:
        with closing(open_store(dsn)) as store:
            store.incarnation()
        yield str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def store_dsn(postgres_dsn: str, store_template: str) -> Iterator[str]:
    """A database as the first job leaves it that finds it empty, with a store's tables; dropped afterwards.

    What a test has left in it must be of the stored format: every real job of these tests is an example of it.
    """
    with _database(postgres_dsn, store_template) as dsn:
        yield dsn
        with psycopg.connect(dsn) as store:
            assert complaints_of(store) == []


@pytest.fixture
def empty_dsn(postgres_dsn: str) -> Iterator[str]:
    """A database that nothing has been done to, dropped afterwards."""
    with _database(postgres_dsn) as dsn:
        yield dsn
        with psycopg.connect(dsn) as store:
            assert complaints_of(store) == []


@contextmanager
def _database(postgres_dsn: str, template: str = "template1") -> Iterator[str]:
    name = f"dataflow_test_{os.getpid()}_{next(_numbers)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        try:
            yield make_conninfo(postgres_dsn, dbname=name)
        finally:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )
