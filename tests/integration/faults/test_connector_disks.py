"""The disk of a connector's server, or of its files, is full for a while: nothing is lost, nothing is there twice."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import psycopg
import pytest
import urllib3
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import dataflow as df
from dataflow.io.nats_streams.client import NatsServer
from dataflow.source import SplitStatus
from dataflow.testing.sink_contract import SinkUnderTest
from runners.embedded.temporary import FOLLOWED, postgres_with
from runners.spark.session import spark_context
from tests.changing_postgres import ChangingPostgres
from tests.conformance.test_file_sinks import TestJsonLines as JsonLinesUnderTest
from tests.conformance.test_lake_sinks import DeltaUnderTest, IcebergUnderTest
from tests.conformance.test_sink_contract import PostgresUnderTest
from tests.delivering import deliver
from tests.fault_harness import FaultServer
from tests.fix_s3 import name_s3
from tests.full_disks import fill, free, full
from tests.integration.test_http import free_port
from tests.integration.test_kafka_broker import Broker, SinkOfBroker, each_once
from tests.integration.test_nats import NatsSinkUnderTest
from tests.integration.test_postgres_changes import make_table, run, source_of
from tests.integration.test_redis import RedisSinkUnderTest
from tests.stream_servers import NatsTestServer, RedisTestServer, S3TestServer, StreamServer
from tests.tansu import Tansu
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.postgres]

#: Of a value: more than is left in pages, segments and buffers that were there before.
LARGE = 900_000
_TEXTS = random.Random(1)


class Large(NamedTuple):
    """A row of Spark."""

    number: int
    text: str


def large_texts(count: int = 10) -> list[str]:
    """Texts that cannot be packed."""
    return [_TEXTS.randbytes(LARGE // 2).hex() for _ in range(count)]


def check_full(
    under_test: SinkUnderTest, disk: Path, heal: Callable[[], None] = lambda: None
) -> None:
    def healed() -> None:
        free(disk)
        heal()

    assert deliver(under_test, lambda: fill(disk), healed) > 0, "the disk was not full"


def test_another_postgres(small_disk: Path) -> None:
    server = FaultServer(small_disk)
    contract = PostgresUnderTest()
    contract.dsn, contract.key, contract.changelog = server.dsn, (), "sign"
    values = [(text, datetime(2026, 1, 1, tzinfo=UTC), n) for n, text in enumerate(large_texts())]
    check_full(attrs.evolve(contract.make(), values=values), small_disk, server.start)


def server_on(disk: Path, kind: type[Any]) -> Any:
    server = kind(disk)
    server.start()
    return server


def started_again(server: StreamServer) -> Callable[[], None]:
    """Who was ended by the full disk is started again, as by systemd."""

    def heal() -> None:
        assert server._process is not None
        with suppress(Exception):
            server._process.wait(2)
        print(f"{type(server).__name__} had ended: {server._process.poll()}")
        if server._process.poll() is not None:
            server.start()

    return heal


def test_nats(small_disk: Path) -> None:
    server = server_on(small_disk, NatsTestServer)
    try:
        contract = NatsSinkUnderTest()
        with closing(NatsServer(url=server.url).connect()) as client:
            contract.url, contract.client = server.url, client
            under_test = contract.make()
            subject = under_test.values[0][0]
            values = [(subject, text.encode()) for text in large_texts()]
            check_full(attrs.evolve(under_test, values=values), small_disk, started_again(server))
    finally:
        server.kill()


def test_redis(small_disk: Path) -> None:
    server = server_on(small_disk, RedisTestServer)
    try:
        # Without it the server answers before its disk has anything, and refuses what comes next.
        contract = RedisSinkUnderTest()
        contract.url, contract.fsync = server.url, True
        values = [("", [b"n", text.encode()]) for text in large_texts()]
        check_full(attrs.evolve(contract.make(), values=values), small_disk, started_again(server))
    finally:
        server.kill()


@pytest.fixture
def small_s3(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3TestServer]:
    """An object store on the small disk, with a bucket of its own; addresses mean it."""
    server = server_on(small_disk, S3TestServer)
    try:
        name_s3(server.url, monkeypatch)
        yield server
    finally:
        server.kill()


def test_files_in_an_object_store(small_disk: Path, small_s3: S3TestServer) -> None:
    contract = JsonLinesUnderTest()
    contract.folder = lambda: f"s3://{small_s3.bucket}/files"
    contract.values = [(f'{{"text": "{text}"}}'.encode(),) for text in large_texts()]
    check_full(contract.make(), small_disk, started_again(small_s3))


def test_a_delta_table_in_an_object_store(small_disk: Path, small_s3: S3TestServer) -> None:
    contract = DeltaUnderTest()
    contract.uri = lambda: f"s3://{small_s3.bucket}/table"
    under_test = contract.make()
    values = [(text, *row[1:]) for text, row in zip(large_texts(), under_test.values, strict=False)]
    check_full(attrs.evolve(under_test, values=values), small_disk, started_again(small_s3))


def test_kafka(small_disk: Path, small_s3: S3TestServer) -> None:
    """A broker whose store has no space, and that is started again when it has."""
    with Tansu(storage=small_s3.url, bucket=small_s3.bucket) as tansu:

        def heal() -> None:
            # Where it has not ended, it refuses what is replaced until it is started again.
            small_s3.kill()
            small_s3.start()
            tansu.kill()
            tansu.start()

        under_test = each_once(SinkOfBroker(Broker(tansu.servers, tansu)).make())
        values = [(b"key %d" % n, text.encode(), ()) for n, text in enumerate(large_texts())]
        check_full(attrs.evolve(under_test, values=values), small_disk, heal)


@pytest.mark.spark
def test_an_inbox_of_spark(small_disk: Path, spark_master: str) -> None:
    """Spark's writing fails, and it repeats its micro-batch when it is started again: each row is there once."""
    session = SparkSession(spark_context("disks", master=spark_master))
    session.sparkContext.setLocalProperty("sql.streaming.queryId", "query")
    inbox = df.SparkInbox(small_disk / "inbox")

    def put(number: int) -> None:
        rows = [(number * 100 + each, text) for each, text in enumerate(large_texts(4))]
        inbox(session.createDataFrame(rows, "number long, text string"), number)

    put(0)
    with full(small_disk), pytest.raises(Py4JJavaError, match="No space left on device"):
        put(1)
    for number in (1, 1, 2):
        put(number)
    source = df.ReadFromSparkInbox(small_disk / "inbox", rows=Large)._source
    reader = source.open(source.splits(1)[0], None, fence=1)
    found = list[int]()
    while (batch := reader.read(3)).status is not SplitStatus.IDLE:
        found += [row.number for row in batch.values]
    reader.close()
    assert sorted(found) == [number * 100 + each for number in range(3) for each in range(4)]


