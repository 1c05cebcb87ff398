"""What only a real Postgres can do to its adapter: locks, a COPY that is cut, statements that are too large.

Each check rejects an adapter that gets it wrong.

More of them are in `tests/integration/test_postgres_store.py`; those that are rejected here by name, too.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import psycopg
import pytest

from dataflow.table import TableSpec, TableWrite
from runners.errors import StoreError
from runners.millwheel.store.port import Committed, Fenced, Indeterminate
from runners.millwheel.store.postgres import PostgresStore, statements
from tests.conformance.broken_adapters import on_postgres as broken
from tests.conformance.broken_adapters.on_postgres import Breakage
from tests.integration import test_postgres_store as alone
from tests.integration.test_postgres_store import (
    HIGH,
    JOB,
    LOW,
    SCORES,
    SPEC,
    Connect,
    owned,
)
from tests.waiting import LONG_MS, Background, blocked_sessions

pytestmark = pytest.mark.postgres

Admin = psycopg.Connection[Any]
#: A table without a key, which rows go to by COPY if there are so many.
LOG = TableSpec(name="log", columns={"team": str, "total": int})
MANY = [(f"team {number}", number) for number in range(6_000)]


@pytest.fixture
def connect(store_dsn: str) -> Iterator[Connect]:
    """Make stores on the test's database; they are closed at the end."""
    stores: list[PostgresStore] = []

    def make(dsn: str = store_dsn, **settings: Any) -> PostgresStore:
        # Who waits for a lock waits until he gets it, unless that is what a check is about.
        stores.append(PostgresStore(dsn, **{"lock_timeout_ms": LONG_MS, **settings}))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def admin(store_dsn: str) -> Iterator[Admin]:
    """A person with psql."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


def owned_with_log(store: PostgresStore) -> Callable[..., Any]:
    """The bundle of `owned`, of a job that has the table without a key, too."""
    bundle = owned(store)
    store.open_job(attrs.evolve(SPEC, tables=[SCORES, LOG]))
    return bundle


@contextlib.contextmanager
def commit_in_flight(
    store: PostgresStore, production: Any, admin: Admin, table: str = "scores"
) -> Iterator[Any]:
    """A commit that has taken its fences, and waits for a lock on a user's table until the block ends."""
    with admin.transaction():
        admin.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        outcome = Background(lambda: store.commit(production))
        blocked_sessions(admin, outcome)
        yield outcome


def check_resolve_waits_for_a_commit_in_flight(connect: Connect, admin: Admin) -> None:
    """A production that lands while it is looked up has landed."""
    store, resolver = connect(), connect()
    production = owned(store)(1)
    with commit_in_flight(store, production, admin) as outcome:
        resolved = Background(lambda: resolver.resolve(production))
        blocked_sessions(admin, outcome, resolved)

    assert (outcome(), resolved()) == (Committed(), Committed())


def check_a_takeover_notes_how_far_a_commit_in_flight_came(connect: Connect, admin: Admin) -> None:
    """What lands while the range is taken over has landed, for who looks it up later, and is in what is taken."""
    store, successor = connect(), connect()
    production = owned(store)(1)
    with commit_in_flight(store, production, admin) as outcome:
        taken = Background(lambda: successor.acquire(JOB, [LOW], "successor")[LOW])
        blocked_sessions(admin, outcome, taken)

    found: Any = taken()
    assert (outcome(), found.row.bundle) == (Committed(), 1)
    assert successor.resolve(production) == Committed()


def check_a_reset_waits_for_a_commit_in_flight(connect: Connect, admin: Admin) -> None:
    """Nothing of it is left behind in the next life of the job."""
    store, other = connect(), connect()
    production = owned(store)(1)
    with commit_in_flight(store, production, admin) as outcome:
        done = Background(lambda: other.reset_job(JOB))
        blocked_sessions(admin, outcome, done)

    assert outcome() == Committed()
    assert done() is None
    assert store.commit(production) == Fenced(LOW)


