"""ReadFromNats: the messages of a JetStream stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import PipelineError
from dataflow.io.create import Read
from dataflow.io.extras import require
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.message_streams.arguments import disorder_us, is_until_now, skips_missing
from dataflow.io.message_streams.reader import MessageForm
from dataflow.io.message_streams.values import decoder_of
from dataflow.io.nats_streams.client import NatsServer
from dataflow.io.nats_streams.source import NatsSource, whole_message
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from windowing.timestamps import DurationLike, TimestampLike

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

URL = "nats://localhost:4222"


class ReadFromNats(OneOutput["Pipeline", Any]):
    """The messages of a stream of NATS JetStream, each exactly once.

    A position is the sequence of a message, and is committed with what was made of it.  Nothing is acknowledged, and no
    consumer is made, so any number of jobs can read a stream.

    Args:
        stream: its name.  It must allow direct reads (``nats stream edit --allow-direct``), on nats-server 2.11 or
            newer.
        url: of the server, or of several, with commas.
        subjects: filters, such as ``"orders.eu.>"``: each is a split, which is read by itself; they should not overlap.
            All messages, if left out.
        format: ``json``, ``text``, ``bytes``, or ``message``: elements are `NatsMessage`, with subject and headers.  A
            message that is malformed is a dead letter where the runner keeps them, and else the error of the run.
        event_time: from an element to its event time.  None: when the server took it; the watermark then follows the
            server's clock where nothing is left.
        max_disorder: how far messages may be behind the newest one, in event time.
        max_ahead: as for `Read`, with ``event_time``.
        until: ``"now"``: the input ends with what is there when the run begins, as batch needs it.
        missing: what is done where the stream has removed messages before they were read: ``"error"``, or ``"skip"``,
            which logs their sequences and goes on behind them.
        removes_committed: whether messages are removed from the stream when everything that was made of them is
            durable, as of a work queue.  Then only one job can read them.
        options: further arguments of ``nats.connect``, such as ``user_credentials``.

    Raises:
        InputError: the stream cannot be read: when the pipeline is built, or when it is found to be another one, to
            have lost its end, or to have removed what was not read.
        PipelineError: an argument does not suit, or nats-py is not installed.
    """

    def __init__(
        self,
        stream: str,
        *,
        url: str = URL,
        subjects: str | Sequence[str] = ">",
        format: str = "json",  # noqa: A002 - what it is called elsewhere
        event_time: Callable[[Any], TimestampLike] | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        until: str | None = None,
        missing: str = "error",
        removes_committed: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        require("nats", "nats", name)
        self._max_ahead = max_ahead
        decode = whole_message if format == "message" else _BodyDecoder(decoder_of(name, format))
        self._source = NatsSource(
            stream=stream,
            server=NatsServer(url=url, options=dict(options or {})),
            subjects=(subjects,) if isinstance(subjects, str) else tuple(subjects),
            form=MessageForm(
                name=f"NATS stream {stream}",
                decode=decode,
                event_time=event_time,
                max_disorder_us=disorder_us(name, max_disorder),
            ),
            is_bounded=is_until_now(name, until),
            skips_missing=skips_missing(name, missing),
            acknowledges=removes_committed,
        )
        if not self._source.subjects:
            raise PipelineError(f"{name} was given no subjects", hint="leave them out for all")

    def default_label(self) -> str:
        """``ReadFromNats(stream)``."""
        return f"ReadFromNats({self._source.stream})"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Check the stream, and read it."""
        self._source.check()
        return pcoll | Read(self._source, max_ahead=self._max_ahead)


@attrs.frozen
class _BodyDecoder:
    decode: Callable[[bytes], Any]

    def __call__(self, message: Any) -> Any:
        return self.decode(message.data)
