"""PostgresStore refuses what it cannot rely on: servers, schemas, tables.  It keeps its secrets."""

import pickle
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dataflow.table import TableSpec
from runners.embedded.cluster import open_cluster
from runners.embedded.postgres import embedded_postgres, release_embedded_postgres
from runners.embedded.temporary import temporary_home, temporary_postgres
from runners.errors import (
    StoreError,
    StoreUnreachableError,
    UnsuitableStoreError,
)
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, LateRecord, Production
from runners.millwheel.store.port import Committed, Fenced, Indeterminate, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore, checks, queries, schema
from tests.waiting import WAIT_MAX_S, until

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
SECRET = "hunter2"


@pytest.fixture
def store(empty_dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(empty_dsn)
    yield store
    store.close()


@pytest.fixture
def admin(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def home() -> Iterator[Path]:
    """A place for a server of the test's own."""
    with temporary_home() as home:
        home.mkdir(mode=0o700)
        yield home


def next_bundle(store: PostgresStore, **parts: Any) -> Production:
    row = store.acquire(JOB, [RANGE], "worker")[RANGE].row
    fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
    return Production(job=JOB, fences=[fence], **parts)


# Servers


@contextmanager
def standby_of(dsn: str, home: Path) -> Iterator[str]:
    """A streaming replica of an embedded server, running."""
    cluster = open_cluster(home)
    done = cluster._run(
        "pg_basebackup", f"--dbname={dsn}", f"--pgdata={cluster.data}", "-R", "--checkpoint=fast"
    )
    assert done.returncode == 0, done.stdout
    yield embedded_postgres(home)
    release_embedded_postgres(home)


@pytest.fixture(scope="module")
def primary() -> Iterator[str]:
    """A server to break, whatever `DATAFLOW_TEST_DSN` says."""
    with temporary_postgres() as dsn:
        yield dsn


def test_replica_is_refused(primary: str, home: Path) -> None:
    with standby_of(primary, home) as standby_dsn:
        store = PostgresStore(standby_dsn)
        with pytest.raises(UnsuitableStoreError, match="read replica"):
            store.read_job(JOB)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_server_that_may_lose_commits_is_refused(primary: str, setting: str) -> None:
    with psycopg.connect(primary, autocommit=True) as admin:
        admin.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        admin.execute("SELECT pg_reload_conf()")
        try:
            store = PostgresStore(primary)
            until(lambda: admin.execute(f"SHOW {setting}".encode()).fetchone() == ("off",))
            with pytest.raises(UnsuitableStoreError, match=f"{setting}=off") as caught:
                store.open_job(SPEC)
            assert "postgresql.conf" in caught.value.hint
        finally:
            admin.execute(f"ALTER SYSTEM RESET {setting}".encode())
            admin.execute("SELECT pg_reload_conf()")


def test_old_server_is_refused() -> None:
    facts = checks.ServerFacts(
        version_number=130012,
        is_in_recovery=False,
        fsync="on",
        full_page_writes="on",
        incarnation="",
    )

    with pytest.raises(UnsuitableStoreError, match="too old"):
        checks.refuse_unsuitable(facts, "here")


def test_server_that_is_starting_up_is_waited_for(home: Path) -> None:
    dsn = embedded_postgres(home)
    release_embedded_postgres(home)
    threading.Timer(0.5, lambda: embedded_postgres(home)).start()

    store = PostgresStore(dsn, connect_timeout_s=WAIT_MAX_S)

    assert store.read_job(JOB) is None
    store.close()


def test_store_goes_on_after_the_server_was_restarted(home: Path) -> None:
    store = PostgresStore(embedded_postgres(home))
    store.open_job(SPEC)
    bundle = next_bundle(store, cells=[CellWrite("count", 1, b"k", b"v")])
    release_embedded_postgres(home)
    embedded_postgres(home)

    assert isinstance(store.commit(bundle), Indeterminate)
    assert isinstance(store.resolve(bundle), Fenced)
    assert store.commit(next_bundle(store)) == Committed()
    store.close()


def test_hostile_defaults_of_the_database_do_not_matter(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    for setting in (
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "synchronous_commit = off",
        "timezone = 'Asia/Kolkata'",
        "search_path = 'public'",
        "bytea_output = 'escape'",
        "datestyle = 'German'",
    ):
        name = admin.info.dbname
        admin.execute(f'ALTER DATABASE "{name}" SET {setting}'.encode())

    store.open_job(SPEC)
    assert store.commit(next_bundle(store)) == Committed()
    assert store.connect().execute("SHOW synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize(("given", "expected"), [("0", "1MB"), ("512kB", "512kB")])
def test_what_a_session_writes_is_not_kept_for_later(
    store: PostgresStore, admin: psycopg.Connection[Any], given: str, expected: str
) -> None:
    """Commits would wait behind half a minute of it; whoever has chosen another measure keeps it."""
    admin.execute(
        f"ALTER DATABASE \"{admin.info.dbname}\" SET backend_flush_after = '{given}'".encode()
    )
    assert store.connect().execute("SHOW backend_flush_after").fetchone() == (expected,)


# Secrets


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://someone:{SECRET}@127.0.0.1:1/somewhere",
        f"host=/nowhere dbname=somewhere user=someone password={SECRET}",
    ],
)
def test_unreachable_server_is_named_without_the_password(dsn: str) -> None:
    store = PostgresStore(dsn, connect_timeout_s=0.2)

    with pytest.raises(StoreUnreachableError) as caught:
        store.open_job(SPEC)

    shown = _everything(caught.value) + repr(store) + str(store)
    assert "somewhere" in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://someone:{SECRET}@host:port:port/db",
        f"host=x password='{SECRET}",
        f"postgresql://someone:{SECRET}%zz@host/db",
        f"passwort={SECRET}",
    ],
)
def test_dsn_that_cannot_be_parsed_is_not_repeated(dsn: str) -> None:
    with pytest.raises(StoreError) as caught:
        PostgresStore(dsn, connect_timeout_s=0.1).connect()

    assert SECRET not in _everything(caught.value)