def check_a_copy_that_is_cut_happens_not_at_all(connect: Connect, admin: Admin) -> None:
    """The session is ended in mid-COPY: nobody knows, until it is looked up; and nothing is there."""
    store, resolver = connect(), connect()
    production = owned_with_log(store)(1, tables=[TableWrite(table=LOG, inserts=MANY)])
    with commit_in_flight(store, production, admin, "log") as outcome:
        admin.execute("SELECT pg_terminate_backend(%s)", blocked_sessions(admin, outcome))
        assert isinstance(outcome(), Indeterminate)

    assert isinstance(resolver.resolve(production), Fenced)
    assert resolver.read_table(LOG) == []
    assert resolver.statistics(JOB)["cells"] == 0


def check_a_copy_that_is_refused_happens_not_at_all(connect: Connect, admin: Admin) -> None:
    """One row of many that the table does not take; the next commit is as if nothing had been."""
    store = connect()
    bundle = owned_with_log(store)
    admin.execute("ALTER TABLE log ADD CHECK (total < 5999)")
    many = bundle(1, tables=[TableWrite(table=LOG, inserts=MANY)])

    with pytest.raises(StoreError, match="log_total_check"):
        store.commit(many)

    assert store.read_table(LOG) == []
    assert store.statistics(JOB)["cells"] == 0
    assert store.commit(bundle(1)) == Committed()


def check_a_copy_that_gives_way_to_a_lock_is_repeated(connect: Connect, admin: Admin) -> None:
    """Whole, from its fences on, and once."""

    def let_go(_: str) -> None:
        admin.rollback()

    store = connect(lock_timeout_ms=100, waits=let_go)
    production = owned_with_log(store)(1, tables=[TableWrite(table=LOG, inserts=MANY)])
    admin.execute("BEGIN")
    admin.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")

    assert store.commit(production) == Committed()
    assert sorted(store.read_table(LOG)) == sorted(MANY)
    assert store.acquire(JOB, [LOW], "successor")[LOW].row.bundle == 1


def check_a_statement_that_is_too_large_is_refused_by_name(connect: Connect, admin: Admin) -> None:
    """Before anything is sent: Postgres would only end the connection."""
    store = connect()
    bundle = owned(store, (LOW, HIGH))
    limit = statements.STATEMENT_BYTES_MAX
    statements.STATEMENT_BYTES_MAX = 1_000
    try:
        with pytest.raises(StoreError, match=r"(?s)step of count\[0\] of job 'job'.*values"):
            store.commit(bundle(1, b"x" * 1_100))
    finally:
        statements.STATEMENT_BYTES_MAX = limit

    assert store.statistics(JOB)["cells"] == 0
    assert store.commit(bundle(1)) == Committed()


CHECKS = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_postgres(check: Callable[[Connect, Admin], None], connect: Connect, admin: Admin) -> None:
    check(connect, admin)


@pytest.mark.parametrize(
    ("breakage", "check"),
    [
        (broken.looks_at_fences_without_a_lock, check_resolve_waits_for_a_commit_in_flight),
        (
            broken.looks_at_fences_without_a_lock,
            check_a_takeover_notes_how_far_a_commit_in_flight_came,
        ),
        (broken.commits_before_a_copy, check_a_copy_that_is_cut_happens_not_at_all),
        (broken.commits_before_a_copy, check_a_copy_that_is_refused_happens_not_at_all),
        (broken.repeats_a_copy_alone, check_a_copy_that_gives_way_to_a_lock_is_repeated),
        (broken.takes_a_cut_for_a_refusal, check_a_copy_that_is_cut_happens_not_at_all),
        (broken.sends_what_is_too_large, check_a_statement_that_is_too_large_is_refused_by_name),
        (broken.gives_up_at_once, check_a_copy_that_gives_way_to_a_lock_is_repeated),
        (broken.gives_up_at_once, alone.test_deadlocked_commit_is_repeated),
        (broken.gives_up_at_once, alone.test_commit_that_gave_way_to_a_lock_is_repeated),
        (broken.gives_up_at_once, alone.test_a_commit_that_somebody_cancels_is_repeated),
    ],
    ids=lambda each: each.__name__,
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_checks_reject(
    breakage: Breakage,
    check: Callable[[Connect, Admin], None],
    connect: Connect,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breakage(monkeypatch)

    with pytest.raises((AssertionError, StoreError, IndexError, pytest.fail.Exception)):
        check(connect, admin)
