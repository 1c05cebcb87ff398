"""NatsSink: messages into a JetStream stream, each batch in one atomic act with its number.

Beside the messages the stream has one for each lane that says which batches are there, on a subject of its own.  It is
published in the same atomic batch as the messages, and only if it replaces the one that this writer knows
(``Nats-Expected-Last-Subject-Sequence``): so it is number and fence in one.  Whoever takes a lane over replaces it,
too, by one with its token; the batch of a writer before that is then refused as a whole.

Messages with numbers are as any other: they are not removed when they are replaced, as readers find what has expired by
the first sequence of the stream, and it must not depend on them.  So that ``max_age`` does not remove the number of a
lane that has nothing to write, it is published again in time.

An atomic batch has 1,000 messages at most.  A larger batch of the relay is several, each of which says how much of it
is there, so that whoever goes on does so behind that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.errors import InputError, SinkFencedError, SinkRefusedError
from dataflow.io.nats_streams.client import NatsApiError, NatsClient, NatsServer, lost_errors
from dataflow.io.nats_streams.source import PROGRESS
from dataflow.sink import Lane, Sink, SinkChange, SinkWriter
from dataflow.table import ColumnType

_LOG = logging.getLogger(__name__)
_NS_PER_S = 1_000_000_000
#: How often the number of a lane is published while it would become too old once.
_RENEWALS = 4
#: Beside a message with the number.
_MESSAGES_MAX = 999
#: Of the server: what was expected to be the last message of a subject is not.
_NOT_LAST = frozenset((10071, 10164))
#: Of the server: a message is too large, or its headers are.
_REFUSALS = frozenset((10054, 10097))
#: Headers with the sign of a message, and with an id that no other has.  It is no ``Nats-Msg-Id``: the server looks at
#: that first, and would call what a writer sends that is fenced a duplicate.
SIGN, ID = "Dataflow-Sign", "Dataflow-Id"
_HEADER_BYTES = len(b"NATS/1.0\r\n\r\n")
#: For the headers of the batch itself, at most.
_BATCH_BYTES = 128


@attrs.frozen(kw_only=True)
class NatsSink(Sink[Any]):
    """Writes to a stream; see `WriteToNats` for the arguments."""

    stream: str
    server: NatsServer
    lanes: int = 1

    @property
    def columns(self) -> dict[str, ColumnType]:
        """Subject and bytes of a message."""
        return {"subject": str, "body": bytes}

    def lane_key(self, element: Any) -> str:
        """The subject, whose messages keep their order."""
        subject: str = element[0]
        return subject

    def check(self) -> None:
        """Check that the stream is there, and takes batches with numbers.

        Raises:
            InputError: it does not.
        """
        try:
            client = self.server.connect()
        except lost_errors() as error:
            raise InputError(
                f"the NATS server of stream {self.stream} cannot be reached",
                detail=f"{type(error).__name__} {error}",
                hint="check the url, and that the server runs and lets this user in",
            ) from error
        try:
            self.patterns(client)
        except (NatsApiError, SinkRefusedError) as error:
            raise InputError(
                f"the NATS stream {self.stream} cannot be written to",
                detail=str(error),
                hint="docs/connectors/nats.md has the command that makes one",
            ) from error
        finally:
            client.close()

    def patterns(self, client: NatsClient) -> Sequence[str]:
        """The subjects of the stream.

        Args:
            client: to ask.

        Raises:
            SinkRefusedError: the stream has not the settings that it needs.
            NatsApiError: there is no such stream.
        """
        config = client.info(self.stream).config
        subjects: list[str] = config.get("subjects") or []
        wrong = []
        if not config.get("allow_atomic"):
            version = ".".join(map(str, client.version))
            wrong.append(
                f"allow_atomic must be on, which needs nats-server 2.12; this is {version}"
            )
        if not any(matches(each, progress_subject(self.stream, "any")) for each in subjects):
            wrong.append(f"its subjects must have {progress_subject(self.stream, '>')!r}")
        if config.get("retention", "limits") != "limits":
            wrong.append("retention must be by limits, as nobody consumes the numbers")
        if wrong:
            raise SinkRefusedError(
                f"the NATS stream {self.stream} has other settings than exactly-once writes need",
                detail="; ".join(wrong),
                hint="nats stream edit, or make another one: docs/connectors/nats.md",
            )
        return subjects

    def open(self, lane: Lane) -> NatsWriter:
        """A writer of a lane."""
        return NatsWriter(self, lane)


@attrs.frozen
class _Progress:
    """What the sink has: all batches up to ``number``, and the first ``done`` messages of the next one."""

    token: int
    number: int
    done: int


class NatsWriter(SinkWriter):
    """Writes the batches of a lane.

    Args:
        sink: where to.
        lane: the lane.
    """

    def __init__(self, sink: NatsSink, lane: Lane) -> None:
        self._sink, self._lane = sink, lane
        self._name = hashlib.sha256(lane.writer.encode()).hexdigest()[:32]
        self._subject = progress_subject(sink.stream, self._name)
        self._client: NatsClient | None = None
        self._patterns: Sequence[str] = ()
        self._progress = _Progress(0, 0, 0)
        #: The sequence of the message with it; whoever publishes another one has fenced this writer.
        self._sequence = 0
        self._renewal = _Renewal(self._renew)
        #: Of a message with its headers; less than 0: the stream has no limit.
        self._bytes_max = -1

    def fence(self, token: int) -> int:
        """Replace the message with the number by one with this token, and read it.

        Raises:
            SinkFencedError: the lane was fenced with this token or a higher one.
            SinkRefusedError: the stream has other settings than it needs.
        """
        client = self._client = self._sink.server.connect()
        self._patterns = self._sink.patterns(client)
        config = client.info(self._sink.stream).config
        self._bytes_max = config.get("max_msg_size", -1)
        while True:
            stored = client.stored(self._sink.stream, last_by_subj=self._subject)
            if stored is not None:
                found = json.loads(stored.body)
                self._progress = _Progress(found["token"], found["number"], found["done"])
                self._sequence = stored.sequence
            if self._progress.token >= token:
                raise SinkFencedError(f"{self._lane.title} was fenced by another writer")
            try:
                # The former writer may be at work: then it is read again.
                self._publish([], attrs.evolve(self._progress, token=token))
            except SinkFencedError:
                continue
            self._renewal.start(config.get("max_age", 0) / _NS_PER_S / _RENEWALS)
            return self._progress.number

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Publish a batch with its number, in atomic acts of a thousand messages."""
        self._check_subjects(changes)
        with self._renewal.lock:
            self._write(number, changes)

    def _write(self, number: int, changes: Sequence[SinkChange]) -> None:
        token, done = self._progress.token, self._progress.done
        while done < len(changes):
            part = changes[done : done + _MESSAGES_MAX]
            messages = [self._message(number, index, each) for index, each in enumerate(part, done)]
            done += len(part)
            is_whole = done == len(changes)
            self._publish(
                messages,
                _Progress(token, number if is_whole else number - 1, 0 if is_whole else done),
            )

    def close(self) -> None:
        """Close the connection."""
        self._renewal.stop()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _renew(self) -> None:
        """Publish the number again, as the stream removes what is old."""
        try:
            self._publish([], self._progress)
        except Exception as error:  # noqa: BLE001 - the next batch finds out, as its number then is not the last one
            _LOG.warning("%s: its number was not published again: %s", self._lane.title, error)

    def _message(
        self, number: int, index: int, change: SinkChange
    ) -> tuple[str, bytes, dict[str, str]]:
        subject, body = change.value
        headers = {
            ID: f"{self._lane.writer}/{number}/{index}",
            SIGN: f"{change.sign:+d}",
        }
        size = len(body) + _size_of(headers) + _BATCH_BYTES
        if 0 <= self._bytes_max < size:
            # The server refuses it without a word, and then the batch as incomplete.
            raise self._refused(
                f"a message of {size} bytes is too large: max_msg_size is {self._bytes_max}"
            )
        return subject, body, headers

    def _publish(
        self, messages: Sequence[tuple[str, bytes, dict[str, str]]], progress: _Progress
    ) -> None:
        """Publish messages and progress in one atomic act."""
        from nats.errors import MaxPayloadError  # noqa: PLC0415 - takes long, and only such jobs need it

        client = self._client
        assert client is not None
        headers = {PROGRESS: "1", "Nats-Expected-Last-Subject-Sequence": str(self._sequence)}
        body = json.dumps({**attrs.asdict(progress), "title": self._lane.title}).encode()
        batch = f"{self._name}-{progress.token}-{self._sequence}"
        try:
            last = client.publish_all([*messages, (self._subject, body, headers)], batch)
        except MaxPayloadError as error:
            raise self._refused("a message is larger than the server takes") from error
        except NatsApiError as error:
            if error.code in _NOT_LAST:
                raise SinkFencedError(
                    f"{self._lane.title} was fenced by another writer", detail=str(error)
                ) from error
            if error.code in _REFUSALS:
                raise self._refused(str(error)) from error
            raise
        self._sequence, self._progress = last, progress

    def _check_subjects(self, changes: Sequence[SinkChange]) -> None:
        """Check that all messages go into the stream: one that does not would leave its batch incomplete."""
        for subject in {change.value[0] for change in changes}:
            is_taken = any(matches(each, subject) for each in self._patterns)
            if not is_taken or not _is_subject(subject):
                raise self._refused(f"it has no subject {subject!r}, but {list(self._patterns)}")
            if matches(progress_subject(self._sink.stream, ">"), subject):
                raise self._refused(f"the subject {subject!r} is for the numbers of sinks")

    def _refused(self, why: str) -> SinkRefusedError:
        return SinkRefusedError(
            f"the NATS stream {self._sink.stream} does not take a batch of {self._lane.title}",
            detail=why,
            hint="correct the messages or the stream: docs/connectors/nats.md",
        )


