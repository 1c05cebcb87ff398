"""OtelSpans: spans of OpenTelemetry, sent over HTTP in batches by a thread of its own; no worker ever waits for it.

What cannot be sent is dropped, and reported once until it can be sent again; no result depends on it.
"""

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import attrs
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from dataflow import distribution
from runners.millwheel.worker.tracing import Attributes

#: Spans that wait to be sent; more push out the oldest ones.
QUEUE_MAX = 4_096
_BATCH_MAX, _INTERVAL_MS = 512, 1_000
#: Of one attempt, and of the end of a worker that still has some to send.
_SEND_TIMEOUT_S, _CLOSE_TIMEOUT_S = 2.0, 3.0
_PATH = "/v1/traces"
_LOG = logging.getLogger(__name__)
#: They log for each batch, and for each span that finds no room, what is reported here once.
_NOISY = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk._shared_internal")


def traces_url(endpoint: str) -> str:
    """Where traces are sent.

    Args:
        endpoint: of a collector, with or without a path; without one it is that of OTLP.
    """
    path = urlsplit(endpoint).path.rstrip("/")
    return endpoint if path else endpoint.rstrip("/") + _PATH


@attrs.frozen
class _OtelSpan:
    """One span of the SDK."""

    _span: Span

    @property
    def context(self) -> bytes:
        """The context, as it travels."""
        found = self._span.get_span_context()
        return found.trace_id.to_bytes(16, "big") + found.span_id.to_bytes(8, "big")

    def end(self, ended_us: int, attributes: Attributes, *, is_error: bool = False) -> None:
        """End it."""
        self._span.set_attributes(dict(attributes))
        if is_error:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(ended_us * 1_000)


class _SystemIds(IdGenerator):
    """Ids by the system's source of chance: user code may seed that of Python, and then two workers had the same."""

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8), "big") or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(os.urandom(16), "big") or 1


class _ReportingOnce(SpanExporter):
    """Sends by another exporter, and reports the first failure, and the end of it."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter, self._endpoint = exporter, endpoint
        self._is_failing = False
        self.news: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing != self._is_failing:
            self._is_failing = is_failing
            text = "cannot be sent, and are dropped" if is_failing else "are sent again"
            self.news.append(f"traces {text}: {self._endpoint}")
            _LOG.warning("%s", self.news[-1])
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class OtelSpans:
    """Makes the spans of one worker, and sends them.

    Args:
        endpoint: of the collector, such as http://localhost:4318.
        ratio: of the traces that are sent.
        resource: what all spans have, beside what the variables of OpenTelemetry say.
    """

    def __init__(self, endpoint: str, ratio: float, resource: Mapping[str, str]) -> None:
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        shown = urlsplit(endpoint)._replace(netloc=urlsplit(endpoint).netloc.rpartition("@")[2])
        self._exporter = _ReportingOnce(
            OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=_SEND_TIMEOUT_S),
            shown.geturl(),
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create(
                {"service.name": "dataflow", "host.name": socket.gethostname(), **resource}
            ),
            id_generator=_SystemIds(),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=QUEUE_MAX,
                schedule_delay_millis=_INTERVAL_MS,
                max_export_batch_size=_BATCH_MAX,
            )
        )
        self._tracer = self._provider.get_tracer(distribution.NAME, distribution.VERSION)

    def begin(
        self,
        name: str,
        began_us: int,
        attributes: Attributes,
        parent: bytes | None,
        links: Sequence[bytes] = (),
    ) -> _OtelSpan | None:
        """Begin a span; see `runners.millwheel.worker.tracing.SpanMaker`."""
        context = None if parent is None else set_span_in_context(NonRecordingSpan(_of(parent)))
        span = self._tracer.start_span(
            name,
            context=context,
            attributes=dict(attributes),
            links=[Link(_of(each)) for each in links],
            start_time=began_us * 1_000,
        )
        return _OtelSpan(span) if span.is_recording() else None

    def take_news(self) -> list[str]:
        """What has changed, since this was asked, of whether spans can be sent."""
        news, self._exporter.news = self._exporter.news, []
        return news

    def close(self) -> None:
        """Send what is left, for a moment."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)


def _of(context: bytes) -> SpanContext:
    return SpanContext(
        trace_id=int.from_bytes(context[:16], "big"),
        span_id=int.from_bytes(context[16:], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
