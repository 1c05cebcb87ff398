"""A collector of OpenTelemetry in this process: OTLP over HTTP on loopback, decoded as protobuf says."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@attrs.frozen
class ReceivedSpan:
    """A span, with what its process says of itself."""

    name: str
    trace: str
    span: str
    parent: str
    links: tuple[str, ...]
    began_ns: int
    ended_ns: int
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


def _value(found: Any) -> Any:
    kind = found.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in found.array_value.values]
    return getattr(found, kind)


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


class Receiver:
    """What has come so far."""

    def __init__(self) -> None:
        self._spans: list[ReceivedSpan] = []
        self._lock = threading.Lock()
        self.address = ""
        #: Answered instead of 200, where it is set.
        self.status: int | None = None

    @property
    def spans(self) -> list[ReceivedSpan]:
        with self._lock:
            return list(self._spans)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            known = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._add(span, known)

    def _add(self, span: Any, resource: dict[str, Any]) -> None:
        received = ReceivedSpan(
            name=span.name,
            trace=span.trace_id.hex(),
            span=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            links=tuple(link.trace_id.hex() for link in span.links),
            began_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
            is_error=span.status.code == span.status.STATUS_CODE_ERROR,
            attributes=_values(span.attributes),
            resource=resource,
        )
        with self._lock:
            self._spans.append(received)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver, as long as the block is."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            answer = b""
            if receiver.status is None and self.path == "/v1/traces":
                assert self.headers["content-type"] == "application/x-protobuf"
                receiver.take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(receiver.status or 200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            """Nothing: pytest's output is for tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        receiver.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
