"""NatsClient: a connection to NATS, with its asyncio on a thread of its own, and the few requests that we need.

The NATS client does not reconnect by itself: a connection that is lost raises, and whoever has the client opens another
one, and asks what is there.  Messages are read by direct requests for sequences, without a consumer: there is nothing
on the server that could differ from our positions.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

#: How long an answer is waited for, in seconds.
ANSWER_S = 10.0
#: How long the client is given to close a connection, in seconds.
_END_S = 1.0
#: Of one answer to a read, at most.
READ_BYTES_MAX = 8 << 20
#: Of the server: a message, or a stream, that is not there.
NOT_FOUND = frozenset((10037, 10059))
_NOTHING_MORE = frozenset(("204", "404"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


class NatsApiError(Exception):
    """The server refuses a request.

    Args:
        code: of JetStream, such as 10071 where a message is not the last of its subject.
        description: of the server.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


@attrs.frozen(kw_only=True)
class NatsServer:
    """How a server is reached.

    Attributes:
        url: one address, or several with commas; may have a password.
        options: further arguments of `nats.connect`, such as ``user_credentials`` and ``tls``.
    """

    url: str = attrs.field(repr=False)
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    def connect(self) -> NatsClient:
        """Connect."""
        return NatsClient(self)


def lost_errors() -> tuple[type[BaseException], ...]:
    """What is raised where the server, or the connection to it, is away."""
    from nats.errors import Error  # noqa: PLC0415 - takes long, and only such jobs need it

    # `TimeoutError` of asyncio and of futures are this one.
    return (Error, OSError, TimeoutError, LostAnswerError)


class LostAnswerError(Exception):
    """An answer came without some of its messages."""


