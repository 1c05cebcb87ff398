"""WriteToNats: elements as messages of a JetStream stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dataflow.io.extras import require
from dataflow.io.message_streams.values import encoder_of
from dataflow.io.nats_streams.client import NatsServer
from dataflow.io.nats_streams.sink import NatsSink
from dataflow.io.nats_streams.transform import URL
from dataflow.io.sinks import Write
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map


class WriteToNats(PTransform[PCollection[Any], None]):
    """Publish elements to a stream of NATS JetStream, each exactly once, in the order of their subject.

    Each batch is one atomic act of the server, with its number.  A retraction is a message of its own: the header
    ``Dataflow-Sign`` is ``+1`` or ``-1``.

    Args:
        stream: its name.  It must allow atomic batches (nats-server 2.12 or newer), and have the subjects
            ``dataflow.progress.<stream>.>`` beside its own; docs/connectors/nats.md has the command that makes one.
        subject: where elements are published, or a function from an element to that.
        url, options: as for `ReadFromNats`.
        format: ``json``, ``text`` or ``bytes``.
        lanes: how many connections publish at once; messages of one subject keep their order.

    Raises:
        InputError: the stream cannot be written to.
        PipelineError: an argument does not suit, or nats-py is not installed.
    """

    def __init__(
        self,
        stream: str,
        *,
        subject: str | Callable[[Any], str],
        url: str = URL,
        format: str = "json",  # noqa: A002 - what it is called elsewhere
        lanes: int = 1,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        require("nats", "nats", name)
        self._encode = _MessageEncoder(subject, encoder_of(name, format))
        server = NatsServer(url=url, options=dict(options or {}))
        self._sink = NatsSink(stream=stream, server=server, lanes=lanes)

    def default_label(self) -> str:
        """``WriteToNats(stream)``."""
        return f"WriteToNats({self._sink.stream})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Check the stream, and write to it."""
        self._sink.check()
        messages = pcoll | "encode" >> Map(self._encode)
        messages | "write" >> Write(self._sink)


@attrs.frozen
class _MessageEncoder:
    subject: str | Callable[[Any], str]
    encode: Callable[[Any], bytes]

    def __call__(self, element: Any) -> dict[str, Any]:
        subject = self.subject if isinstance(self.subject, str) else self.subject(element)
        return {"subject": subject, "body": self.encode(element)}
