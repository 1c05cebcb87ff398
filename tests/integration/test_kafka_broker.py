"""A broker of its own process: Tansu, or the Kafka that DATAFLOW_TEST_KAFKA names (host:port), which has more to prove.

What Tansu cannot do fails there, and is marked so; of a Kafka everything has to pass.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import attrs
import pytest
from confluent_kafka import KafkaException, Message, TopicPartition

import dataflow as df
from dataflow.errors import SinkFencedError
from dataflow.io.kafka import reader
from dataflow.io.kafka import writer as writer_module
from dataflow.io.kafka.clients import KafkaClients
from dataflow.io.kafka.messages import Mode
from dataflow.io.kafka.source import KafkaSource
from dataflow.io.kafka.write import KafkaTopic
from dataflow.sink import Lane, SinkChange
from dataflow.source import Source, SourceReader, SplitStatus, open_split
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest
from dataflow.testing.source_contract import SourceContract
from tests.kafka_job import CONFIG, expected
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.tansu import Tansu, make_topic
from tests.waiting import until

pytestmark = pytest.mark.slow

KAFKA = os.environ.get("DATAFLOW_TEST_KAFKA")
_NUMBERS = itertools.count()
#: Topics of a cluster that others use, too.
_RUN = uuid4().hex[:8]


class Order(NamedTuple):
    """A typed row."""

    n: int


class Broker:
    """What is tested against.

    Attributes:
        tansu: the broker, if it is one that can be killed.
    """

    def __init__(self, servers: str, tansu: Tansu | None) -> None:
        self.servers, self.tansu = servers, tansu
        self.clients = KafkaClients(servers, config=CONFIG)

    def topic(self, partitions: int = 1) -> str:
        """A new topic."""
        name = f"dataflow-test-{_RUN}-{next(_NUMBERS)}"
        make_topic(self.servers, name, partitions)
        return name

    def fill(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> None:
        producer = self.clients.producer()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=partition, timestamp=1_000 * (number + 1))
        assert producer.flush(60) == 0
        producer.close()

    def found(self, topic: str, partitions: int) -> list[Message]:
        """All messages, by a client of its own."""
        consumer = self.clients.consumer(
            group_id="reader",
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ends = list[Message](), set[Any]()
        while len(ends) < partitions:
            for each in consumer.consume(1_000, 1.0):
                if each.error() is None:
                    found.append(each)
                else:
                    ends.add(each.partition())
        consumer.close()
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if KAFKA:
        yield Broker(KAFKA, None)
        return
    with Tansu() as tansu:
        yield Broker(tansu.servers, tansu)


def source_of(broker: Broker, topic: str, **more: Any) -> KafkaSource:
    return df.ReadFromKafka(topic, bootstrap_servers=broker.clients, **more)._source


class TestSource(SourceContract):
    """Two partitions, in columns."""

    examples = 2
    splits_max = 1

    @pytest.fixture(autouse=True)
    def _filled(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        # A broker on a busy machine takes its time; what it answers, its end too, is awaited no longer than it takes.
        monkeypatch.setattr(reader, "FIRST_WAIT_S", 60.0)
        monkeypatch.setattr(reader, "WAIT_S", 20.0)
        self.broker, self.topic = broker, broker.topic(2)
        broker.fill(self.topic, [b'{"n": %d}' % n for n in range(6)])
        broker.fill(self.topic, [b'{"n": %d}' % n for n in range(6, 9)], partition=1)

    def test_it_goes_on_behind_any_record(self) -> None:
        """Of many short reads; with a mock they are quick enough for each run."""
        if self.broker.tansu is None:
            super().test_it_goes_on_behind_any_record()

    def make_source(self) -> Source:
        return source_of(self.broker, self.topic, rows=Order, max_disorder=0, group_id=self.topic)

    def expected(self) -> Iterable[Any]:
        return [Order(n) for n in range(9)]


def read_values(reader: SourceReader, count: int) -> list[bytes]:
    found = list[bytes]()

    def are_there() -> bool:
        found.extend(each.value for each in reader.read(100).values)
        return len(found) >= count

    until(are_there)
    return found


@pytest.mark.skipif(KAFKA is not None, reason="a broker of somebody else is not killed")
def test_a_broker_that_is_killed_is_read_on(broker: Broker) -> None:
    """By the same reader and by another, at the same offset; the topic is still the same one."""
    assert broker.tansu is not None
    topic = broker.topic()
    broker.fill(topic, [b"%d" % n for n in range(5)])
    source = source_of(broker, topic)
    split = source.splits(1)[0]
    assert split[1] is not None
    reader = open_split(source, split, None)
    assert read_values(reader, 5) == [b"%d" % n for n in range(5)]
    position = reader.read(1).position
    broker.tansu.kill()
    until(lambda: reader.read(1).status is SplitStatus.ACTIVE)
    broker.tansu.start()
    broker.fill(topic, [b"%d" % n for n in range(5, 8)])
    later = [b"%d" % n for n in range(5, 8)]
    assert read_values(reader, 3) == later
    reader.close()
    again = open_split(source, split, position)
    assert read_values(again, 3) == later
    again.close()


@pytest.mark.skipif(KAFKA is not None, reason="a broker of somebody else is not killed")
def test_a_broker_that_is_killed_is_written_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka may never come back from a transaction that has lost its coordinator: another producer goes on."""
    monkeypatch.setattr(writer_module, "_ANSWER_S", 2.0)
    assert broker.tansu is not None
    topic = broker.topic()
    sink = KafkaTopic(clients=broker.clients, topic=topic, mode=Mode.APPEND)
    lane = Lane(writer=topic, number=0, title="lane 0")
    token, number, writer = 1, 1, sink.open(lane)
    assert writer.fence(token) == 0
    writer.write(1, [SinkChange((b"k", b"1", ()), +1)])
    broker.tansu.kill()
    broker.tansu.start()
    while number < 2:
        try:
            writer.write(number + 1, [SinkChange((b"k", b"2", ()), +1)])
            number += 1
        except (KafkaException, TimeoutError, SinkFencedError):
            writer.close()
            token, writer = token + 1, sink.open(lane)
            with suppress(KafkaException, TimeoutError):
                number = writer.fence(token)
            assert token < 50
    writer.close()
    # What was aborted is there too, as Tansu shows it.
    assert {each.value() for each in broker.found(topic, 1)} == {b"1", b"2"}


