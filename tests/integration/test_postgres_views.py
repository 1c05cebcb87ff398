"""What a person sees with psql: keys and windows decoded, times as times, nobody disturbed."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataflow.coders import encode_key, hash_key
from runners.millwheel.cell_codec import encode_cell_key, encode_page_key, encode_window
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
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.job_lock import JobLock
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_timestamp_us
from windowing.window import Window

pytestmark = pytest.mark.postgres

LOW, HIGH = RangeId("count", 0), RangeId("count", 1)
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
HOUR = Window(to_timestamp_us(NOON), to_timestamp_us(NOON + timedelta(hours=1)))
GLOBAL = Window(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0.5, -2.25, 65504.5, 1e-3, 23, 24, 255, 256, -(2**64), 2**64 - 1, 2**64]),
    TEXT,
    st.binary(max_size=300),
    st.dates(),
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC)),  # noqa: DTZ001 - without a time zone, as the test says
)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=30).map(tuple), max_leaves=40)


@pytest.fixture
def store(store_dsn: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(store_dsn)) as store:
        ranges = [
            RangeSpec(range_id=range_id, keys=keys)
            for range_id, keys in zip((LOW, HIGH), even_ranges(2), strict=True)
        ]
        store.open_job(JobSpec(job="job", mode="streaming", fingerprint="f", ranges=ranges))
        yield store


@pytest.fixture
def person(store: PostgresStore, store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


def commit(store: PostgresStore, **parts: Any) -> None:
    taken = store.acquire("job", [LOW, HIGH], "worker")
    fences = [
        Fence(range_id=r, token=t.row.token, bundle=t.row.bundle + 1) for r, t in taken.items()
    ]
    assert store.commit(Production(job="job", fences=fences, **parts)) == Committed()


def shown(key: Any, *, is_nested: bool = False) -> str:
    """What decode_key makes of a key."""
    if key is None:
        return "null"
    if isinstance(key, bool):
        return str(int(key))
    if isinstance(key, str):
        return json.dumps(key, ensure_ascii=False) if is_nested else key
    if isinstance(key, bytes):
        return f"\\x{key.hex()}"
    if isinstance(key, tuple):
        return f"({', '.join(shown(item, is_nested=True) for item in key)})"
    if isinstance(key, datetime):
        # strftime does not fill years up.
        return f"{key.year:04}-{key:%m-%d %H:%M:%S.%f}+00"
    return str(key)


def decoded(person: psycopg.Connection[Any], encoded: bytes) -> str:
    row = person.execute("SELECT dataflow.decode_key(%s)", (encoded,)).fetchone()
    assert row is not None
    return str(row[0])


@given(keys=st.lists(KEYS, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_every_key_is_decoded(person: psycopg.Connection[Any], keys: list[Any]) -> None:
    query = "SELECT dataflow.decode_key(key) FROM unnest(%s::bytea[]) WITH ORDINALITY k (key, n) ORDER BY n"
    rows = person.execute(query, ([encode_key(key) for key in keys],)).fetchall()

    assert [shown(key) for key in keys] == [text for (text,) in rows]


@given(numbers=st.lists(st.floats(allow_nan=False).filter(lambda x: not x.is_integer())))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_every_float_is_decoded(person: psycopg.Connection[Any], numbers: list[float]) -> None:
    """To its very value, whichever of its three sizes the encoding took."""
    for number in numbers:
        assert float(decoded(person, encode_key(number))) == number


@given(junk=st.binary(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_what_is_no_key_is_shown_in_hex_and_never_an_error(
    person: psycopg.Connection[Any], junk: bytes
) -> None:
    assert decoded(person, junk)
    assert decoded(person, b"\xbf" + junk) == f"\\xbf{junk.hex()}"
    assert decoded(person, b"\x01" + junk) == (f"\\x01{junk.hex()}" if junk else "1")


@given(
    key=KEYS,
    bounds=st.tuples(*[st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)] * 2),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_a_key_is_shown_otherwise_than_a_window_and_a_key(
    person: psycopg.Connection[Any], key: Any, bounds: tuple[int, int]
) -> None:
    """Cells of windows that merge have no window in their key, and nothing else shows it."""
    start_us, end_us = sorted(bounds)
    encoded = encode_key(key)
    for window in (None, Window(start_us, end_us + 1), GLOBAL):
        row = person.execute(
            "SELECT dataflow.has_window(c), dataflow.key_of_cell(c) FROM (SELECT %s::bytea) x (c)",
            (encode_cell_key(window, encoded),),
        ).fetchone()
        assert row == (window is not None, shown(key))


def test_pages_are_rows_of_the_key_and_window_that_their_state_is_of(
    store: PostgresStore, person: psycopg.Connection[Any]
) -> None:
    encoded = encode_key(("k", 1))
    for key_hash, window in ((1, HOUR), (2, None)):
        cell_key = encode_cell_key(window, encoded)
        pages = [encode_page_key("seen", number, cell_key) for number in (0, 1 << 40)]
        writes = [CellWrite("count", key_hash, key, b"12") for key in (cell_key, *pages)]
        commit(store, cells=writes)

    rows = person.execute(
        "SELECT key, window_end, value_bytes, is_page FROM dataflow.readable_cells ORDER BY 2, 4"
    ).fetchall()
    shown_key, end = '("k", 1)', NOON + timedelta(hours=1)
    assert rows == [
        (shown_key, at, 2, is_page) for at in (end, None) for is_page in (False, True, True)
    ]


def test_views_of_what_commits_write(store: PostgresStore, person: psycopg.Connection[Any]) -> None:
    keys = [("red", HOUR), ((1, "a"), GLOBAL), ("merged", None)]
    cells, where = [], {}
    for key, window in keys:
        encoded = encode_key(key)
        where[shown(key)] = int(hash_key(encoded) >= 1 << 63)
        cell_key = encode_cell_key(window, encoded)
        cells.append(CellWrite("count", hash_key(encoded), cell_key, b"x" * 9_000))
    timer = TimerWrite("count", cells[0][1], cells[0][2], encode_window(HOUR), "event", HOUR.end_us)
    late = LateRecord(
        transform="count",
        key="'red'",
        window_start_us=HOUR.start_us,
        window_end_us=HOUR.end_us,
        watermark_us=MAX_TIMESTAMP_US,
        payload=b"12",
    )
    dead = StoredDeadLetter(
        stage="read", error="Bad", traceback="here", tries=3, timestamp_us=0, payload=b"123"
    )
    sent = Checkpoint(Channel(LOW, HIGH), 1, HOUR.start_us, b"1234")
    commit(store, cells=cells, timers=[timer], checkpoints=[sent], late=[late], dead=[dead])

    one = NOON + timedelta(hours=1)
    rows = person.execute(
        "SELECT key, job, computation, range_index, window_start::text, window_end::text, value_bytes "
        "FROM dataflow.readable_cells"
    ).fetchall()
    windows = {
        "red": ("2024-02-29 12:00:00+00", "2024-02-29 13:00:00+00"),
        '(1, "a")': ("-infinity", "infinity"),
        "merged": (None, None),
    }
    assert {row[0]: row[1:] for row in rows} == {
        key: ("job", "count", where[key], *windows[key], 9_000) for key in windows
    }
    assert person.execute("SELECT * FROM dataflow.readable_timers").fetchall() == [
        ("job", "count", where["red"], "red", NOON, one, "event", one)
    ]
    ((*production, created_at),) = person.execute(
        "SELECT * FROM dataflow.readable_productions"
    ).fetchall()
    assert production == ["job", "count", 0, "count", 1, 1, NOON, 4]
    assert person.execute("SELECT now() - %s < '1 minute'", [created_at]).fetchone() == (True,)
    late_row = person.execute(
        "SELECT job, transform, key, window_start, window_end, watermark::text, count, payload_bytes "
        "FROM dataflow.readable_late_records"
    ).fetchone()
    assert late_row == ("job", "count", "'red'", NOON, one, "infinity", 1, 2)
    assert person.execute(
        "SELECT job, stage, error, tries, traceback, payload_bytes FROM dataflow.readable_dead_letters"
    ).fetchall() == [("job", "read", "Bad", 3, "here", 3)]


def test_who_owns_and_who_runs(
    store: PostgresStore, store_dsn: str, person: psycopg.Connection[Any]
) -> None:
    commit(store)
    store.acquire("job", [LOW], "successor")
    rows = person.execute(
        "SELECT owner, last_bundle, ended_at IS NULL FROM dataflow.range_owners "
        "WHERE range_index = 0 ORDER BY token"
    ).fetchall()
    assert rows == [(None, 0, False), ("worker", 1, False), ("successor", 1, True)]

    drivers = "SELECT job, driver, session_pid FROM dataflow.job_drivers"
    assert person.execute(drivers).fetchall() == []
    lock, other = JobLock(store_dsn, "job"), JobLock(store_dsn, "not there yet")
    lock.hold()
    other.hold()
    [(job, driver, pid)] = person.execute(drivers).fetchall()
    assert (job, ":" in driver, pid > 0) == ("job", True, True)
    lock.release()
    other.release()


def test_sizes_of_a_jobs_tables(store: PostgresStore, person: psycopg.Connection[Any]) -> None:
    rows = person.execute("SELECT job, table_name, bytes FROM dataflow.table_status").fetchall()
    found = {(job, name): size for job, name, size in rows}

    assert found["job", "cells"] > 0
    assert found[None, "fences"] > 0
    assert (None, "cells") not in found


def test_readers_take_no_lock_that_a_commit_waits_for(
    store: PostgresStore, person: psycopg.Connection[Any]
) -> None:
    views = [
        name
        for (name,) in person.execute(
            "SELECT relname FROM pg_class "
            "WHERE relnamespace = 'dataflow'::regnamespace AND relkind = 'v'"
        )
    ]
    assert len(views) >= 12
    with person.transaction():
        for view in views:
            person.execute(f"SELECT * FROM dataflow.{view}".encode()).fetchall()
        locks = person.execute(
            """SELECT DISTINCT mode FROM pg_locks
               WHERE pid = pg_backend_pid() AND locktype = 'relation'"""
        ).fetchall()
        assert locks == [("AccessShareLock",)]
        commit(store, cells=[CellWrite("count", 1, b"k", b"v")])


def test_dates_as_keys(person: psycopg.Connection[Any]) -> None:
    """The settings of whoever looks do not matter."""
    person.execute("SET datestyle = 'German'")
    person.execute("SET timezone = 'Asia/Kolkata'")
    person.execute("SET bytea_output = 'escape'")
    key = (date(2024, 2, 29), NOON, b"\x01", 0.5, ())

    text = decoded(person, encode_key(key))

    assert text == "(2024-02-29, 2024-02-29 12:00:00.000000+00, \\x01, 0.5, ())"
