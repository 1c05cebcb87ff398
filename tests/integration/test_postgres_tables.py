"""PostgresStore and the tables of people: created, verified, written, never altered."""

import pickle
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import attrs
import pendulum
import psycopg
import pytest

from dataflow.table import TableSpec, TableWrite
from runners.errors import (
    StoreError,
    TableMismatchError,
    TableMissingError,
    TableOwnedError,
)
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Production
from runners.millwheel.store.guards import check_can_start_over
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.tables import COPY_ROWS_MIN

pytestmark = pytest.mark.postgres

JOB = "job"
RANGE = RangeId("count", 0)
SCORES = TableSpec(name="scores", columns={"team": str, "total": int}, key=("team",))
SPEC = JobSpec(
    job=JOB,
    mode="streaming",
    fingerprint="f",
    ranges=[RangeSpec(range_id=RANGE, keys=even_ranges(1)[0])],
    tables=[SCORES],
)


@pytest.fixture
def store(store_dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(store_dsn)
    yield store
    store.close()


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


def next_bundle(store: PostgresStore, **parts: Any) -> Production:
    row = store.acquire(JOB, [RANGE], "worker")[RANGE].row
    fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
    return Production(job=JOB, fences=[fence], **parts)


def test_table_that_existed_before_the_job_outlives_it(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("CREATE TABLE scores (total bigint, team text PRIMARY KEY)")
    store.open_job(SPEC)
    write = TableWrite(table=SCORES, upserts=[("red", 1)])
    assert store.commit(next_bundle(store, tables=[write])) == Committed()

    store.reset_job(JOB)
    store.open_job(SPEC)
    store.reset_job(JOB)

    assert admin.execute("SELECT team, total FROM scores").fetchall() == [("red", 1)]


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE scores (team text PRIMARY KEY, total integer)",
        "CREATE TABLE scores (team varchar(9) PRIMARY KEY, total bigint)",
        "CREATE TABLE scores (team text PRIMARY KEY)",
        "CREATE TABLE scores (team text PRIMARY KEY, total bigint, more text)",
        "CREATE TABLE scores (team text, total bigint)",
        "CREATE TABLE scores (team text, total bigint, PRIMARY KEY (team, total))",
        "CREATE UNLOGGED TABLE scores (team text PRIMARY KEY, total bigint)",
        "CREATE VIEW scores AS SELECT 'a' AS team, 1::bigint AS total",
    ],
)
def test_table_of_another_shape_is_refused(
    store: PostgresStore, admin: psycopg.Connection[Any], ddl: str
) -> None:
    admin.execute(ddl.encode())

    with pytest.raises(TableMismatchError, match="scores"):
        store.open_job(SPEC)

    assert store.read_job(JOB) is None


@pytest.mark.parametrize("name", ["", "a.b.c", ".a", "a.", "x" * 64, "a\0b", "dataflow.jobs"])
def test_impossible_table_name_is_refused(store: PostgresStore, name: str) -> None:
    with pytest.raises(StoreError):
        store.open_job(attrs.evolve(SPEC, tables=[attrs.evolve(SCORES, name=name)]))


def test_table_with_nothing_but_a_key(store: PostgresStore) -> None:
    table = TableSpec(name="seen", columns={"id": int}, key=("id",))
    store.open_job(attrs.evolve(SPEC, tables=[table]))
    write = TableWrite(table=table, upserts=[(1,), (2,)])

    assert store.commit(next_bundle(store, tables=[write])) == Committed()
    assert store.commit(next_bundle(store, tables=[write])) == Committed()

    assert sorted(store.read_table(table)) == [(1,), (2,)]


def test_pendulum_values_are_stored_exactly(store: PostgresStore) -> None:
    table = TableSpec(name="times", columns={"at": datetime})
    store.open_job(attrs.evolve(SPEC, tables=[table]))
    at = pendulum.datetime(2024, 3, 31, 2, 30, 0, 123_457, tz="Europe/Paris")
    write = TableWrite(table=table, inserts=[(at,)])

    assert store.commit(next_bundle(store, tables=[write])) == Committed()

    assert store.read_table(table) == [(at,)]


