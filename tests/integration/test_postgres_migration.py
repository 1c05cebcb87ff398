"""A store with jobs in it that a newer version of the code opens."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.production import Checkpoint, LateRecord, Production, StoredDeadLetter
from runners.millwheel.store.port import Committed, TakenRange
from runners.millwheel.store.postgres import PostgresStore, schema

pytestmark = pytest.mark.postgres

LOW, HIGH = RangeId("count", 0), RangeId("count", 1)
OUT, IN = Channel(LOW, HIGH), Channel(HIGH, LOW)
LATE = LateRecord(
    transform="count", key="'k'", window_start_us=0, window_end_us=9, watermark_us=20, payload=b"l"
)
DEAD = StoredDeadLetter(
    stage="read", error="Bad", traceback="here", tries=3, timestamp_us=5, payload=b"d"
)


@pytest.fixture
def store(empty_dsn: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(empty_dsn)) as store:
        yield store


@pytest.fixture
def admin(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A person with psql."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def test_jobs_from_before_the_migration_go_on(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    """A schema of version 4 with two jobs in it reads the same afterwards, and both go on."""
    schema.migrate(admin, schema.MIGRATIONS[:4])
    admin.execute(_JOBS_OF_VERSION_4)

    assert store.read_jobs()[0].watermark_us == 1_000
    for job, index in (("one", 0), ("two", 2)):
        taken = store.acquire(job, [LOW, HIGH], "worker")
        assert _shown(taken[LOW]) == _expected_of(index)
        found = {
            r: store.read_cell_page(job, r, each.row.token, 0, 10) for r, each in taken.items()
        }
        assert found == {
            LOW: {(3, b"a"): b"cell %d" % index, (4, b"b"): b"x" * 9_000},
            HIGH: {},
        }
        assert [row["payload"] for row in store.read_late(job)] == [b"late %d" % index, b"later"]
        assert [row["payload"] for row in store.read_dead_letters(job)] == [b"dead %d" % index]
        counts = {
            "cells": 2,
            "timers": 1,
            "checkpoints": 1,
            "channels": 3,
            "late": 2,
            "dead": 1,
            "open_ranges": 2,
        }
        assert store.statistics(job).items() >= counts.items()
        fence = Fence(range_id=LOW, token=taken[LOW].row.token, bundle=taken[LOW].row.bundle + 1)
        production = Production(job=job, fences=[fence], late=[LATE], dead=[DEAD])
        assert store.commit(production) == Committed()
        assert [row["payload"] for row in store.read_late(job)][2:] == [b"l"]

    for (parent,) in admin.execute("SELECT * FROM dataflow.partitioned_tables").fetchall():
        count = f"SELECT count(*) FROM ONLY dataflow.{parent}".encode()
        assert admin.execute(count).fetchone() == (0,)
    store.reset_job("one")
    assert store.statistics("two")["cells"] == 2


def test_ranges_in_handover_stay_so_under_the_new_name_of_their_column(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    """A store of version 15, in which a range was just split."""
    schema.migrate(admin, schema.MIGRATIONS[:15])
    admin.execute(_A_SPLIT_OF_VERSION_15)

    schema.migrate(admin)

    job = store.read_job("one")
    assert job is not None
    assert {each: row.handover_with for each, row in job.ranges.items()} == {LOW: None, HIGH: LOW}
    view = "SELECT range_index, handover_with FROM dataflow.range_status ORDER BY range_index"
    assert admin.execute(view).fetchall() == [(0, None), (1, 0)]


def test_ends_of_channels_have_one_row_with_a_key_that_moves_on(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    """A store of version 17 with channels that are several generations old."""
    schema.migrate(admin, schema.MIGRATIONS[:17])
    admin.execute(_CHANNELS_OF_VERSION_17)

    taken = store.acquire("one", [LOW, HIGH], "worker")
    fence = Fence(range_id=LOW, token=taken[LOW].row.token, bundle=taken[LOW].row.bundle + 1)
    production = Production(job="one", fences=[fence], delivered={IN: 200}, acknowledged={OUT: 65})

    assert taken[LOW].row.bundle == 1_000
    assert list(taken[LOW].journal) == [b"last"]
    assert store.commit(production) == Committed()
    for table, ends, number in (
        ("deliveries", "receiver_range_id, sender_range_id", "delivered"),
        ("acknowledgements", "sender_range_id, receiver_range_id", "acknowledged"),
    ):
        rows = admin.execute(f"SELECT {number}, generation FROM dataflow.{table}".encode())
        assert rows.fetchall() == [(200, 3) if table == "deliveries" else (65, 1)]
        keys = admin.execute(
            f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'p' "
            f"AND conrelid IN ('dataflow.{table}'::regclass, 'dataflow.{table}_1'::regclass)".encode()
        )
        assert keys.fetchall() == [(f"PRIMARY KEY ({ends}, generation)",)] * 2
    assert admin.execute("SELECT count(*) FROM dataflow.productions").fetchone() == (1,)


def _shown(taken: TakenRange) -> tuple[object, ...]:
    return (
        [(t.key_hash, t.cell_key, t.tag, t.domain, t.fire_us) for t in taken.timers],
        dict(taken.delivered),
        dict(taken.sent),
        list(taken.checkpoints),
    )


def _expected_of(index: int) -> tuple[object, ...]:
    return (
        [(3, b"a", b"w", "percentile", 50 + index)],
        {IN: 4 + index},
        {OUT: 8, Channel(LOW, LOW): 9},
        [Checkpoint(OUT, 8, 30, b"sent %d" % index)],
    )


_JOBS_OF_VERSION_4 = """
INSERT INTO dataflow.jobs (name, mode, fingerprint)
VALUES ('one', 'streaming', 'f'), ('two', 'streaming', 'f');
INSERT INTO dataflow.computations (job_id, name) VALUES (1, 'count'), (2, 'count');
INSERT INTO dataflow.ranges (computation_id, range_index, first_hash, last_hash)
SELECT c, i, CASE i WHEN 0 THEN -9223372036854775808 ELSE 0 END,
       CASE i WHEN 0 THEN -1 ELSE 9223372036854775807 END
