"""Which errors of a Postgres server another try may not have."""

import psycopg
import pytest
from psycopg import errors

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import is_lost, quoted, refuses_login


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (errors.CrashShutdown(), True),
        (errors.AdminShutdown(), True),
        (errors.CannotConnectNow(), True),
        (errors.TooManyConnections(), True),
        (errors.ObjectInUse(), True),
        (errors.ObjectNotInPrerequisiteState(), False),
        (errors.QueryCanceled(), False),
        (errors.DatabaseDropped(), False),
        (errors.UndefinedTable(), False),
        (psycopg.ProgrammingError("one of ours"), False),
        (InputError("another one"), False),
    ],
)
def test_what_may_pass_is_tried_again(error: Exception, expected: bool) -> None:
    assert is_lost(error) == expected


_FAILED = 'connection failed: connection to server at "db" (10.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            psycopg.OperationalError(f'{_FAILED}FATAL:  password authentication failed for "x"'),
            True,
        ),
        (psycopg.OperationalError(f"{_FAILED}fe_sendauth: no password supplied"), True),
        (psycopg.OperationalError(f'{_FAILED}FATAL:  database "y" does not exist'), True),
        (psycopg.OperationalError(f"{_FAILED}FATAL:  the database system is starting up"), False),
        (psycopg.OperationalError(f'{_FAILED}FATAL:  too many connections for role "x"'), False),
        (
            # One host of two is not there yet, so another try may find it.
            psycopg.OperationalError(
                f'{_FAILED}FATAL:  database "y" does not exist\n'
                f"{_FAILED}FATAL:  the database system is shutting down"
            ),
            False,
        ),
        (psycopg.OperationalError(f"{_FAILED}Connection refused"), False),
        (psycopg.InterfaceError("the connection is closed"), False),
        # It may quote anything.
        (errors.UndefinedTable("FATAL: "), False),
    ],
)
def test_a_login_that_is_refused_differs_from_a_server_that_is_away(
    error: Exception, expected: bool
) -> None:
    assert refuses_login(error) == expected


def test_names_are_quoted() -> None:
    assert quoted("public", 'a "b"') == '"public"."a ""b"""'