class SinkOfBroker(SinkContract):
    """The contract of sinks."""

    rounds = 1

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def make(self) -> SinkUnderTest:
        topic, broker = self._broker.topic(3), self._broker
        sink = KafkaTopic(clients=broker.clients, topic=topic, mode=Mode.APPEND)
        return SinkUnderTest(
            sink=sink,
            values=[(b"key %d" % number, b"value", ()) for number in range(10)],
            read=lambda: [(each.key(), each.value(), ()) for each in broker.found(topic, 3)],
            open_writer=lambda lane: sink.open(
                Lane(writer=f"{topic} {lane.writer}", number=lane.number, title=lane.title)
            ),
            refused=(b"key", b"x" * 2_000_000, ()),
        )


def each_once(under_test: SinkUnderTest) -> SinkUnderTest:
    """Of a topic of Tansu is known what is there, and not how often: it shows what was aborted."""
    return attrs.evolve(under_test, read=lambda: [*dict.fromkeys(under_test.read())])


#: Of the contract, what Tansu 0.6 does not keep.
NOT_OF_TANSU = {
    "test_a_fenced_writer_writes_nothing": "shows what was aborted",
    "test_a_fence_waits_or_wins": "shows what was aborted",
    "test_a_token_fences_once": "keeps no metadata with an offset of a transaction",
}


@pytest.mark.parametrize("name", [name for name in dir(SinkContract) if name.startswith("test_")])
def test_the_sink_keeps_its_contract(
    broker: Broker, name: str, request: pytest.FixtureRequest
) -> None:
    if broker.tansu is not None and name in NOT_OF_TANSU:
        reason = f"Tansu {NOT_OF_TANSU[name]}"
        if "aborted" in reason:
            # What is shown depends on when messages were sent; and a fenced producer waits for its time-outs.
            pytest.xfail(reason)
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    getattr(SinkOfBroker(broker), name)()


def totals_in(broker: Broker, topic: str) -> dict[str, Any]:
    """What a reader of a compacted topic is left with."""
    table = dict[str, Any]()
    for each in broker.found(topic, 1):
        value = each.value()
        table[(each.key() or b"").decode()] = None if value is None else json.loads(value)
    return {who: total for who, total in table.items() if total is not None}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_stream_from_topic_to_topic_survives_kills(
    broker: Broker, store_dsn: str, tmp_path: Path
) -> None:
    """A worker, the broker and the whole job die with -9; each order counts once in the totals."""
    orders, totals, log = broker.topic(2), broker.topic(), tmp_path / "job.log"
    sent = list[bytes]()

    def send() -> None:
        for partition in range(2):
            more = [
                b'{"n": %d, "who": "c%d"}' % (n, n % 7) for n in range(len(sent), len(sent) + 50)
            ]
            broker.fill(orders, more, partition=partition)
            sent.extend(more)

    def are_counted() -> bool:
        return totals_in(broker, totals) == expected(sent)

    words = [sys.executable, "-m", "tests.kafka_job", broker.servers, store_dsn, orders, totals]
    send()
    with in_a_group(words, log) as family:
        until(are_counted, log.read_text)
        kill([workers_of(family, log.read_text)[0]])
        send()
        until(are_counted, log.read_text)
        if broker.tansu is not None:
            broker.tansu.kill()
            broker.tansu.start()
            send()
            until(are_counted, log.read_text)
        send()
        kill([*descendants(family), family])
    send()
    with in_a_group(words, log):
        until(are_counted, log.read_text)
