"""A network that loses all that goes one way, between a connector and its server: noticed, and each record once."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import dataflow as df
from dataflow.io.nats_streams.client import NatsServer
from dataflow.io.postgres_reads.row_form import RowForm
from dataflow.io.postgres_reads.table_rows import RowsSource
from dataflow.source import SourceReader
from tests.changing_postgres import changing_postgres
from tests.conformance.test_file_sinks import TestJsonLines as JsonLinesUnderTest
from tests.conformance.test_lake_sinks import DeltaUnderTest
from tests.conformance.test_sink_contract import PostgresUnderTest
from tests.delivering import deliver
from tests.fault_harness import within
from tests.http_server import http_target
from tests.integration.test_kafka_broker import Broker, SinkOfBroker, each_once
from tests.integration.test_kafka_broker import source_of as kafka_source_of
from tests.integration.test_nats import NatsSinkUnderTest, made
from tests.integration.test_postgres_changes import make_table, run
from tests.integration.test_postgres_changes import source_of as changes_of
from tests.integration.test_postgres_key_chunks import source_of as key_chunks_of
from tests.integration.test_postgres_rows import expected_rows, read_to_the_end
from tests.integration.test_postgres_rows import make_table as make_numbers
from tests.integration.test_redis import RedisSinkUnderTest
from tests.one_way import DIRECTIONS, Link, one_way_network
from tests.stream_servers import NatsTestServer, RedisTestServer, running
from tests.tansu import Tansu
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.postgres]

#: Longest time until a client notices that nothing comes.
NOTICED_S = 90.0
each_way = pytest.mark.parametrize("direction", DIRECTIONS)


@pytest.fixture
def link() -> Iterator[Link]:
    with one_way_network() as made_link:
        yield made_link


def through(link: Link, dsn: str) -> str:
    """The address of a Postgres of this machine, over the network."""
    known = conninfo_to_dict(dsn)
    port = int(str(known["port"]))
    link.to(port, f"unix:{known['host']}/.s.PGSQL.{port}")
    return make_conninfo(dsn, host=link.address, port=port, sslmode="disable", gssencmode="disable")


def check_delivery(contract: Any, link: Link, direction: str) -> None:
    noticed_s = deliver(contract.make(), lambda: link.lose(direction), link.heal)
    assert 0 < noticed_s < within(NOTICED_S), noticed_s


@each_way
def test_another_postgres_is_written_once(link: Link, postgres_dsn: str, direction: str) -> None:
    contract = PostgresUnderTest()
    contract.dsn = through(link, postgres_dsn)
    check_delivery(contract, link, direction)


@each_way
def test_nats_is_written_once(link: Link, direction: str) -> None:
    with running(NatsTestServer) as server:
        link.to(server.port, f"tcp:127.0.0.1:{server.port}")
        contract = NatsSinkUnderTest()
        contract.url = f"nats://{link.address}:{server.port}"
        with closing(NatsServer(url=server.url).connect()) as client:
            contract.client = client
            check_delivery(contract, link, direction)


@each_way
def test_redis_is_written_once(link: Link, direction: str) -> None:
    with running(RedisTestServer) as server:
        link.to(server.port, f"tcp:127.0.0.1:{server.port}")
        contract = RedisSinkUnderTest()
        contract.url = f"redis://{link.address}:{server.port}/0"
        check_delivery(contract, link, direction)


@pytest.fixture
def bucket(
    link: Link, s3_endpoint: str, s3: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> str:
    port = int(s3_endpoint.rpartition(":")[2])
    link.to(port, f"tcp:127.0.0.1:{port}")
    name = s3()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{link.address}:{port}")
    return name


@each_way
def test_files_in_an_object_store_are_written_once(
    link: Link, bucket: str, direction: str, tmp_path: Path
) -> None:
    contract = JsonLinesUnderTest()
    contract.folder = lambda: f"s3://{bucket}/files"
    check_delivery(contract, link, direction)


@each_way
def test_a_delta_table_in_an_object_store_is_written_once(
    link: Link, bucket: str, direction: str
) -> None:
    contract = DeltaUnderTest()
    contract.uri = lambda: f"s3://{bucket}/table"
    check_delivery(contract, link, direction)


class Slowest:
    """Reads, and knows how long the longest read has taken."""

    def __init__(self, reader: SourceReader) -> None:
        self.reader, self.values, self.longest_s = reader, list[Any](), 0.0

    def read(self) -> int:
        begun_s = time.monotonic()
        self.values += self.reader.read(10).values
        self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
        return len(self.values)


def check_reading(
    reader: SourceReader, put: Callable[[int], None], link: Link, direction: str
) -> list[Any]:
    """Records come while a direction is lost; all are read in the end, and no read takes for ever."""
    following = Slowest(reader)
    for number in range(5):
        put(number)
    until(lambda: following.read() >= 5)
    link.lose(direction)
    for number in range(5, 10):
        put(number)
    # Long enough for a client to give up once; and it is read all the while.
    healing = threading.Timer(12, link.heal)
    healing.start()
    until(lambda: following.read() >= 10)
    healing.join()
    print(f"longest read: {following.longest_s:.1f} s")
    assert following.longest_s < within(NOTICED_S)
    reader.close()
    return following.values


@each_way
def test_nats_is_read_on(link: Link, direction: str) -> None:
    with running(NatsTestServer) as server, closing(NatsServer(url=server.url).connect()) as client:
        link.to(server.port, f"tcp:127.0.0.1:{server.port}")
        stream = made(client)
        source = df.ReadFromNats(stream, url=f"nats://{link.address}:{server.port}")._source

        def put(number: int) -> None:
            client._wait_for(client._ask(f"{stream}.a", b"%d" % number))

        reader = source.open(source.splits(1)[0], None, fence=1)
        assert check_reading(reader, put, link, direction) == list(range(10))


@each_way
def test_redis_is_read_on(link: Link, direction: str) -> None:
    with running(RedisTestServer) as server, redis.Redis.from_url(server.url) as client:
        link.to(server.port, f"tcp:127.0.0.1:{server.port}")
        source = df.ReadFromRedis(
            "s", url=f"redis://{link.address}:{server.port}/0", field="value"
        )._source

        def put(number: int) -> None:
            client.xadd("s", {"value": f"{number}"})

        reader = source.open(source.splits(1)[0], None, fence=1)
        assert check_reading(reader, put, link, direction) == list(range(10))


@each_way
def test_changes_of_postgres_are_read_on(
    link: Link, direction: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is asked there, so only the connection itself can say that it is lost."""
    with changing_postgres() as server, server.database() as dsn:
        make_table(dsn)
        run(dsn, "DELETE FROM t")
        source = changes_of(through(link, dsn))
        reader = source.open(source.splits(1)[0], None, fence=1)
        following = Slowest(reader)

        def put(*numbers: int) -> None:
            values = ", ".join(f"('{number}', now(), {number})" for number in numbers)
            run(dsn, f"INSERT INTO t VALUES {values}")

        until(lambda: not following.read() and reader._position and reader._position.is_copied)
        put(*range(5))
        until(lambda: following.read() >= 5)
        link.lose(direction)
        begun_s = time.monotonic()
        put(*range(5, 10))
        until(lambda: following.read() and "cannot be read" in caplog.text)
        noticed_s = time.monotonic() - begun_s
        print(f"noticed after {noticed_s:.1f} s; longest read: {following.longest_s:.1f} s")
        link.heal()
        until(lambda: following.read() >= 10)
        reader.close()
        assert [int(row["amount"]) for row in following.values] == list(range(10))
        assert max(noticed_s, following.longest_s) < within(NOTICED_S)


