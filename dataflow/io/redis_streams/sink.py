"""RedisSink: entries into streams of Redis, each batch in one script with its number.

A lane is a stream of its own, with a hash beside it that has the number and the token of the lane.  A script looks at
both and adds the entries: nothing comes between, so a writer with an older token adds nothing, and a batch is there as
a whole or not at all.  The ids of entries are number and index of the batch: the server refuses one that is not higher
than all before, so that nothing is added twice even if the hash is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError, SinkError, SinkFencedError, SinkRefusedError
from dataflow.io.redis_streams.client import RedisServer
from dataflow.sink import Lane, Sink, SinkChange, SinkWriter
from dataflow.table import ColumnType
from dataflow.times import in_words

if TYPE_CHECKING:
    from redis import Redis

_FENCE = """
local token = redis.call('HGET', KEYS[1], 'token')
if token and tonumber(token) >= tonumber(ARGV[1]) then return redis.error_reply('FENCED') end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'title', ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
"""
# The first entry may be refused, and then nothing was written; those behind it have higher ids.
_WRITE = """
local held = redis.call('HMGET', KEYS[1], 'token', 'number')
if held[1] ~= ARGV[1] then return redis.error_reply('FENCED') end
if tonumber(held[2] or '0') ~= tonumber(ARGV[2]) - 1 then return redis.error_reply('NUMBER') end
local at, index = 4, 0
while at <= #ARGV do
  local fields = tonumber(ARGV[at])
  local id = '*'
  if ARGV[3] == 'number' then id = ARGV[2] .. '-' .. index end
  redis.call('XADD', KEYS[2], id, unpack(ARGV, at + 1, at + fields))
  at, index = at + 1 + fields, index + 1
end
redis.call('HSET', KEYS[1], 'number', ARGV[2])
return index
"""
#: Of the server: the first that knows what is on its disk.
_WAITAOF = (7, 2)
#: How long the server may take until its disk has a batch, in milliseconds.
_FSYNC_MS = 5_000


@attrs.frozen(kw_only=True)
class RedisSink(Sink[Any]):
    """Writes to streams; see `WriteToRedis` for the arguments."""

    stream: str
    server: RedisServer
    lanes: int = 1
    changelog: str | None = None
    ids: str = "number"
    fsync: bool = False

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The columns of the outbox: the key of the lane, and names and values of the fields by turns."""
        return {"lane_key": str, "fields": list[bytes]}

    @property
    def takes_retractions(self) -> bool:
        """Whether entries have a sign."""
        return self.changelog is not None

    def lane_key(self, element: Any) -> str:
        """The key that the user's function gives; without one, the fields themselves."""
        key: str = element[0]
        return key

    def stream_of(self, lane: int) -> str:
        """The key of the stream of a lane.

        Args:
            lane: its number.
        """
        return self.stream if self.lanes == 1 else f"{self.stream}:{lane}"

    def check(self) -> None:
        """Check that the server is there, and keeps what it has.

        Raises:
            InputError: it does not.
        """
        memory = self.server.information("memory", self.stream)
        policy = str(memory.get("maxmemory_policy", ""))
        if memory.get("maxmemory") and policy.startswith("allkeys"):
            raise InputError(
                f"the Redis server of stream {self.stream} may drop it",
                detail=f"its maxmemory-policy is {policy}, which evicts any key when memory is short",
                hint="set maxmemory-policy to noeviction, or to a volatile one",
            )
        version = self.server.version(self.stream)
        if self.fsync and version < _WAITAOF:
            raise InputError(
                f"the Redis server of stream {self.stream} cannot say what is on its disk",
                detail=f"it is of version {version[0]}.{version[1]}, and fsync needs the command WAITAOF",
                hint="Redis 7.2 or newer is needed, or Valkey; or leave fsync out",
            )

    def open(self, lane: Lane) -> RedisWriter:
        """A writer of a lane."""
        return RedisWriter(self, lane)


class RedisWriter(SinkWriter):
    """Writes the batches of a lane.

    Args:
        sink: where to.
        lane: the lane.
    """

    def __init__(self, sink: RedisSink, lane: Lane) -> None:
        self._sink, self._lane, self._token = sink, lane, 0
        self._stream = sink.stream_of(lane.number)
        self._progress = progress_key(self._stream, lane.writer)
        self._client: Redis | None = None

    def fence(self, token: int) -> int:
        """Put the token into the hash, and read the number, in one script."""
        self._client = self._sink.server.connect()
        self._token = token
        return int(self._run(_FENCE, [self._progress], [token, self._lane.title]))

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Add the entries and the number in one script."""
        arguments: list[Any] = [self._token, number, self._sink.ids]
        for change in changes:
            fields = list(change.value[1])
            if self._sink.changelog is not None:
                fields += [self._sink.changelog, f"{change.sign:+d}"]
            arguments += [len(fields), *fields]
        self._run(_WRITE, [self._progress, self._stream], arguments)
        if self._sink.fsync:
            self._wait_for_disk()

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _wait_for_disk(self) -> None:
        assert self._client is not None
        client: Any = self._client  # this method of it has no types
        local, _ = client.execute_command("WAITAOF", 1, 0, _FSYNC_MS)
        if not local:
            raise SinkError(
                f"{self._lane.title}: a batch has not got to the disk of the Redis server",
                detail=f"it was waited for {in_words(_FSYNC_MS * 1_000)}",
                hint="is appendonly on?",
            )

    def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        from redis.exceptions import ResponseError  # noqa: PLC0415 - takes long, and only such jobs need it

        assert self._client is not None
        try:
            return self._client.eval(script, len(keys), *keys, *arguments)
        except ResponseError as error:
            text = str(error)
            if "FENCED" in text:
                raise SinkFencedError(f"{self._lane.title} was fenced by another writer") from error
            if "equal or smaller" in text or "WRONGTYPE" in text:
                raise SinkRefusedError(
                    f"the Redis stream {self._stream} does not take a batch of {self._lane.title}",
                    detail=text,
                    hint="it must be this sink's alone, and new when the job is: give another key, delete it, or let "
                    "the server draw the ids: ids='clock'",
                ) from error
            raise


def progress_key(stream: str, writer: str) -> str:
    """The key of the hash with number and token, in the slot of the stream where there are several servers.

    Args:
        stream: the key of the stream.
        writer: of the lane.
    """
    name = hashlib.sha256(writer.encode()).hexdigest()[:32]
    # What is in braces decides on the slot.
    tagged = stream if "{" in stream else f"{{{stream}}}"
    return f"{tagged}:dataflow:{name}"