FROM generate_series(1, 2) c, generate_series(0, 1) i ORDER BY c, i;
INSERT INTO dataflow.fences (range_id, watermark_us) SELECT range_id, 1000 FROM dataflow.ranges;
INSERT INTO dataflow.cells
SELECT c, -9223372036854775805, 'a'::bytea, ('cell ' || 2 * (c - 1))::bytea FROM generate_series(1, 2) c
UNION ALL
SELECT c, -9223372036854775804, 'b'::bytea, repeat('x', 9000)::bytea FROM generate_series(1, 2) c;
INSERT INTO dataflow.timers
SELECT c, -9223372036854775805, 'a'::bytea, 'w'::bytea, 'percentile', 50 + 2 * (c - 1) FROM generate_series(1, 2) c;
INSERT INTO dataflow.deliveries VALUES (1, 2, 4), (3, 4, 6);
INSERT INTO dataflow.acknowledgements VALUES (1, 1, 9), (1, 2, 7), (3, 3, 9), (3, 4, 7);
INSERT INTO dataflow.productions
VALUES (1, 2, 8, 30, 'sent 0'), (3, 4, 8, 30, 'sent 2');
INSERT INTO dataflow.late_records
    (job_id, transform, key, window_start_us, window_end_us, watermark_us, payload, count)
VALUES (1, 't', 'k', 0, 1, 2, 'late 0', 1), (2, 't', 'k', 0, 1, 2, 'late 2', 1),
       (1, 't', 'k', 0, 1, 2, 'later', 1), (2, 't', 'k', 0, 1, 2, 'later', 1);
INSERT INTO dataflow.dead_letters (job_id, stage, error, traceback, tries, timestamp_us, payload)
VALUES (1, 's', 'e', 't', 1, 0, 'dead 0'), (2, 's', 'e', 't', 1, 0, 'dead 2');
"""

_A_SPLIT_OF_VERSION_15 = """
INSERT INTO dataflow.jobs (name, mode, fingerprint) VALUES ('one', 'streaming', 'f');
INSERT INTO dataflow.computations (job_id, name) VALUES (1, 'count');
INSERT INTO dataflow.ranges (computation_id, range_index, first_hash, last_hash, tied_to)
VALUES (1, 0, -9223372036854775808, -1, NULL), (1, 1, 0, 9223372036854775807, 1);
INSERT INTO dataflow.fences (range_id, watermark_us) SELECT range_id, 1000 FROM dataflow.ranges;
"""

_CHANNELS_OF_VERSION_17 = """
INSERT INTO dataflow.jobs (name, mode, fingerprint) VALUES ('one', 'streaming', 'f');
SELECT dataflow.add_partitions(1);
INSERT INTO dataflow.computations (job_id, name) VALUES (1, 'count');
INSERT INTO dataflow.ranges (computation_id, range_index, first_hash, last_hash)
VALUES (1, 0, -9223372036854775808, -1), (1, 1, 0, 9223372036854775807);
INSERT INTO dataflow.fences (range_id, bundle) SELECT range_id, 1000 FROM dataflow.ranges;
INSERT INTO dataflow.deliveries_1 VALUES (1, 2, 199);
INSERT INTO dataflow.acknowledgements_1 VALUES (1, 2, 63);
INSERT INTO dataflow.productions_1 VALUES (1, 2, 64, 0, '64'), (1, 2, 65, 0, '65'), (1, 2, 66, 0, '66');
INSERT INTO dataflow.journal_1 VALUES (1, 1000, 0, 1, 'last');
"""