@each_way
def test_rows_of_postgres_end_with_an_error_and_go_on(
    link: Link, store_dsn: str, direction: str
) -> None:
    make_numbers(store_dsn)
    source = RowsSource(
        table="numbers", is_query=False, dsn=through(link, store_dsn), form=RowForm()
    )
    (split,) = source.splits(1)
    reader = source.open(split, None, fence=1)
    batch = reader.read(50)
    found = [*batch.values]
    link.lose(direction)
    begun_s = time.monotonic()
    with pytest.raises(df.InputError, match="numbers"):
        reader.read(50)
    assert time.monotonic() - begun_s < within(NOTICED_S)
    link.heal()
    reader.close()
    found += read_to_the_end(source.open(split, batch.position, fence=2))
    source.release()
    assert [row["n"] for row in found] == [row["n"] for row in expected_rows()]


@each_way
def test_rows_of_postgres_in_key_chunks_are_read_on(
    link: Link, store_dsn: str, direction: str
) -> None:
    make_numbers(store_dsn)
    run(store_dsn, "ALTER TABLE numbers ADD PRIMARY KEY (n)")
    source = key_chunks_of(through(link, store_dsn), "numbers")
    following = Slowest(source.open(source.splits(1)[0], None, fence=1))
    until(lambda: following.read() >= 50)
    link.lose(direction)
    # Long enough for the connection to be given up once.
    healing = threading.Timer(40, link.heal)
    healing.start()
    until(lambda: following.read() == len(expected_rows()))
    healing.join()
    following.reader.close()
    print(f"longest read: {following.longest_s:.1f} s")
    assert following.longest_s < within(NOTICED_S)
    assert [row["n"] for row in following.values] == [row["n"] for row in expected_rows()]


