"""What a real server says of slots, dead rows and autovacuum, and what is made of it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import attrs
import psycopg
import pytest

from benchmarks import stores
from runners.millwheel.store.port import Store, VacuumedTable
from runners.millwheel.store.postgres import PostgresStore
from runners.observability.why.evidence import StoreFindingKind
from runners.observability.why.store_health import (
    DEAD_ROWS,
    KEPT_BYTES,
    VACUUM_DUE_S,
    findings_of,
    store_findings,
)
from runners.testing.store_conformance.world import JOB, job_spec
from tests.waiting import until

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(store_dsn: str) -> Iterator[Store]:
    with closing(PostgresStore(store_dsn)) as store:
        store.open_job(job_spec())
        yield store


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(store_dsn, autocommit=True) as admin:
        yield admin


def table(store: Store, name: str) -> VacuumedTable:
    return next(each for each in store.vacuumed_tables(JOB) if each.name == name)


def partition(admin: psycopg.Connection[Any], name: str) -> str:
    row = admin.execute(
        "SELECT partition_name FROM dataflow.vacuum_status WHERE job = %s AND table_name = %s",
        (JOB, name),
    ).fetchone()
    assert row is not None
    return f"dataflow.{row[0]}"


def test_a_store_that_is_well(store: Store) -> None:
    assert store_findings(store, JOB) == []
    found = table(store, "cells")
    assert found.is_autovacuumed
    assert found.vacuum_after > 0


def test_a_slot_that_nobody_reads(store: Store, admin: psycopg.Connection[Any]) -> None:
    admin.execute("SELECT pg_create_physical_replication_slot('nobody', true)")
    try:
        (slot,) = [each for each in store.replication_slots() if each.name == "nobody"]
        assert not slot.is_active
        assert not slot.keeps_rows
        before = slot.kept_bytes
        admin.execute("SELECT pg_switch_wal()")
        admin.execute("CREATE TABLE public.written AS SELECT generate_series(1, 100000) AS number")
        admin.execute("DROP TABLE public.written")
        (slot,) = [each for each in store.replication_slots() if each.name == "nobody"]
        assert slot.kept_bytes > before
    finally:
        admin.execute("SELECT pg_drop_replication_slot('nobody')")

    assert findings_of((), [slot], ()) == [], "it may wait for its reader for a while"
    (found,) = findings_of((), [attrs.evolve(slot, kept_bytes=2 * KEPT_BYTES)], ())
    assert found.kind is StoreFindingKind.SLOT
    assert "nobody reads replication slot nobody, which keeps 2,048 MB of the log" in found.text
    (found,) = findings_of((), [attrs.evolve(slot, keeps_rows=True)], ())
    assert "all rows that were overwritten or deleted since" in found.text
    (found,) = findings_of((), [attrs.evolve(slot, wal_status="lost")], ())
    assert "is lost" in found.text


def test_autovacuum_that_is_off_for_a_table(store: Store, admin: psycopg.Connection[Any]) -> None:
    admin.execute(
        f"ALTER TABLE {partition(admin, 'cells')} SET (autovacuum_enabled = false)".encode()
    )
    (found,) = store_findings(store, JOB)
    assert found.kind is StoreFindingKind.AUTOVACUUM
    assert "autovacuum is off for cells of the job" in found.text


def test_rows_that_a_vacuum_cannot_free(
    store: Store, admin: psycopg.Connection[Any], store_dsn: str
) -> None:
    """Somebody has a snapshot from before they were deleted: they are there after the vacuum, and so is the reason."""
    name, rows = partition(admin, "late_records"), 2 * DEAD_ROWS
    admin.execute(f"CREATE TABLE public.filler (LIKE {name})".encode())
    columns = admin.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attnotnull AND attidentity = ''",
        (name,),
    ).fetchall()
    values = {
        "integer": "1",
        "bigint": "1",
        "text": "'x'",
        "bytea": "'\\x00'::bytea",
        "jsonb": "'{}'::jsonb",
        "timestamp with time zone": "now()",
        "boolean": "true",
        "smallint": "1",
    }
    names = ", ".join(column for column, _ in columns)
    made = ", ".join(values[kind] for _, kind in columns)
    # The foreign keys of a table of a job are not what this is about.
    admin.execute("SET session_replication_role = replica")
    admin.execute(
        f"INSERT INTO {name} ({names}) SELECT {made} FROM generate_series(1, {rows})".encode()
    )
    with stores.open_snapshot(store_dsn):
        admin.execute(f"DELETE FROM {name}".encode())
        admin.execute(f"VACUUM {name}".encode())
        admin.execute("SELECT pg_stat_force_next_flush()")
        until(
            lambda: table(store, "late_records").dead_rows >= rows,
            lambda: str(table(store, "late_records")),
        )
        found = table(store, "late_records")
        bloat = [each for each in store_findings(store, JOB) if each.kind is StoreFindingKind.BLOAT]

    assert found.vacuumed_age_s is not None
    assert found.size_bytes > 0
    (finding,) = bloat
    assert f"late_records has {found.dead_rows:,} dead rows beside" in finding.text
    assert "something keeps these rows, such as a session with an old snapshot" in finding.text
    (late,) = findings_of((), (), [attrs.evolve(found, vacuumed_age_s=2 * VACUUM_DUE_S)])
    assert "and autovacuum was there 10 minutes ago: it does not keep up" in late.text
    assert findings_of((), (), [attrs.evolve(found, is_being_vacuumed=True)]) == []