def test_files(small_disk: Path) -> None:
    contract = JsonLinesUnderTest()
    contract.folder = lambda: str(small_disk / "files")
    values = [(f'{{"text": "{text}"}}'.encode(),) for text in large_texts()]
    contract.values = values
    check_full(contract.make(), small_disk)


@pytest.mark.parametrize("kind", [DeltaUnderTest, IcebergUnderTest])
def test_lakes(small_disk: Path, kind: type[Any]) -> None:
    contract = kind()
    contract.folder = small_disk
    contract.uri = lambda: str(small_disk / "table")
    under_test = contract.make()
    values = [(text, *row[1:]) for text, row in zip(large_texts(), under_test.values, strict=False)]
    check_full(attrs.evolve(under_test, values=values), small_disk)


def test_requests_of_http_are_sent_back(small_disk: Path) -> None:
    """With 503, as long as they cannot be kept; and what was answered is there."""
    port = free_port()
    source = df.ReceiveHttp(small_disk / "spool", port=port, format="bytes")._source
    (split,) = source.splits(1)
    reader = source.open(split, None, fence=1)
    until(lambda: reader.read(1) and reader._receiver)
    bodies, taken = [text.encode() for text in large_texts(8)], list[bytes]()
    with urllib3.PoolManager(retries=False) as pool:

        def post(body: bytes) -> int:
            status = pool.request("POST", f"http://127.0.0.1:{port}/", body=body).status
            taken.extend([body] * (status == 200))
            return status

        assert [post(each) for each in bodies[:2]] == [200, 200]
        with full(small_disk):
            assert [post(each) for each in bodies[2:5]] == [503] * 3
        assert [post(each) for each in bodies[2:]] == [200] * 6
    found: list[bytes] = []
    while batch := reader.read(3).values:
        found += batch
    reader.close()
    assert found == taken == bodies


def test_changes_of_a_postgres(small_disk: Path) -> None:
    """Its users cannot write for a while, and then it is gone; whoever follows its changes has what was committed."""
    server = ChangingPostgres(postgres_with(FOLLOWED, small_disk), small_disk)
    with server.database() as dsn:
        make_table(dsn)
        run(dsn, "DELETE FROM t")
        source = source_of(dsn)
        reader = source.open(source.splits(1)[0], None, fence=1)
        found: list[str] = []

        def read() -> int:
            found.extend(row["name"] for row in reader.read(10).values)
            return len(found)

        until(lambda: not read() and reader._position and reader._position.is_copied)
        kept: list[str] = []

        def insert(text: str) -> None:
            run(dsn, f"INSERT INTO t VALUES ('{text}', now(), 1)")
            kept.append(text)

        insert("before")
        until(lambda: read() == 1)

        def exhaust() -> None:
            for number, text in enumerate(large_texts(100)):
                run(dsn, f"CREATE TABLE t{number} AS SELECT '{text}' AS large")
                read()

        with full(small_disk), pytest.raises(psycopg.OperationalError):
            exhaust()
        server.crash()
        insert("after")
        until(lambda: read() == 2)
        reader.close()
        assert found == kept
