"""Clocks of servers that jump an hour: no watermark goes back, and each record is there once, and not late by that.

NATS and Tansu make system calls themselves, so libfaketime has no hold on them.  In front of NATS is a proxy that
moves the times in what it says; the reader of Kafka is tested with a clock as argument
(`tests/property/test_kafka_source.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import redis

import dataflow as df
from dataflow.io.nats_streams.client import NatsServer
from dataflow.sink import Lane, SinkChange
from dataflow.source import SourceReader
from runners.embedded.temporary import FOLLOWED, postgres_with, temporary_home
from tests.changing_postgres import ChangingPostgres
from tests.clock_proxy import ClockProxy, jumping_clock
from tests.conformance.test_sink_contract import PostgresUnderTest
from tests.fake_clock import HOUR_S, FakeClock, fake_clock
from tests.integration.test_nats import made, publish
from tests.integration.test_nats import source_of as source_of_nats
from tests.integration.test_postgres_changes import make_table, run, source_of
from tests.integration.test_redis import RedisSinkUnderTest
from tests.stream_servers import NatsTestServer, RedisTestServer, running
from tests.waiting import until
from windowing.timestamps import MIN_TIMESTAMP_US

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.postgres]

JUMPS_S = (0, HOUR_S, 0, -HOUR_S, 0)
WANTED = [0, 2, 3, 4]


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with fake_clock() as found:
        yield found


@pytest.fixture
def redis_server(clock: FakeClock) -> Iterator[RedisTestServer]:
    with clock.starting(), running(RedisTestServer) as server:
        yield server


@pytest.fixture
def postgres(clock: FakeClock) -> Iterator[ChangingPostgres]:
    with temporary_home() as home:
        with clock.starting():
            dsn = postgres_with(FOLLOWED, home)
        yield ChangingPostgres(dsn, home)


def check_jumps(
    reader: SourceReader,
    clock: FakeClock | ClockProxy,
    put: Callable[[int], None],
    now_s: Callable[[], float],
) -> tuple[list[Any], int]:
    """Records come after each jump; what was read, and how many were behind the watermark before them."""
    values, late, watermark_us = list[Any](), 0, MIN_TIMESTAMP_US
    wanted: list[int] = []

    def read() -> int:
        nonlocal late, watermark_us
        batch = reader.read(10)
        values.extend(batch.values)
        late += sum(time_us < watermark_us for time_us in batch.timestamps_us)
        assert batch.watermark_us >= watermark_us, "the watermark has gone back"
        watermark_us = batch.watermark_us
        return len(values)

    real_s = datetime.now(UTC).timestamp()
    for number, jump_s in enumerate(JUMPS_S):
        clock.jump(jump_s)
        until(lambda: abs(now_s() - real_s - jump_s) < HOUR_S / 2)  # noqa: B023 - called at once
        # Without records the watermark follows the clock, wherever that is.
        behind_us = watermark_us
        until(lambda: read() >= 0 and (jump_s <= 0 or watermark_us > behind_us))  # noqa: B023 - called at once
        # One that came then would have moved the server's own numbers on, which are never set back.
        if jump_s <= 0:
            put(number)
            wanted.append(number)
            until(lambda: read() == len(wanted))
    reader.close()
    return values, late


def test_redis_is_read(redis_server: RedisTestServer, clock: FakeClock) -> None:
    source = df.ReadFromRedis("s", url=redis_server.url, field="value")._source
    with redis.Redis.from_url(redis_server.url) as client:
        reader = source.open(source.splits(1)[0], None, fence=1)
        values, late = check_jumps(
            reader,
            clock,
            lambda number: client.xadd("s", {"value": f"{number}"}),
            lambda: client.time()[0],
        )
    assert values == WANTED
    assert late == 0


def test_nats_is_read() -> None:
    with (
        running(NatsTestServer) as server,
        jumping_clock(server.port) as clock,
        closing(NatsServer(url=server.url).connect()) as client,
    ):
        stream = made(client)
        source = source_of_nats(df.ReadFromNats(stream, url=f"nats://127.0.0.1:{clock.port}"))
        reader = source.open(source.splits(1)[0], None, fence=1)
        values, late = check_jumps(
            reader, clock, lambda number: publish(client, stream, [number]), clock.now_s
        )
    assert values == WANTED
    assert late == 0


def test_changes_of_postgres_are_read(postgres: ChangingPostgres, clock: FakeClock) -> None:
    """Event times are those of a column: whoever writes the clock's time there is late by what it was set back."""
    with postgres.database() as dsn:
        make_table(dsn)
        run(dsn, "DELETE FROM t")
        source = source_of(dsn)
        reader = source.open(source.splits(1)[0], None, fence=1)
        values, late = check_jumps(
            reader,
            clock,
            lambda number: _insert(dsn, number),
            lambda: float(run(dsn, "SELECT extract(epoch FROM clock_timestamp())::float8")[0][0]),
        )
    assert [int(row["amount"]) for row in values] == WANTED
    print(f"{late} late")


def _insert(dsn: str, number: int) -> None:
    run(dsn, f"INSERT INTO t VALUES ('{number}', now(), {number})")


def check_writes(contract: Any, clock: FakeClock) -> None:
    with closing(contract.make()) as under_test:
        lane = Lane(writer="lane", number=0, title="the lane")
        number = 0
        for token, jump_s in enumerate(JUMPS_S, 1):
            clock.jump(jump_s)
            writer = under_test.opened(lane)
            assert writer.fence(token) == number
            for each in under_test.values[number : number + 2]:
                number += 1
                writer.write(number, [SinkChange(each, +1)])
                if number == 5:
                    clock.jump(-HOUR_S)
            writer.close()
        assert sorted(map(repr, under_test.read())) == sorted(map(repr, under_test.values[:number]))


@pytest.mark.parametrize("ids", ["number", "clock"])
def test_redis_is_written(redis_server: RedisTestServer, clock: FakeClock, ids: str) -> None:
    contract = RedisSinkUnderTest()
    contract.url, contract.ids = redis_server.url, ids
    check_writes(contract, clock)


def test_another_postgres_is_written(postgres: ChangingPostgres, clock: FakeClock) -> None:
    contract = PostgresUnderTest()
    contract.dsn = postgres.dsn
    check_writes(contract, clock)
    with psycopg.connect(postgres.dsn) as opened:
        (row,) = opened.execute("SELECT count(*) FROM dataflow_progress").fetchall()
    assert row == (1,)