def test_table_dropped_under_the_job_is_an_error_that_changes_nothing(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    store.open_job(SPEC)
    cell = CellWrite("count", 1, b"k", b"v")
    write = TableWrite(table=SCORES, upserts=[("red", 1)])
    bundle = next_bundle(store, cells=[cell], tables=[write])
    admin.execute("DROP TABLE scores")

    with pytest.raises(StoreError, match="scores"):
        store.commit(bundle)
    assert store.statistics(JOB)["cells"] == 0

    admin.execute("CREATE TABLE scores (team text PRIMARY KEY, total bigint)")
    store.open_job(SPEC)
    assert store.commit(bundle) == Committed()


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE scores ADD CHECK (total > 0)",
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$;
           CREATE CONSTRAINT TRIGGER late AFTER INSERT ON scores DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION refuse()""",
    ],
    ids=["at once", "at commit"],
)
def test_row_that_the_users_own_constraint_refuses(
    store: PostgresStore, admin: psycopg.Connection[Any], ddl: str
) -> None:
    store.open_job(SPEC)
    admin.execute(ddl.encode())
    bundle = next_bundle(
        store,
        cells=[CellWrite("count", 1, b"k", b"v")],
        tables=[TableWrite(table=SCORES, upserts=[("red", -1)])],
    )

    with pytest.raises(StoreError) as caught:
        store.commit(bundle)

    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
    assert store.statistics(JOB)["cells"] == 0
    assert store.commit(attrs.evolve(bundle, tables=())) == Committed()


@pytest.mark.parametrize("deferred", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_many_rows_of_which_a_constraint_refuses_one_change_nothing(
    store: PostgresStore, admin: psycopg.Connection[Any], deferred: str
) -> None:
    """They go by COPY, outside the pipeline of the rest of their transaction."""
    table = TableSpec(name="many", columns={"id": int, "name": str})
    store.open_job(attrs.evolve(SPEC, tables=[table]))
    admin.execute(f"ALTER TABLE many ADD UNIQUE (id) {deferred}".encode())
    rows = [(number, f"row {number}") for number in range(2 * COPY_ROWS_MIN)]
    cell = CellWrite("count", 1, b"k", b"v")
    write = TableWrite(table=table, inserts=[*rows, rows[0]])
    bundle = next_bundle(store, cells=[cell], tables=[write])

    with pytest.raises(StoreError, match="many_id_key"):
        store.commit(bundle)
    assert store.statistics(JOB)["cells"] == 0
    assert list(store.read_table(table)) == []

    good = attrs.evolve(bundle, tables=[TableWrite(table=table, inserts=rows)])
    assert store.commit(good) == Committed()
    assert sorted(store.read_table(table)) == rows


def test_a_table_that_was_dropped_is_missed(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    """By who opens the job again; whoever starts over makes it anew."""
    store.open_job(SPEC)
    admin.execute("DROP TABLE scores")
    (gone,) = [each for each in store.result_tables(JOB) if each.name.endswith(".scores")]
    assert gone.has_rows is None

    with pytest.raises(TableMissingError, match=r"scores of job .* is not there any more"):
        store.open_job(SPEC)

    check_can_start_over(JOB, store.result_tables(JOB))
    store.reset_job(JOB)
    store.open_job(SPEC)
    assert store.read_table(SCORES) == []


def test_a_table_that_was_there_before_is_nobodys_and_stays(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("CREATE TABLE scores (team text PRIMARY KEY, total bigint)")
    admin.execute("INSERT INTO scores VALUES ('red', 1)")
    store.open_job(SPEC)

    with pytest.raises(TableOwnedError, match="it was there before"):
        check_can_start_over(JOB, store.result_tables(JOB))

    store.reset_job(JOB)
    assert store.read_table(SCORES) == [("red", 1)]
