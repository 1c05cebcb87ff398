"""WriteToRedis: elements as entries of streams of Redis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.extras import require
from dataflow.io.message_streams.values import encoder_of
from dataflow.io.redis_streams.client import RedisServer
from dataflow.io.redis_streams.sink import RedisSink
from dataflow.io.redis_streams.transform import URL, default_format
from dataflow.io.sinks import Write
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map

#: More would not fit on the stack of the server's scripts.
_FIELDS_MAX = 1_000


class WriteToRedis(PTransform[PCollection[Any], None]):
    """Add elements to a stream of Redis, each exactly once, as durably as that Redis keeps what it has.

    Each batch is one script of the server, with its number.

    Args:
        stream: its key.  With several lanes each has a stream of its own, ``<stream>:0`` and so on.
        url: as for `ReadFromRedis`.
        field: the only field of an entry, with the element.  None: elements are mappings, or named tuples, from the
            names of fields to values.
        format: of values: ``json``, ``text`` or ``bytes``; None: ``json`` with a ``field``, else ``text``.
        key: from an element to text; elements of one key keep their order where there are several lanes.  None: equal
            elements do.
        lanes: how many connections write at once.
        changelog: the name of a further field: each emission is an entry with ``+1`` there, each retraction one with
            ``-1``.  Without it, input that retracts is refused.
        ids: ``number``: ids are number and index of a batch, so that the server itself refuses what it has; the streams
            must be this sink's alone.  ``clock``: the server draws them, others may add entries too, and whoever reads
            them can take the ids as times.
        fsync: whether a batch counts as written only when it is on the server's disk (``WAITAOF``: Redis 7.2, Valkey,
            with ``appendonly``), and not when the server has it.

    Raises:
        InputError: the server cannot be reached, or may evict the stream.
        PipelineError: an argument does not suit, the input retracts and there is no ``changelog``, or the package redis
            is not installed.
    """

    def __init__(
        self,
        stream: str,
        *,
        url: str = URL,
        field: str | None = None,
        format: str | None = None,  # noqa: A002 - what it is called elsewhere
        key: Callable[[Any], str] | None = None,
        lanes: int = 1,
        changelog: str | None = None,
        ids: str = "number",
        fsync: bool = False,
    ) -> None:
        name = type(self).__name__
        require("redis", "redis", name)
        if ids not in {"number", "clock"}:
            raise PipelineError(f"{name} was given ids={ids!r}", hint="give 'number' or 'clock'")
        encode = encoder_of(name, format or default_format(field))
        self._encode = _EntryEncoder(field, encode, key)
        self._sink = RedisSink(
            stream=stream,
            server=RedisServer(url=url),
            lanes=lanes,
            changelog=changelog,
            ids=ids,
            fsync=fsync,
        )

    def default_label(self) -> str:
        """``WriteToRedis(stream)``."""
        return f"WriteToRedis({self._sink.stream})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Check the server, and write to the stream."""
        self._sink.check()
        entries = pcoll | "encode" >> Map(self._encode)
        entries | "write" >> Write(self._sink)


@attrs.frozen
class _EntryEncoder:
    field: str | None
    encode: Any
    key: Callable[[Any], str] | None

    def __call__(self, element: Any) -> dict[str, Any]:
        if self.field is not None:
            members: Any = {self.field: element}
        else:
            as_dict = getattr(element, "_asdict", None)
            members = element if as_dict is None else as_dict()
            if not isinstance(members, Mapping) or not 0 < len(members) <= _FIELDS_MAX:
                raise InputError(
                    f"{element!r:.200} cannot be an entry of a Redis stream",
                    detail=f"an entry is a mapping with 1 to {_FIELDS_MAX} fields",
                    hint="convert it in a df.Map before, or give field= its name",
                )
        fields = [
            part for name, value in members.items() for part in (name.encode(), self.encode(value))
        ]
        key = repr(fields) if self.key is None else self.key(element)
        return {"lane_key": key, "fields": fields}