class NatsClient:
    """A connection; all methods wait for the answer.

    Args:
        server: to connect to.
    """

    def __init__(self, server: NatsServer) -> None:
        self._loop = asyncio.new_event_loop()
        self._client: Client | None = None
        self._has_lost = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="dataflow NATS", daemon=True
        )
        self._thread.start()
        try:
            self._client = self._wait_for(_connected(server, self._has_lost))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, and end the thread.  Idempotent."""
        if self._loop.is_closed():
            return
        client, self._client = self._client, None
        try:
            ending = asyncio.run_coroutine_threadsafe(_ended(client), self._loop)
            ending.result(ANSWER_S)
        except Exception:  # noqa: BLE001, S110 - it is away, and so be it
            pass
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def version(self) -> tuple[int, int]:
        """Of the server, such as (2, 12)."""
        found = self._connected.connected_server_version
        return found.major, found.minor

    def api(self, subject: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask JetStream's API.

        Args:
            subject: without ``$JS.API``.
            request: its body.

        Raises:
            NatsApiError: the server refuses it.
        """
        body = json.dumps(dict(request or {})).encode()
        return _answer_of(self._wait_for(self._ask(f"$JS.API.{subject}", body)).data)

    def info(self, stream: str) -> StreamInfo:
        """Ask for what a stream has.

        Args:
            stream: its name.

        Raises:
            NatsApiError: there is no such stream.
        """
        return StreamInfo.of(self.api(f"STREAM.INFO.{stream}"))

    def stored(self, stream: str, **request: Any) -> StoredMessage | None:
        """One message, as the leader of the stream has it; None: there is none.

        Args:
            stream: its name.
            **request: ``last_by_subj``, or ``seq`` and ``next_by_subj``.

        Raises:
            NatsApiError: the server refuses it.
        """
        try:
            message = self.api(f"STREAM.MSG.GET.{stream}", request)["message"]
        except NatsApiError as error:
            if error.code in NOT_FOUND:
                return None
            raise
        return StoredMessage(message["seq"], base64.b64decode(message.get("data", "")))

    def messages(self, stream: str, *, start: int, subject: str, count: int) -> Sequence[Msg]:
        """Messages from a sequence on, in order.

        Args:
            stream: its name.
            start: the first sequence.
            subject: a filter of subjects.
            count: how many, at most.

        Raises:
            LostAnswerError: some did not arrive.
        """
        request = {
            "seq": start,
            "batch": count,
            "max_bytes": READ_BYTES_MAX,
            "next_by_subj": subject,
        }
        found: list[Msg] = self._wait_for(self._direct(stream, json.dumps(request).encode()))
        return found

    def publish_all(self, messages: Sequence[tuple[str, bytes, dict[str, str]]], batch: str) -> int:
        """Publish messages to one stream in one atomic act; returns the sequence of the last one.

        Args:
            messages: of each the subject, its bytes and its headers; at most 1,000.
            batch: another text for each batch, of at most 64 characters.

        Raises:
            NatsApiError: nothing was published.
            Exception: nobody knows whether they were.
        """
        last: int = self._wait_for(self._publish_all(messages, batch))
        return last

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise LostAnswerError("the connection is closed")
        return self._client

    def _wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        wanted = self._unless_lost(work)
        return asyncio.run_coroutine_threadsafe(wanted, self._loop).result(3 * ANSWER_S)

    async def _unless_lost(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What it returns; requests of the client of NATS wait on where the connection is lost."""
        wanted = asyncio.ensure_future(work)
        lost = asyncio.ensure_future(self._has_lost.wait())
        await asyncio.wait({wanted, lost}, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not wanted.done():
            wanted.cancel()
            raise LostAnswerError("the connection is lost")
        return wanted.result()

    async def _ask(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> Msg:
        return await self._connected.request(subject, body, timeout=ANSWER_S, headers=headers)

    async def _direct(self, stream: str, body: bytes) -> list[Msg]:
        client, found, last = self._connected, list[Any](), "0"
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox, pending_msgs_limit=0, pending_bytes_limit=0)
        try:
            await client.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox)
            while True:
                message = await answers.next_msg(timeout=ANSWER_S)
                headers = message.headers or {}
                if "Nats-Sequence" not in headers:
                    if headers.get("Status") in _NOTHING_MORE:
                        break
                    raise LostAnswerError(f"the server answers a read with {dict(headers)}")
                if headers.get("Nats-Last-Sequence", last) != last:
                    raise LostAnswerError(f"what came between {last} and {headers}")
                last = headers["Nats-Sequence"]
                found.append(message)
        finally:
            if not client.is_closed:
                await answers.unsubscribe()
        if (message.headers or {}).get("Nats-Last-Sequence", last) != last:
            raise LostAnswerError(f"what came behind {last}")
        return found

    async def _publish_all(
        self, messages: Sequence[tuple[str, bytes, dict[str, str]]], batch: str
    ) -> int:
        for number, (subject, body, headers) in enumerate(messages, 1):
            numbered = {**headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < len(messages):
                await self._connected.publish(subject, body, headers=numbered)
        numbered["Nats-Batch-Commit"] = "1"
        answer = _answer_of((await self._ask(subject, body, numbered)).data)
        return int(answer["seq"])


async def _connected(server: NatsServer, has_lost: asyncio.Event) -> Client:
    import nats  # noqa: PLC0415 - see the module

    async def ignore(_: Exception) -> None:
        """It is raised where something is asked for."""

    async def lose() -> None:
        has_lost.set()

    # Two attempts, and no more: whoever has the client knows when to try again.
    attempts = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
    options = {"connect_timeout": 5, **attempts, **server.options}
    return await nats.connect(
        server.url.split(","),
        error_cb=ignore,
        closed_cb=lose,
        disconnected_cb=lose,
        name="dataflow",
        **options,
    )


async def _ended(client: Client | None) -> None:
    """Close the connection, also one that is lost, and end what is still at work for it."""
    if client is not None:
        await client.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        # One of them may be the client's own, which closes a connection that is lost.
        _, others = await asyncio.wait(others, timeout=_END_S)
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    # Sockets are closed in the next round of the loop.
    await asyncio.sleep(0)


def _answer_of(body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(body)
    if "error" in answer:
        error = answer["error"]
        raise NatsApiError(error.get("err_code", 0), error.get("description", "unknown error"))
    return answer


@attrs.frozen
class StoredMessage:
    """A message: its sequence, and its bytes."""

    sequence: int
    body: bytes


@attrs.frozen(kw_only=True)
class StreamInfo:
    """What a stream has.

    Attributes:
        created: when it was made, as text; another one of the same name has another time.
        first, last: the sequences of its first message, which may not be there any more, and of its last one.
        now_us: the server's clock, in microseconds since 1970.
        config: how it was made.
    """

    created: str
    first: int
    last: int
    now_us: int
    config: Mapping[str, Any]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> StreamInfo:
        """Read an answer of the server.

        Args:
            answer: to ``STREAM.INFO``.
        """
        state = answer["state"]
        return cls(
            created=answer["created"],
            # Of a stream that has nothing, 0 where nothing was ever there.
            first=max(1, state["first_seq"]),
            last=state["last_seq"],
            now_us=time_us(answer["ts"]),
            config=answer["config"],
        )


def time_us(text: str) -> int:
    """A time of the server, in microseconds since 1970.

    Args:
        text: as in RFC 3339, with up to nine digits of seconds.
    """
    return (datetime.fromisoformat(text) - _EPOCH) // _US
