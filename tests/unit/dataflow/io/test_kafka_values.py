"""Keys and values of Kafka, decoded with the schemas of a registry, which is asked over HTTP."""

import io
import json
import re
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pytest

import dataflow as df
from dataflow.io.kafka.values import decoder_of
from dataflow.serialization import dumps_code, loads_code
from dataflow.source import open_split
from dataflow.testing.model_kafka import ModelKafka
from tests.waiting import until

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "who", "type": "string"}],
}
JSON = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SCHEMAS = {1: {"schema": json.dumps(AVRO)}, 2: {"schema": json.dumps(JSON), "schemaType": "JSON"}}


class Registry(ThreadingHTTPServer):
    """Answers with schemas by number, and counts how often it is asked."""

    daemon_threads = True
    asked: list[str]
    is_away = False


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        asked = re.match(r"/schemas/ids/(\d+)", self.path)
        found = SCHEMAS.get(int(asked[1])) if asked else None
        body = json.dumps(found or {"error_code": 40403, "message": "not found"}).encode()
        self.send_response(503 if self.server.is_away else 200 if found else 404)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry(("127.0.0.1", 0), _Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(server: Registry) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def avro(n: int, who: str) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, AVRO, {"n": n, "who": who})
    return framed(1, body.getvalue())


def read(kafka: ModelKafka, **more: Any) -> df.SourceBatch:
    source = df.ReadFromKafka("orders", bootstrap_servers=kafka.clients, **more)._source
    source = loads_code(dumps_code(source, "the source"))
    return open_split(source, source.splits(1)[0], None).read(100)


@pytest.mark.slow
def test_avro_is_decoded_and_what_does_not_fit_is_set_aside(registry: Registry) -> None:
    """The registry is asked once for each schema."""
    kafka = ModelKafka()
    kafka.make_topic("orders")
    for raw in (avro(1, "ada"), b"x", framed(9, b""), framed(1, b"\x02"), avro(2, "bob")):
        kafka.append("orders", raw, key=avro(7, "key"))
    schemas = df.KafkaSchemas(url(registry))
    batch = read(kafka, key=schemas, value=schemas)
    assert [each.value for each in batch.values] == [
        {"n": 1, "who": "ada"},
        {"n": 2, "who": "bob"},
    ]
    assert batch.values[0].key == {"n": 7, "who": "key"}
    assert [each.element.offset for each in batch.set_aside] == [1, 2, 3]
    assert all("topic orders, partition 0" in each.error.detail for each in batch.set_aside)
    # Keys and values each know their schemas; one that is not there is asked for again.
    assert sum("/schemas/ids/1" in path for path in registry.asked) == 2


@pytest.mark.slow
def test_a_registry_that_is_away_is_waited_for(registry: Registry) -> None:
    """No record is set aside, or passed over, because of it."""
    kafka = ModelKafka()
    kafka.make_topic("orders")
    kafka.append("orders", avro(1, "ada"))
    schemas = df.KafkaSchemas(url(registry), config={"max.retries": 0})
    source = df.ReadFromKafka("orders", bootstrap_servers=kafka.clients, value=schemas)._source
    reader = open_split(source, source.splits(1)[0], None)
    registry.is_away = True
    batch = reader.read(10)
    assert (batch.records, batch.status, batch.position[0]) == (0, df.SplitStatus.ACTIVE, 0)
    registry.is_away = False
    found = list[Any]()

    def is_found() -> bool:
        found.extend(reader.read(10).values)
        return bool(found)

    until(is_found)
    assert [each.value for each in found] == [{"n": 1, "who": "ada"}]


def test_json_is_decoded_and_validated(registry: Registry) -> None:
    kafka = ModelKafka()
    kafka.make_topic("orders")
    for raw in (framed(2, b'{"n": 1}'), framed(2, b'{"n": "x"}'), framed(2, b"{")):
        kafka.append("orders", raw)
    schema = json.dumps(JSON)
    batch = read(kafka, value=df.KafkaSchemas(url(registry), kind="json", schema=schema))
    assert [each.value for each in batch.values] == [{"n": 1}]
    assert [each.element.offset for each in batch.set_aside] == [1, 2]


def test_decoders_by_name_and_of_ones_own() -> None:
    kafka = ModelKafka()
    kafka.make_topic("orders")
    kafka.append("orders", b"\xc3\xa4", key=b"[1]")
    kafka.append("orders", None)
    batch = read(kafka, value="text", key="json")
    assert [(each.key, each.value) for each in batch.values] == [([1], "ä"), (None, None)]
    assert [each.value for each in read(kafka, value=len).values] == [2, None]
    with pytest.raises(df.PipelineError, match="kind='xml'"):
        df.KafkaSchemas("http://x", kind="xml")
    assert decoder_of("value", "bytes") is None
