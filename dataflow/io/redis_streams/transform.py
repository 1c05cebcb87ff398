"""ReadFromRedis: the entries of streams of Redis."""

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
from dataflow.io.redis_streams.client import RedisServer
from dataflow.io.redis_streams.source import RedisSource
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from windowing.timestamps import DurationLike, TimestampLike

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

URL = "redis://localhost:6379/0"


class ReadFromRedis(OneOutput["Pipeline", Any]):
    """The entries of one or more streams of Redis, each exactly once.

    A position is the id of an entry, and is committed with what was made of it.  No consumer group is made, so any
    number of jobs can read a stream.

    Args:
        stream: its key, or several; each is a split.  One that is not there yet has nothing.
        url: as ``redis://user:password@host:6379/0``; Redis 7.0 or newer, or Valkey.
        field: the field whose value is the element.  None: elements are dicts from the names of fields to values.
        format: of values: ``json``, ``text`` or ``bytes``; None: ``json`` with a ``field``, else ``text``.  An entry
            that is malformed is a dead letter where the runner keeps them, and else the error of the run.
        event_time: from an element to its event time.  None: the milliseconds of the id; the watermark then follows the
            server's clock where nothing is left.
        ids_are_times: False for a stream whose ids are not drawn by the server.  Without ``event_time``, elements are
            then at the beginning of time.
        max_disorder: how far entries may be behind the newest one, in event time.
        max_ahead: as for `Read`, with ``event_time``.
        until: ``"now"``: the input ends with what is there when the run begins, as batch needs it.
        missing: what is done where entries were removed before they were read: ``"error"``, or ``"skip"``, which logs
            how many, and goes on behind them.

    Raises:
        InputError: the stream cannot be read: when the pipeline is built, or when it is found to be another one, to
            have lost its end, or to have removed what was not read.
        PipelineError: an argument does not suit, or the package redis is not installed.
    """

    def __init__(
        self,
        stream: str | Sequence[str],
        *,
        url: str = URL,
        field: str | None = None,
        format: str | None = None,  # noqa: A002 - what it is called elsewhere
        event_time: Callable[[Any], TimestampLike] | None = None,
        ids_are_times: bool = True,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        until: str | None = None,
        missing: str = "error",
    ) -> None:
        name = type(self).__name__
        require("redis", "redis", name)
        self._max_ahead = max_ahead
        streams = (stream,) if isinstance(stream, str) else tuple(stream)
        if not streams or len(set(streams)) < len(streams):
            raise PipelineError(
                f"{name} was given the streams {streams}", hint="give at least one, and each once"
            )
        decode = decoder_of(name, format or default_format(field))
        self._source = RedisSource(
            streams=streams,
            server=RedisServer(url=url),
            form=MessageForm(
                name=f"Redis stream {','.join(streams)}",
                decode=_EntryDecoder(field, decode),
                event_time=event_time,
                max_disorder_us=disorder_us(name, max_disorder),
                has_server_times=ids_are_times,
            ),
            is_bounded=is_until_now(name, until),
            skips_missing=skips_missing(name, missing),
        )

    def default_label(self) -> str:
        """``ReadFromRedis(streams)``."""
        return f"ReadFromRedis({self._source.input_name})"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Check the server, and read the streams."""
        self._source.check()
        return pcoll | Read(self._source, max_ahead=self._max_ahead)


def default_format(field: str | None) -> str:
    """The format of values, if none is given.

    Args:
        field: that the value of an element is in; None: elements have all fields.
    """
    return "text" if field is None else "json"


@attrs.frozen
class _EntryDecoder:
    field: str | None
    decode: Any

    def __call__(self, fields: Mapping[bytes, bytes]) -> Any:
        if self.field is None:
            return {name.decode(): self.decode(value) for name, value in fields.items()}
        value = fields.get(self.field.encode())
        if value is None:
            raise ValueError(f"it has no field {self.field!r}")
        return self.decode(value)
