"""RedisSource: the entries of streams of Redis, by their ids.

A position is the id of the last entry that was read, and how many entries had been added with it.  The server counts
how many were ever added, and answers both questions in one transaction; so it is known whether entries were trimmed or
deleted before they were read, wherever they were:

* more are gone than were read: the beginning was trimmed too far, and nothing behind it is handed over;
* all that are there were read, and they are fewer than were added: some were deleted on the way.

Consumer groups are not used: their positions would be second ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError
from dataflow.io.message_streams.reader import Message, MessageForm, MessageReader, Poll
from dataflow.io.redis_streams.client import RedisServer, lost_errors
from dataflow.source import Backlog, Source

if TYPE_CHECKING:
    from redis import Redis

_LOG = logging.getLogger(__name__)
#: Of the server: the first that counts what was added to a stream.
_ENTRIES_ADDED = (7, 0)
#: Entries of one request.
_COUNT_MAX = 5_000
_US_PER_MS = 1_000
_US_PER_S = 1_000_000
#: Before all entries.
BEGINNING = "0-0"


@attrs.frozen
class RedisSplit:
    """The entries of one stream.

    Attributes:
        stream: its key.
        gone: how many entries were not there any more when the reading began.
        end: the id of the last entry; None: there is no end.
    """

    stream: str
    gone: int
    end: str | None


@attrs.frozen(kw_only=True)
class RedisSource(Source):
    """Reads streams; see `ReadFromRedis` for the arguments."""

    streams: tuple[str, ...]
    server: RedisServer
    form: MessageForm
    is_bounded: bool = False
    skips_missing: bool = False

    @property
    def input_name(self) -> str:
        """The keys of the streams."""
        return ",".join(self.streams)

    @property
    def has_event_times(self) -> bool:
        """Whether ids are times, or elements have some."""
        return self.form.has_event_times

    def check(self) -> None:
        """Check the server; a stream that is not there yet has nothing.

        Raises:
            InputError: it cannot be read.
        """
        version = self.server.version(self.input_name)
        if version < _ENTRIES_ADDED:
            raise InputError(
                f"stream {self.input_name} is of Redis {version[0]}.{version[1]}, which does not count what was added",
                detail="so it could not be seen whether entries were trimmed before they were read",
                hint="Redis 7.0 or newer is needed, or Valkey",
            )
        try:
            self.splits(1)
        except lost_errors() as error:
            raise InputError(
                f"the Redis stream {self.input_name} cannot be read",
                detail=f"{type(error).__name__} {error}",
                hint="let this user use XINFO, XRANGE and TIME, in a MULTI",
            ) from error

    def splits(self, desired: int) -> Sequence[tuple[Any, ...]]:
        """One for each stream.

        Raises:
            InputError: a key has something else.
        """
        client = self.server.connect()
        try:
            return [attrs.astuple(self._split(client, stream)) for stream in self.streams]
        finally:
            client.close()

    def open(
        self, split: tuple[Any, ...], position: tuple[str, int] | None, *, fence: int
    ) -> RedisReader:
        """Read on behind an entry."""
        return RedisReader(self, RedisSplit(*split), position)

    def _split(self, client: Redis, stream: str) -> RedisSplit:
        state, _, _ = asked(client, stream, BEGINNING, 1)
        return RedisSplit(
            stream=stream,
            gone=state.added - state.length,
            end=state.last if self.is_bounded else None,
        )


@attrs.frozen(kw_only=True)
class StreamState:
    """What a stream has.

    Attributes:
        length: how many entries.
        added: how many it ever had.
        first: the id of the first one; None: there is none.
        last: the highest id that it ever had.
    """

    length: int = 0
    added: int = 0
    first: str | None = None
    last: str = BEGINNING


Entry = tuple[str, dict[bytes, bytes]]


def asked(
    client: Redis, stream: str, behind: str, count: int
) -> tuple[StreamState, list[Entry], int]:
    """The state of a stream, entries behind an id, and the server's clock in microseconds, all of one moment.

    Args:
        client: to ask.
        stream: the key.
        behind: the id.
        count: how many entries, at most.

    Raises:
        InputError: the key has no stream.
    """
    from redis.exceptions import ResponseError  # noqa: PLC0415 - takes long, and only such jobs need it

    transaction = client.pipeline(transaction=True)
    transaction.xinfo_stream(stream)
    transaction.xrange(stream, min=f"({behind}", count=count)
    transaction.time()
    info, entries, clock = transaction.execute(raise_on_error=False)
    if isinstance(entries, ResponseError) and str(entries).startswith("WRONGTYPE"):
        raise InputError(
            f"the key {stream} of Redis has no stream",
            detail=str(entries),
            hint="give the key of a stream",
        ) from entries
    for each in (entries, clock):
        if isinstance(each, Exception):
            raise each
    # A clock of milliseconds gives ids, so that the next one may be a part of one behind this.
    now_us = (clock[0] * _US_PER_S + clock[1]) // _US_PER_MS * _US_PER_MS
    if isinstance(info, ResponseError) and "no such key" in str(info):
        return StreamState(), [], now_us
    if isinstance(info, Exception):
        raise info
    first = info["first-entry"]
    state = StreamState(
        length=info["length"],
        added=info["entries-added"],
        first=first and _text(first[0]),
        last=_text(info["last-generated-id"]),
    )
    return state, [(_text(entry_id), fields) for entry_id, fields in entries], now_us


class RedisReader(MessageReader):
    """Reads one stream.

    Args:
        source: the source.
        split: of it.
        position: the id of the last entry that was read, and how many had been added with it; None: none was.
    """

    position: tuple[str, int]

    def __init__(
        self, source: RedisSource, split: RedisSplit, position: tuple[str, int] | None
    ) -> None:
        form = attrs.evolve(source.form, name=f"Redis stream {split.stream}")
        super().__init__(form, position or (BEGINNING, split.gone))
        self.lost = lost_errors()
        self._source, self._split = source, split
        self._client: Redis | None = None

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def poll(self, max_records: int) -> Poll:
        """Ask for entries.

        Raises:
            InputError: entries were removed before they were read, or it is another stream.
        """
        if self._client is None:
            self._client = self._source.server.connect()
        behind, count = self.position
        wanted = min(max_records, _COUNT_MAX)
        state, entries, now_us = asked(self._client, self._split.stream, behind, wanted)
        self._check_stream(state)
        has_all = len(entries) < wanted
        missing = max(0, state.added - state.length - count)
        if has_all:
            missing = max(missing, state.added - count - len(entries))
        if missing:
            self._found_missing(missing, state)
        return self._poll(state, entries, missing, now_us if has_all else None)

    def _poll(
        self, state: StreamState, entries: Sequence[Entry], missing: int, now_us: int | None
    ) -> Poll:
        behind, count = self.position
        end = self._split.end
        if end is not None:
            entries = [each for each in entries if id_key(each[0]) <= id_key(end)]
        position = (entries[-1][0] if entries else behind, count + missing + len(entries))
        is_over = end is not None and (
            id_key(position[0]) >= id_key(end) or now_us is not None or state.last == BEGINNING
        )
        left = state.added - position[1]
        return Poll(
            messages=[_message(*each) for each in entries],
            position=position,
            now_us=now_us,
            backlog=None
            if end is not None and not is_over
            else Backlog(records=0 if is_over else left),
            is_over=is_over,
        )

    def _check_stream(self, state: StreamState) -> None:
        behind, count = self.position
        is_shorter = id_key(state.last) < id_key(behind) or state.added < count
        # Whatever was read is there or is gone: of the first kind there is none, of the other there are too few.
        begins_later = state.first is None or id_key(state.first) > id_key(behind)
        if is_shorter or (begins_later and state.added - state.length < count):
            raise InputError(
                f"the Redis stream {self._split.stream} is not the one that was read",
                detail=f"of that, {count} entries were read, up to {behind}; this one has {state.length} of "
                f"{state.added}, up to {state.last}",
                hint="was it deleted and made anew, or has the server lost its end? run the job with fresh=True",
            )

    def _found_missing(self, missing: int, state: StreamState) -> None:
        """Report a loss.

        Raises:
            InputError: it is not to be passed over.
        """
        stream, (behind, count) = self._split.stream, self.position
        if self._source.skips_missing:
            _LOG.warning(
                "Redis stream %s: %s entries behind %s were removed before they were read",
                stream,
                missing,
                behind,
            )
            return
        raise InputError(
            f"the Redis stream {stream} has removed entries before they were read",
            detail=f"{missing} entries behind {behind} are gone; {count} were read of {state.added} that were added, "
            f"and the first that is there is {state.first}",
            hint="let XADD or XTRIM keep more (MAXLEN, MINID); or read on without them: missing='skip'",
        )


def id_key(entry_id: str) -> tuple[int, int]:
    """An id as numbers, which are in the order of the stream.

    Args:
        entry_id: as ``<milliseconds>-<number>``.
    """
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


def _text(raw: bytes | str) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw


def _message(entry_id: str, fields: Mapping[bytes, bytes]) -> Message:
    return Message(
        place=f"entry {entry_id}",
        content=fields,
        raw=repr(dict(fields)).encode(),
        time_us=id_key(entry_id)[0] * _US_PER_MS,
    )
