"""Every job has tables of its own: made with it, dropped with it, and nobody is disturbed by either."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dataflow.table import TableSpec, TableWrite
from runners.errors import StoreError
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import (
    CellWrite,
    Checkpoint,
    LateRecord,
    Production,
    StoredDeadLetter,
    TimerWrite,
)
from runners.millwheel.store.port import (
    CommitOutcome,
    Committed,
    Fenced,
    JobSpec,
    RangeSpec,
)
from runners.millwheel.store.postgres import PostgresStore
from tests.waiting import LONG_MS, Background, blocked_sessions, until

pytestmark = pytest.mark.postgres

LOW, HIGH = RangeId("count", 0), RangeId("count", 1)
OUT, IN = Channel(LOW, HIGH), Channel(HIGH, LOW)
SCORES = TableSpec(name="scores", columns={"team": str, "total": int}, key=("team",))
LATE = LateRecord(
    transform="count", key="'k'", window_start_us=0, window_end_us=9, watermark_us=20, payload=b"l"
)
DEAD = StoredDeadLetter(
    stage="read", error="Bad", traceback="here", tries=3, timestamp_us=5, payload=b"d"
)


def spec(job: str = "job", *, tables: tuple[TableSpec, ...] = ()) -> JobSpec:
    ranges = [
        RangeSpec(range_id=range_id, keys=keys)
        for range_id, keys in zip((LOW, HIGH), even_ranges(2), strict=True)
    ]
    return JobSpec(job=job, mode="streaming", fingerprint="f", ranges=ranges, tables=tables)


@pytest.fixture
def store(store_dsn: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(store_dsn)) as store:
        yield store


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A person with psql."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


class Worker:
    """Owns a range, and commits something of everything that a commit can write."""

    def __init__(self, store: PostgresStore, job: str = "job") -> None:
        self.store, self.job = store, job
        row = store.acquire(job, [LOW], "worker")[LOW].row
        self.token, self.bundle = row.token, row.bundle

    def production(self, **parts: Any) -> Production:
        number = self.bundle + 1
        everything: dict[str, Any] = {
            "cells": [
                CellWrite("count", 1, b"k%d" % number, b"v"),
                CellWrite("count", 2, b"", b""),
            ],
            "timers": [TimerWrite("count", 1, b"k", b"w%d" % number, "event", number)],
            "checkpoints": [Checkpoint(OUT, number, 7, b"p")],
            "delivered": {IN: number},
            "acknowledged": {OUT: number - 1} if number > 1 else {},
            "late": [LATE],
            "dead": [DEAD],
        }
        fence = Fence(range_id=LOW, token=self.token, bundle=number)
        return Production(job=self.job, fences=[fence], **{**everything, **parts})

    def commit(self, **parts: Any) -> CommitOutcome:
        outcome = self.store.commit(self.production(**parts))
        self.bundle += isinstance(outcome, Committed)
        return outcome


def tables_of(admin: psycopg.Connection[Any], job: str | None) -> set[str]:
    query = "SELECT table_name FROM dataflow.partitions WHERE job IS NOT DISTINCT FROM %s"
    return {name for (name,) in admin.execute(query, (job,))}


def parents_of(admin: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in admin.execute("SELECT * FROM dataflow.partitioned_tables")}


def number_of(admin: psycopg.Connection[Any], job: str = "job") -> int:
    row = admin.execute("SELECT job_id FROM dataflow.jobs WHERE name = %s", (job,)).fetchone()
    assert row is not None
    return int(row[0])


# What is a job's, and what is not


def test_a_reset_drops_the_tables_of_the_job_and_touches_no_other(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    store.open_job(spec())
    store.open_job(spec("bystander"))
    first, second = Worker(store), Worker(store, "bystander")
    for worker in (first, second):
        assert worker.commit() == Committed()
    number = number_of(admin)
    assert tables_of(admin, "job") == tables_of(admin, "bystander") == parents_of(admin)

    store.reset_job("job")

    assert tables_of(admin, "bystander") == parents_of(admin)
    assert tables_of(admin, None) == set()
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE %s"
    assert admin.execute(left, (f"%\\_{number}",)).fetchone() == (0,)
    assert isinstance(first.commit(), Fenced)
    assert second.commit() == Committed()
    assert store.statistics("bystander")["cells"] == 3


def test_a_row_in_a_parent_is_refused(store: PostgresStore, admin: psycopg.Connection[Any]) -> None:
    """Its job would never see it; nor may a program from before the migration go on."""
    store.open_job(spec())
    with pytest.raises(psycopg.errors.CheckViolation, match="rows_are_in_tables_of_jobs"):
        admin.execute("INSERT INTO dataflow.cells VALUES (1, 1, '', '')")


def test_tables_of_a_job_are_as_the_parents_are(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    """Settings that an operator has changed hold for the jobs to come."""
    store.connect()
    admin.execute("ALTER TABLE dataflow.cells SET (fillfactor = 42)")
    admin.execute("CREATE UNIQUE INDEX ON dataflow.timers (fire_us, domain) WHERE fire_us > 7")
    store.open_job(spec())
    number = number_of(admin)
    for parent in parents_of(admin):
        pair = (f"dataflow.{parent}", f"dataflow.{parent}_{number}")
        for fact in (
            "SELECT reloptions::text FROM pg_class WHERE oid = %s::regclass",
            """SELECT array_agg((attname, atttypid, attstorage, attnotnull, attidentity) ORDER BY attnum)::text
               FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0""",
            """SELECT array_agg(indisprimary || substring(pg_get_indexdef(indexrelid), ' USING .*'))::text,
                      bool_or(indisprimary), count(*) FILTER (WHERE indisunique)
               FROM pg_index WHERE indrelid = %s::regclass""",
        ):
            one, other = (admin.execute(fact.encode(), (name,)).fetchone() for name in pair)
            assert one == other, pair
    options = f"SELECT reloptions FROM pg_class WHERE relname = 'cells_{number}'".encode()
    assert "fillfactor=42" in (admin.execute(options).fetchone() or ([],))[0]


# Others at the same time


def test_a_commit_in_flight_ends_before_the_reset(
    store: PostgresStore, store_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    store.open_job(spec(tables=(SCORES,)))
    worker = Worker(store)
    write = TableWrite(table=SCORES, upserts=[("red", 1)])
    with closing(PostgresStore(store_dsn, lock_timeout_ms=LONG_MS)) as driver:
        with admin.transaction():
            admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
            committed = Background(lambda: worker.commit(tables=[write]))
            blocked_sessions(admin, committed)
            reset = Background(lambda: driver.reset_job("job"))
            blocked_sessions(admin, committed, reset)
        assert committed() == Committed()
        reset()
    assert isinstance(worker.commit(), Fenced)
    assert tables_of(admin, None) == set()


def until_one_more_is_in(seen: list[CommitOutcome], errors: list[BaseException]) -> None:
    before = seen.count(Committed())
    until(lambda: errors or seen.count(Committed()) > before)


@pytest.mark.nightly
def test_whoever_commits_for_a_job_that_is_reset_is_fenced_and_nothing_else(
    store: PostgresStore, store_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    """Four workers commit, on old connections and new ones, while a driver resets the job again and again."""
    errors: list[BaseException] = []
    seen: list[CommitOutcome] = []
    is_over = threading.Event()

    def work() -> None:
        with closing(PostgresStore(store_dsn)) as mine:
            while not is_over.is_set():
                try:
                    worker = Worker(mine)
                except StoreError as error:
                    # There is no job at this moment, or it was reset under the takeover.
                    if not re.search("was reset|has no range|no job", str(error)):
                        errors.append(error)
                    continue
                try:
                    while not is_over.is_set():
                        seen.append(worker.commit())
                        if isinstance(seen[-1], Fenced):
                            break
                    if len(seen) % 3 == 0:
                        mine.close()
                except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
                    errors.append(error)

    store.open_job(spec())
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        until_one_more_is_in(seen, errors)
        store.statistics("job")
        store.reset_job("job")
        store.open_job(spec())
    is_over.set()
    for thread in threads:
        thread.join()

    assert not errors
    assert {type(outcome) for outcome in seen} == {Committed, Fenced}
    store.open_job(spec())
    assert tables_of(admin, None) == set()


def test_a_person_who_reads_for_long_holds_nobody_up(
    store_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    """The job is reset, opened and runs again while he reads; its former tables go when the reader has."""

    with closing(PostgresStore(store_dsn, lock_timeout_ms=LONG_MS)) as store:

        def again() -> CommitOutcome:
            store.reset_job("job")
            store.open_job(spec())
            return Worker(store).commit()

        store.open_job(spec())
        assert Worker(store).commit() == Committed()
        with admin.transaction():
            admin.execute("SELECT * FROM dataflow.readable_cells").fetchall()
            assert Background(again)() == Committed()
        # Only what was read is left.
        assert tables_of(admin, None) == {"cells"}

        store.open_job(spec())

        assert tables_of(admin, None) == set()
        assert store.statistics("job")["cells"] == 2


# Rights


@pytest.fixture
def role(admin: psycopg.Connection[Any]) -> Iterator[str]:
    """A role that may log in, and nothing more."""
    name = f"ordinary_{admin.info.backend_pid}"
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield name
    admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_an_ordinary_role_opens_runs_and_resets_jobs_without_the_right_to_create_tables(
    store: PostgresStore, store_dsn: str, admin: psycopg.Connection[Any], role: str
) -> None:
    store.connect()
    for grant in (
        "USAGE ON SCHEMA dataflow",
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dataflow",
        "USAGE ON ALL SEQUENCES IN SCHEMA dataflow",
    ):
        admin.execute(f"GRANT {grant} TO {role}".encode())
    with closing(PostgresStore(make_conninfo(store_dsn, user=role))) as ordinary:
        ordinary.open_job(spec())
        worker = Worker(ordinary)
        assert worker.commit() == Committed()
        # Its state is there for whoever owns the schema, too.
        assert Worker(store).commit() == Committed()
        assert ordinary.statistics("job")["cells"] == 3
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ordinary.connect().execute("CREATE TABLE dataflow.mine ()")

        ordinary.reset_job("job")

    assert tables_of(admin, None) == tables_of(admin, "job") == set()


def test_a_role_without_rights_is_refused_with_the_reason(empty_dsn: str, role: str) -> None:
    with closing(PostgresStore(make_conninfo(empty_dsn, user=role))) as ordinary:
        with pytest.raises(StoreError, match="permission denied for database"):
            ordinary.open_job(spec())
        with closing(PostgresStore(empty_dsn)) as store:
            store.open_job(spec())
        with pytest.raises(StoreError, match="permission denied for schema dataflow"):
            ordinary.open_job(spec())


def test_nobody_drops_the_tables_of_a_job_that_is_there(
    store: PostgresStore, admin: psycopg.Connection[Any], store_dsn: str, role: str
) -> None:
    """Whoever may call the function may not do more with it than it is for."""
    store.open_job(spec())
    admin.execute(f"GRANT USAGE ON SCHEMA dataflow TO {role}".encode())
    with psycopg.connect(make_conninfo(store_dsn, user=role), autocommit=True) as anyone:
        for name in (f"cells_{number_of(admin)}", "jobs", "cells", "nothing"):
            anyone.execute("SELECT dataflow.drop_partition(%s)", (name,))
        with pytest.raises(psycopg.errors.RaiseException, match="no job 77"):
            anyone.execute("SELECT dataflow.add_partitions(77)")

    assert tables_of(admin, "job") == parents_of(admin)
