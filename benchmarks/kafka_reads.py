"""How fast a partition is read: records, typed rows, and JSON values, out of librdkafka's own mock of a cluster.

    python -m benchmarks.kafka_reads [--rounds 5]

One reader after the other reads each of the partitions, with the broker in a process of its own.  The mock keeps five
megabytes of a partition, so there are not many records, and a round includes that clients connect; the best counts.
"""

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import confluent_kafka

import dataflow as df
from benchmarks import harness
from dataflow.source import SplitStatus, open_split

TOPIC = "orders"
#: Of a topic that the mock makes by itself, and what it keeps of each.
PARTITIONS, RECORDS = 4, 60_000
#: As a stream asks for them.
READ_RECORDS = 1 << 14


class Order(NamedTuple):
    """A typed row."""

    user: str
    amount: int


def serve(connection: Connection) -> None:
    """Keep a broker until somebody says so."""
    producer = confluent_kafka.Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "mock",
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    for number in range(PARTITIONS * RECORDS):
        value = b'{"user": "user %d", "amount": %d}' % (number % 1_000, number % 100)
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    connection.send(f"{broker.host}:{broker.port}")
    connection.recv()


def measure(servers: str, **form: Any) -> tuple[float, float]:
    """Seconds by the clock, and of this process's processor, librdkafka's threads among them."""
    transform: df.ReadFromKafka[Any] = df.ReadFromKafka(
        TOPIC, bootstrap_servers=servers, until="now", max_disorder=0, **form
    )
    source = transform._source  # noqa: SLF001 - measured without a pipeline
    splits = source.splits(1)
    began, began_cpu, found = time.perf_counter(), time.process_time(), 0
    for split in splits:
        reader = open_split(source, split, None)
        is_finished = False
        while not is_finished:
            batch = reader.read(READ_RECORDS)
            found += len(batch.values)
            is_finished = batch.status is SplitStatus.FINISHED
        reader.close()
    assert found == PARTITIONS * RECORDS
    return time.perf_counter() - began, time.process_time() - began_cpu


def main() -> None:
    """Print a table."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    servers = ours.recv()
    forms: dict[str, dict[str, Any]] = {
        "rows, as columns": {"rows": Order},
        "records, bytes": {},
        "records, JSON": {"value": "json"},
    }
    for name, form in forms.items():
        found = [measure(servers, **form) for _ in range(rounds)]
        count = PARTITIONS * RECORDS
        clock, cpu = min(each for each, _ in found), min(each for _, each in found)
        print(
            f"{name:20} {count / clock:12,.0f} records/s  {count / cpu:12,.0f} per processor second"
        )
    ours.send(None)
    server.join()


if __name__ == "__main__":
    main()
