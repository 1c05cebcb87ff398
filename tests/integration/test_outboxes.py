"""Outboxes in Postgres: rows that become visible out of order, and the floor below which nobody looks."""

from collections.abc import Iterator
from contextlib import closing

import attrs
import psycopg
import pytest
from starlette.testclient import TestClient

from dataflow.sink import Batching
from dataflow.table import TableWrite
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.relay.outbox import AT_ONCE, OutboxBatch, TakenLane
from runners.system_clock import SystemClock
from runners.testing.store_conformance.outboxes import FIRST, OUTBOX
from runners.testing.store_conformance.world import JOB, LOW, Owner, job_spec
from runners.ui.app import make_app
from runners.ui.guard import Access
from tests.integration.test_prometheus import BASE, exporter, scrape

pytestmark = pytest.mark.postgres

TABLE = '"dataflow_outbox"."conformance/sink"'
INSERT = f"INSERT INTO {TABLE} (dataflow_lane, dataflow_sign, value) VALUES (0, 1, %s)"


@pytest.fixture
def store(store_dsn: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(store_dsn)) as found:
        spec = job_spec()
        found.open_job(attrs.evolve(spec, tables=[*spec.tables, OUTBOX]))
        yield found


@pytest.fixture
def other(store: PostgresStore, store_dsn: str) -> Iterator[psycopg.Connection]:
    """A connection of somebody who adds rows too."""
    with psycopg.connect(store_dsn) as opened:
        yield opened


def batch_of(
    store: PostgresStore, lane: TakenLane, delivered: int, batching: Batching = AT_ONCE
) -> list[bytes] | None:
    batch = store.next_batch(lane, delivered, batching)
    return [value for _, value in batch.rows] if isinstance(batch, OutboxBatch) else None


def floor_of(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "SELECT floor_id FROM dataflow.lane_batches ORDER BY version DESC LIMIT 1"
    ).fetchone()
    connection.commit()
    assert row is not None
    return int(row[0])


def test_a_row_that_is_committed_late_leaves_late(
    store: PostgresStore, other: psycopg.Connection, store_dsn: str
) -> None:
    """A transaction that has drawn a lower id commits after several batches with higher ones were delivered."""
    owner, lane = Owner(store, LOW), store.take_lane(FIRST)
    other.execute(INSERT, [b"late"])
    with psycopg.connect(store_dsn) as look:
        for number in range(5):
            owner.commit(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, b"%d" % number)])])
            assert batch_of(store, lane, number) == [b"%d" % number]
        assert batch_of(store, lane, 5) is None
        assert floor_of(look) == 0
        other.commit()
        assert batch_of(store, lane, 5) == [b"late"]
        assert batch_of(store, lane, 6) is None
        for number in range(6, 9):
            owner.commit(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, b"%d" % number)])])
            assert batch_of(store, lane, number) == [b"%d" % number]
        assert floor_of(look) >= 6
    assert store.count_waiting(FIRST) == 1


def test_a_row_below_a_candidate_is_not_left_out(
    store: PostgresStore, other: psycopg.Connection
) -> None:
    """A late row that comes when the candidate could become the floor is taken before it becomes the floor."""
    owner, lane = Owner(store, LOW), store.take_lane(FIRST)
    other.execute(INSERT, [b"late"])
    owner.commit(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, b"a")])])
    assert batch_of(store, lane, 0) == [b"a"]
    owner.commit(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, b"b")])])
    assert batch_of(store, lane, 1) == [b"b"]
    other.commit()
    owner.commit(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, b"c")])])
    assert batch_of(store, lane, 2) == [b"late", b"c"]
    assert batch_of(store, lane, 3) is None
    assert store.count_waiting(FIRST) == 0


def test_a_batch_is_as_large_as_may_be(store: PostgresStore) -> None:
    """Rows and bytes bound a batch, and a row that is larger is one by itself."""
    limits = Batching(max_rows=3, max_bytes=1_000)
    owner, lane = Owner(store, LOW), store.take_lane(FIRST)
    # As no compression makes them smaller.
    large = bytes(range(256)) * 5
    values = [b"1", b"2", b"3", b"4", large, b"5"]
    owner.commit(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, each) for each in values])])
    sizes = list[int]()
    while (batch := batch_of(store, lane, len(sizes), limits)) is not None:
        sizes.append(len(batch))
    assert sizes == [3, 1, 1, 1]


def measured(dsn: str) -> dict[str, float]:
    """What Prometheus is given of sinks; by a site of its own, as looks soon after each other are one."""
    with exporter(dsn) as client:
        found = scrape(client).values
    return {name: value for (name, _), value in found.items() if name.startswith("dataflow_sink_")}


def test_how_fresh_a_sink_is_can_be_seen(
    store: PostgresStore, other: psycopg.Connection, store_dsn: str
) -> None:
    """By Prometheus, by SQL and on the page: since when rows wait, and how long it took until the last were visible."""
    other.autocommit = True
    lane = store.take_lane(FIRST)
    oldest, seen = (
        f"dataflow_sink_{name}_timestamp_seconds" for name in ("oldest_waiting", "visible")
    )
    other.execute(INSERT, [b"a"])
    assert batch_of(store, lane, 0) == [b"a"]
    written = measured(store_dsn)
    assert seen not in written
    assert batch_of(store, lane, 1) is None
    visible = measured(store_dsn)
    assert oldest not in visible
    took_s = visible["dataflow_sink_delay_seconds"]
    assert 0 < took_s == pytest.approx(visible[seen] - written[oldest], abs=0.01)
    other.execute(INSERT, [b"b"])
    again = measured(store_dsn)
    assert again[oldest] > again[seen] == visible[seen]
    row = other.execute(
        "SELECT waiting, written_first = written_last, oldest > visible_at FROM dataflow.sink_status"
    ).fetchone()
    assert row == (1, True, True)
    app = make_app(ReadOnlyStore(store_dsn), SystemClock(), Access())
    with TestClient(app, base_url=BASE) as client:
        (shown,) = client.get(f"/jobs/{JOB}.json").json()["sinks"]
        assert shown["oldest"] > shown["visible_at"] > shown["written_last"]
        assert "visible since (UTC)" in client.get(f"/jobs/{JOB}").text