class _Renewal:
    """Calls a function now and then on a thread of its own, unless something else is at work.

    Args:
        renew: what is called.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew, self._has_stopped = renew, threading.Event()
        #: Taken by whoever is at work.
        self.lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, pause_s: float) -> None:
        """Begin.

        Args:
            pause_s: between two calls, in seconds; 0: never.
        """
        if pause_s > 0:
            self._thread = threading.Thread(target=self._run, args=(pause_s,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, when the last call has ended.  Idempotent."""
        self._has_stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, pause_s: float) -> None:
        while not self._has_stopped.wait(pause_s):
            with self.lock:
                self._renew()


def progress_subject(stream: str, name: str) -> str:
    """The subject of a message with a number.

    Args:
        stream: its name.
        name: of the lane; ``>``: of all.
    """
    return f"dataflow.progress.{stream}.{name}"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one of a pattern.

    Args:
        pattern: ``*`` stands for one word, ``>`` at the end for one or more.
        subject: words with dots; may be a pattern too, which then is one of the other as a whole.
    """
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(words) == len(wanted) and all(
        want in ("*", word) for want, word in zip(wanted, words, strict=True)
    )


def _size_of(headers: dict[str, str]) -> int:
    return _HEADER_BYTES + sum(
        len(f"{name}: {value}\r\n".encode()) for name, value in headers.items()
    )


def _is_subject(text: str) -> bool:
    """Whether a message can be published there."""
    return all(text.split(".")) and not set(text) & set("*> \t\r\n")
