"""Which errors of a Postgres server another try may not have."""

import psycopg
import pytest
from psycopg import errors

from dataflow.errors import InputError
from dataflow.io.postgres_reads.connection import is_lost, quoted


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


def test_names_are_quoted() -> None:
    assert quoted("public", 'a "b"') == '"public"."a ""b"""'