def test_refused_login_ends_the_waiting(postgres_dsn: str) -> None:
    waited: list[str] = []
    dsn = make_conninfo(postgres_dsn, dbname="nobody", password=SECRET)
    store = PostgresStore(dsn, waits=waited.append)

    with pytest.raises(StoreUnreachableError, match="nobody") as caught:
        store.connect()

    assert waited == []
    assert SECRET not in _everything(caught.value)


# Schema


def test_newer_schema_is_refused(store: PostgresStore, admin: psycopg.Connection[Any]) -> None:
    store.open_job(SPEC)
    store.close()
    admin.execute("INSERT INTO dataflow.schema_versions VALUES (9999, 'tomorrow')")

    with pytest.raises(UnsuitableStoreError, match="newer version") as caught:
        store.read_job(JOB)

    assert "9999" in caught.value.detail
    assert "upgrade" in caught.value.hint


def test_schema_is_applied_once_by_many_at_once(empty_dsn: str) -> None:
    errors: list[Exception] = []

    def work() -> None:
        store = PostgresStore(empty_dsn)
        try:
            store.open_job(SPEC)
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits for it
            errors.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        schema.migrate(connection)
        versions = connection.execute("SELECT version FROM dataflow.schema_versions").fetchall()
    assert versions == [(migration.version,) for migration in schema.MIGRATIONS]


def test_a_new_database_has_all_migrations_in_one_round_trip(
    admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be a wait, and every job's first run in a database begins with them."""
    sent: list[Any] = []
    execute = psycopg.Connection.execute

    def noted(connection: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(query)
        return execute(connection, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", noted)
    schema.migrate(admin)

    assert len([each for each in sent if b"CREATE TABLE dataflow.jobs" in each]) == 1
    assert len(sent) < len(schema.MIGRATIONS)


def test_failed_migration_leaves_the_old_schema(admin: psycopg.Connection[Any]) -> None:
    schema.migrate(admin)
    latest = schema.MIGRATIONS[-1].version
    broken = queries.Migration(
        version=latest + 1, name="broken", script=b"CREATE TABLE dataflow.half (); SELECT 1/0"
    )

    with pytest.raises(psycopg.errors.DivisionByZero):
        schema.migrate(admin, [*schema.MIGRATIONS, broken])

    assert admin.execute("SELECT to_regclass('dataflow.half')").fetchone() == (None,)
    assert admin.execute("SELECT max(version) FROM dataflow.schema_versions").fetchone() == (
        latest,
    )


def test_migrations_count_from_one_without_a_gap() -> None:
    versions = [migration.version for migration in schema.MIGRATIONS]

    assert versions == list(range(1, len(versions) + 1))


@pytest.mark.parametrize("text", ["-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n", "-- name: a\n"])
def test_query_file_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="query a"):
        queries.parse_queries(text)


def test_every_table_and_view_is_explained(admin: psycopg.Connection[Any]) -> None:
    schema.migrate(admin)

    silent = admin.execute(
        """SELECT relname FROM pg_class WHERE relnamespace = 'dataflow'::regnamespace
           AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL"""
    ).fetchall()
    assert silent == []


def test_views_show_names_and_times(store: PostgresStore, admin: psycopg.Connection[Any]) -> None:
    store.open_job(SPEC)
    late = LateRecord(
        transform="t", key="k", window_start_us=0, window_end_us=1, watermark_us=2, payload=b""
    )
    bundle = next_bundle(store, watermarks_us={RANGE: 1_500_000}, late=[late])
    assert store.commit(bundle) == Committed()

    row = admin.execute(
        "SELECT job, computation, range_index, owner, bundle, watermark FROM dataflow.range_status"
    ).fetchone()
    moment = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert row == (JOB, "count", 0, "worker", 1, moment)
    status = admin.execute("SELECT open_ranges, low_watermark FROM dataflow.job_status").fetchone()
    assert status == (1, moment)
    extremes = "SELECT dataflow.instant(-9223372036854775808)::text, dataflow.instant(-1)::text"
    assert admin.execute("SET timezone = 'UTC'") is not None
    assert admin.execute(extremes).fetchone() == ("-infinity", "1969-12-31 23:59:59.999999+00")


def _everything(error: BaseException) -> str:
    """All that a log or a report could show of an error, and what it is pickled as."""
    shown = "".join(traceback.format_exception(error)) + repr(pickle.dumps(error))
    context: BaseException | None = error
    while context is not None:
        shown += repr(context)
        context = context.__context__ or context.__cause__
    return shown
