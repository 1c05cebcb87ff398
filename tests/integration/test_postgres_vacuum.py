"""Tables that are written all the time stay as they are: updates in place, and garbage that is collected."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Checkpoint, Production, TimerWrite
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore

#: A round waits for the server's own clock, and for the statistics of a busy machine.
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]

RANGES = [RangeId("count", index) for index in range(8)]
OUT, IN = Channel(RANGES[0], RANGES[1]), Channel(RANGES[1], RANGES[0])
CELLS = 4_000
#: For the whole of a test, on a machine that has other things to do.
TIMEOUT_S = 120
ROUNDS = 5


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A person with psql."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


class Writer:
    """Owns all ranges of a new job, and fences all in each commit."""

    def __init__(self, store: PostgresStore) -> None:
        ranges = [
            RangeSpec(range_id=range_id, keys=keys)
            for range_id, keys in zip(RANGES, even_ranges(len(RANGES)), strict=True)
        ]
        store.open_job(JobSpec(job="job", mode="streaming", fingerprint="", ranges=ranges))
        taken = store.acquire("job", RANGES, "me")
        self.tokens = {range_id: taken[range_id].row.token for range_id in RANGES}
        self.store, self.bundle = store, 0

    def commit(self, **parts: Any) -> None:
        self.bundle += 1
        fences = [
            Fence(range_id=r, token=token, bundle=self.bundle) for r, token in self.tokens.items()
        ]
        assert self.store.commit(Production(job="job", fences=fences, **parts)) == Committed()


def cells(first: int, count: int, letter: bytes) -> list[CellWrite]:
    """Overwrites of the same size, with hashes all over the space."""
    hashes = (number * 2_654_435_761 % (1 << 32) << 32 for number in range(first, first + count))
    return [CellWrite("count", each, b"key", letter * 60) for each in hashes]


def status(admin: psycopg.Connection[Any]) -> dict[str, dict[str, Any]]:
    """What the view shows of each table, by the name of its parent."""
    cursor = admin.execute("SELECT * FROM dataflow.table_status")
    names = [column.name for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor]
    return {row["table_name"]: row for row in found}


def published(admin: psycopg.Connection[Any], updates: int) -> dict[str, dict[str, Any]]:
    """Wait until the server has published so many updates of cells, which it does with a delay."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := status(admin))["cells"]["updates"] < updates:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


def test_overwrites_stay_in_their_page(store_dsn: str, admin: psycopg.Connection[Any]) -> None:
    """Fences, marks and cells of the same size: HOT, whether a bundle overwrites few or all; so nothing grows.

    No vacuum is needed for it, and none runs.
    """
    hot = ("cells", "fences", "deliveries", "acknowledgements")
    # Whatever has a snapshot for a moment, an autovacuum of the catalog say, has a table grow by some pages; most do
    # fences, which each commit changes.  Where nothing makes room they are 280, 35, 6 and 6.
    pages = (10, 10, 4, 4)
    with closing(PostgresStore(store_dsn)) as store:
        store.connect()
        for name in hot:
            admin.execute(f"ALTER TABLE dataflow.{name} SET (autovacuum_enabled = off)".encode())
        writer = Writer(store)
        writer.commit(cells=cells(0, CELLS, b"a"))
        before = status(admin)
        for number in range(300):
            few = cells(number * 10, 10, b"b")
            writer.commit(cells=few, delivered={IN: number}, acknowledged={OUT: number})
        for letter in (b"c", b"d", b"e", b"f"):
            writer.commit(cells=cells(0, CELLS, letter))
    after = published(admin, 300 * 10 + 4 * CELLS)

    for name, percent, more in zip(hot, (95, 98, 98, 98), pages, strict=True):
        assert after[name]["hot_percent"] >= percent, after[name]
        assert after[name]["bytes"] <= 1.2 * before[name]["bytes"] + more * 8192, after[name]


def test_what_is_born_and_dies_is_vacuumed_before_it_piles_up(
    store_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    """Productions and timers leave garbage that only a vacuum takes away; the settings bring it about in time."""
    admin.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
    admin.execute("SELECT pg_reload_conf()")
    try:
        with closing(PostgresStore(store_dsn)) as store:
            writer = Writer(store)
        sizes = [_sizes_of_a_round(writer, store_dsn, admin) for _ in range(ROUNDS)]
    finally:
        admin.execute("ALTER SYSTEM RESET autovacuum_naptime")
        admin.execute("SELECT pg_reload_conf()")

    # A vacuum may come too early for half of a round, and so two may be there at once; without any there were all.
    assert sizes[-1] <= 3.5 * sizes[0], sizes


def _sizes_of_a_round(writer: Writer, dsn: str, admin: psycopg.Connection[Any]) -> int:
    """Write and delete, and wait until the vacuum has come round; the size of both tables before it came."""
    before = _vacuums(admin)
    # The server counts what a session has done when that ends; of one that is idle only after ten seconds.
    with closing(PostgresStore(dsn)) as writer.store:
        for _ in range(12):
            _write_and_delete(writer)
        found = status(admin)
    deadline_s = time.monotonic() + TIMEOUT_S
    while not all(count > before[name] for name, count in _vacuums(admin).items()):
        assert time.monotonic() < deadline_s, status(admin)
        time.sleep(0.1)
    return int(found["productions"]["bytes"] + found["timers"]["bytes"])


def _write_and_delete(writer: Writer) -> None:
    first = 500 * writer.bundle + 1
    sent = [Checkpoint(OUT, first + n, 0, b"p" * 200) for n in range(500)]
    keys = [(0, b"key %d" % n, b"w%d" % writer.bundle, "event") for n in range(500)]
    writer.commit(checkpoints=sent, timers=[TimerWrite("count", *key, 1) for key in keys])
    writer.commit(
        acknowledged={OUT: first + 499}, timers=[TimerWrite("count", *key, None) for key in keys]
    )


def _vacuums(admin: psycopg.Connection[Any]) -> dict[str, int]:
    """How often the two tables have been vacuumed."""
    counts = """SELECT relname, autovacuum_count FROM pg_stat_user_tables
                WHERE schemaname = 'dataflow' AND relname ~ '^(productions|timers)_'"""
    return dict(admin.execute(counts).fetchall())
