"""NatsSource: the messages of a JetStream stream, by their sequences.

A position is the sequence of the last message that was read.  The server's consumers are not used: their positions
would be second ones.  What was removed before it was read is an error with both sequences, and so is a stream that was
made anew, or has lost its end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError
from dataflow.io.message_streams.reader import Message, MessageForm, MessageReader, Poll
from dataflow.io.nats_streams.client import (
    NOT_FOUND,
    NatsApiError,
    NatsClient,
    NatsServer,
    StreamInfo,
    lost_errors,
    time_us,
)
from dataflow.source import Backlog, Source

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_LOG = logging.getLogger(__name__)
#: Of the server: the first that answers a direct read with more than one message.
_VERSION = (2, 11)
#: Messages of one request; more are asked for in further ones.
_COUNT_MAX = 5_000
#: Header of the messages in which sinks keep their numbers.
PROGRESS = "Dataflow-Progress"


@attrs.frozen(kw_only=True)
class NatsMessage:
    """A message of a stream, for ``format="message"``.

    Attributes:
        subject: where it was published.
        sequence: its number in the stream.
        time_us: when the server took it, in microseconds since 1970.
        headers: without those of the server.
        data: its bytes.
    """

    subject: str
    sequence: int
    time_us: int
    headers: Mapping[str, str]
    data: bytes


@attrs.frozen
class NatsSplit:
    """The messages of one filter, of one stream.

    Attributes:
        subject: the filter.
        created: of the stream (`StreamInfo.created`).
        behind: the sequence before the first message.
        end: the last sequence; None: there is no end.
    """

    subject: str
    created: str
    behind: int
    end: int | None


@attrs.frozen(kw_only=True)
class NatsSource(Source):
    """Reads a stream; see `ReadFromNats` for the arguments."""

    stream: str
    server: NatsServer
    subjects: tuple[str, ...]
    form: MessageForm
    is_bounded: bool = False
    skips_missing: bool = False
    acknowledges: bool = False

    @property
    def input_name(self) -> str:
        """The stream, and what is read of it."""
        return f"{self.stream} {','.join(self.subjects)}"

    @property
    def has_event_times(self) -> bool:
        """True."""
        return self.form.has_event_times

    def check(self) -> None:
        """Check that the stream is there, and can be read.

        Raises:
            InputError: it cannot.
        """
        self._info()

    def splits(self, desired: int) -> Sequence[tuple[Any, ...]]:
        """One for each filter of subjects."""
        info = self._info()
        return [
            attrs.astuple(
                NatsSplit(
                    subject=subject,
                    created=info.created,
                    behind=info.first - 1,
                    end=info.last if self.is_bounded else None,
                )
            )
            for subject in self.subjects
        ]

    def open(self, split: tuple[Any, ...], position: int | None, *, fence: int) -> NatsReader:
        """Read on behind a sequence."""
        kind = RemovingNatsReader if self.acknowledges else NatsReader
        return kind(self, NatsSplit(*split), position)

    def _info(self) -> StreamInfo:
        try:
            client = self.server.connect()
        except lost_errors() as error:
            raise InputError(
                f"the NATS server of stream {self.stream} cannot be reached",
                detail=f"{type(error).__name__} {error}",
                hint="check the url, and that the server runs and lets this user in",
            ) from error
        try:
            version, info = client.version, client.info(self.stream)
        except Exception as error:
            if not isinstance(error, (NatsApiError, *lost_errors())):
                raise
            raise InputError(
                f"the NATS stream {self.stream} cannot be read",
                detail=f"{type(error).__name__} {error}",
                hint="check its name, and that JetStream is switched on: nats stream info",
            ) from error
        finally:
            client.close()
        if version < _VERSION or not info.config.get("allow_direct"):
            raise InputError(
                f"the NATS stream {self.stream} does not allow direct reads",
                detail=f"messages are read by their sequences; the server is of version {version[0]}.{version[1]}, and "
                f"allow_direct of the stream is {bool(info.config.get('allow_direct'))}",
                hint=f"nats stream edit {self.stream} --allow-direct; the server must be of version 2.11 or newer",
            )
        return info


class NatsReader(MessageReader):
    """Reads one filter of a stream.

    Args:
        source: the source.
        split: of it.
        position: the sequence of the last message that was read; None: none was.
    """

    def __init__(self, source: NatsSource, split: NatsSplit, position: int | None) -> None:
        super().__init__(source.form, split.behind if position is None else position)
        self.lost = (*lost_errors(), NatsApiError)
        self._source, self._split = source, split
        self._client: NatsClient | None = None

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def poll(self, max_records: int) -> Poll:
        """Ask for messages.

        Raises:
            InputError: messages were removed before they were read, or it is another stream.
        """
        position, end = self.position, self._split.end
        if end is not None and position >= end:
            return Poll(messages=(), position=position, is_over=True, backlog=Backlog(records=0))
        client = self._connected()
        found = client.messages(
            self._source.stream,
            start=position + 1,
            subject=self._split.subject,
            count=min(max_records, _COUNT_MAX),
        )
        if not found:
            return self._nothing(client)
        sequences = [_sequence(each) for each in found]
        self._check_gap(client, sequences)
        last, left = sequences[-1], int((found[-1].headers or {})["Nats-Num-Pending"])
        if end is not None and last >= end:
            found = [each for each, at in zip(found, sequences, strict=True) if at <= end]
            last = end
        is_over = end is not None and last >= end
        # That nothing is left only the leader knows, and another replica may have answered.
        is_known = end is None and left > 0
        return Poll(
            messages=[m for each in found if (m := _message(each)) is not None],
            position=last,
            backlog=Backlog(records=left) if is_known else None,
            is_over=is_over,
        )

    def _connected(self) -> NatsClient:
        if self._client is None:
            self._client = self._source.server.connect()
            self._check_stream(self._info(self._client))
        return self._client

    def _info(self, client: NatsClient) -> StreamInfo:
        stream = self._source.stream
        try:
            return client.info(stream)
        except NatsApiError as error:
            if error.code not in NOT_FOUND:
                raise
            raise InputError(
                f"the NATS stream {stream} is not there any more",
                detail=str(error),
                hint="if it was deleted, what was not read is lost: run the job with fresh=True on another one",
            ) from error

    def _nothing(self, client: NatsClient) -> Poll:
        """There is nothing, or it is not there yet: the leader of the stream knows."""
        info = self._info(client)
        self._check_stream(info)
        position = self._behind_missing(info, self.position)
        stream, subject = self._source.stream, self._split.subject
        if client.stored(stream, seq=position + 1, next_by_subj=subject) is not None:
            return Poll(messages=(), position=position)
        position = max(position, info.last)
        is_over = self._split.end is not None and position >= self._split.end
        return Poll(
            messages=(),
            position=position,
            now_us=info.now_us,
            backlog=Backlog(records=0),
            is_over=is_over,
        )

    def _check_gap(self, client: NatsClient, sequences: Sequence[int]) -> None:
        """Where sequences are missing, see whether the stream has dropped its beginning up to there."""
        before = self.position
        for sequence in sequences:
            if sequence > before + 1:
                self._behind_missing(self._info(client), before)
                return
            before = sequence

    def _behind_missing(self, info: StreamInfo, position: int) -> int:
        """The position from which on messages are there: an error, or a loss that is logged, if it is another one."""
        if info.first <= position + 1 or not self._may_have_expired(info.config):
            return position
        stream = self._source.stream
        lost = f"sequences {position + 1} to {info.first - 1}"
        if self._source.skips_missing:
            _LOG.warning("NATS stream %s: %s were removed before they were read", stream, lost)
            return info.first - 1
        raise InputError(
            f"the NATS stream {stream} has removed messages before they were read",
            detail=f"{lost} are gone, of subject {self._split.subject}; the last one that was read is {position}, "
            f"the first one that is there {info.first}",
            hint="give the stream larger limits; or read on without them: missing='skip'",
        )

    def _may_have_expired(self, config: Mapping[str, Any]) -> bool:
        """Whether it may be messages of ours that are gone from the beginning.

        A work queue without limits loses what is consumed, and what others consume is of other subjects.
        """
        has_limits = any(config.get(name, 0) > 0 for name in ("max_age", "max_msgs", "max_bytes"))
        is_queue = config.get("retention", "limits") != "limits"
        return has_limits or not is_queue or self._split.subject == ">"

    def _check_stream(self, info: StreamInfo) -> None:
        stream, split = self._source.stream, self._split
        if info.created != split.created:
            raise InputError(
                f"the NATS stream {stream} is another one of the same name",
                detail=f"it was created at {info.created}, the one that was read at {split.created}, and sequence "
                f"{self.position} means nothing there",
                hint="run the job with fresh=True, or under another name",
            )
        if info.last < self.position:
            raise InputError(
                f"the NATS stream {stream} has lost messages that were read",
                detail=f"the last one that was read is {self.position}, the last one that is there {info.last}",
                hint="was it restored from an older copy? new messages would have sequences that were read already: "
                "run the job with fresh=True",
            )


class RemovingNatsReader(NatsReader):
    """Removes from the stream what is durable here."""

    def committed(self, position: int) -> None:
        """Remove everything up to a sequence that the filter has."""
        request = {"filter": self._split.subject, "seq": position + 1}
        self._connected().api(f"STREAM.PURGE.{self._source.stream}", request)


def _sequence(message: Msg) -> int:
    return int((message.headers or {})["Nats-Sequence"])


def _message(message: Msg) -> Message | None:
    headers = message.headers or {}
    if PROGRESS in headers:
        return None
    taken_us = time_us(headers["Nats-Time-Stamp"])
    place = f"sequence {headers['Nats-Sequence']}"
    return Message(place, message, message.data, taken_us)


def whole_message(message: Msg) -> NatsMessage:
    """Make an element of a message.

    Args:
        message: as a direct read returns it.
    """
    headers = message.headers or {}
    return NatsMessage(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        time_us=time_us(headers["Nats-Time-Stamp"]),
        headers={name: value for name, value in headers.items() if not name.startswith("Nats-")},
        data=message.data,
    )