@each_way
def test_requests_of_http_are_sent_again(link: Link, direction: str) -> None:
    cut = threading.Event()

    def fate(body: bytes) -> int:
        if len(target.bodies) == 5 and not cut.is_set():
            cut.set()
            link.lose(direction)
            threading.Timer(8, link.heal).start()
        return 200

    with http_target(fate) as target:
        port = int(target.url.split(":")[2].partition("/")[0])
        link.to(port, f"tcp:127.0.0.1:{port}")
        with df.Pipeline() as p:
            numbers = p | df.Create(range(10)) | df.Map(lambda number: {"n": number})
            numbers | df.WriteToHttp(
                f"http://{link.address}:{port}/in", delivery="at-least-once", timeout=2
            )
        assert [each["n"] for each in target.values] == list(range(10))
        assert (max(target.requests.values()) > 1) == (direction == "answers")


@each_way
def test_kafka_is_written_on(link: Link, direction: str) -> None:
    """Tansu shows what was aborted, so a message may be there again; none is missing, and the number is right."""
    with Tansu(link.address) as tansu:
        port = int(tansu.servers.partition(":")[2])
        link.to(port, f"tcp:{tansu.servers}")
        under_test = each_once(SinkOfBroker(Broker(f"{link.address}:{port}", tansu)).make())
        noticed_s = deliver(under_test, lambda: link.lose(direction), link.heal)
        assert 0 < noticed_s < within(NOTICED_S), noticed_s


@each_way
def test_kafka_is_read_on(link: Link, direction: str) -> None:
    """Of what the test itself has sent while answers were lost, some may be there twice; nothing is missing."""
    with Tansu(link.address) as tansu:
        port = int(tansu.servers.partition(":")[2])
        link.to(port, f"tcp:{tansu.servers}")
        broker = Broker(f"{link.address}:{port}", tansu)
        topic = broker.topic()
        source = kafka_source_of(broker, topic)
        (split,) = source.splits(1)
        reader = source.open(split, None, fence=1)

        def put(number: int) -> None:
            queue.append(number)
            if len(queue) == 5:
                broker.fill(topic, [b"%d" % each for each in queue])
                queue.clear()

        queue: list[int] = []
        producing: list[threading.Thread] = []

        def put_beside(number: int) -> None:
            producing.append(threading.Thread(target=put, args=(number,)))
            producing[-1].start()
            if number < 5:
                producing[-1].join()

        found = check_reading(reader, put_beside, link, direction)
        for each in producing:
            each.join()
        assert {int(each.value) for each in found} == set(range(10))
