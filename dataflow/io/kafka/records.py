"""KafkaRecord, and RecordForm: from the messages of a partition to elements with their event times, by the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np

from dataflow.columns import IntColumn
from dataflow.errors import InputError
from dataflow.io.json_row_form import JsonRowForm, field_times_us
from dataflow.io.record_reader import event_times_us
from dataflow.set_aside import SetAside
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, US_PER_SECOND, TimestampLike

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Turns the bytes of a key or value into what is in them; called with the bytes and the topic.
Decode = Callable[[bytes, str], Any]
#: So many bytes of a malformed record are shown.
_SHOWN_BYTES = 200
_US_PER_MS = 1_000
#: The last millisecond that is an instant.
_MS_MAX = MAX_TIMESTAMP_US // _US_PER_MS


class RegistryAwayError(Exception):
    """A registry of schemas does not answer: what its records are is not known yet, and it is asked again."""


class KafkaRecord(NamedTuple):
    """A record of a topic.

    Attributes:
        key: as it was decoded, or bytes; None: the record has none.
        value: as it was decoded, or bytes; None: the record has none, as one that deletes its key.
        headers: names and values, in order.
        topic: of the record.
        partition: of the topic.
        offset: in the partition; topic, partition and offset are of this record alone, as long as the topic is not
            deleted and made anew.
        timestamp_us: that of the producer or the broker, as the topic is configured; None: it has none.
    """

    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int
    timestamp_us: int | None


@attrs.frozen(kw_only=True)
class RecordForm:
    """The form of elements, and where their event times are.

    Attributes:
        key, value: decode the two; None: they are bytes.
        rows: elements are rows of the value, which is JSON; None: elements are `KafkaRecord` s.
        event_time: a function of the element, or the name of a field of rows; None: the timestamp of the record.
        unit_us: of such a field, if it is a number.
    """

    key: Decode | None = None
    value: Decode | None = None
    rows: JsonRowForm | None = None
    event_time: Callable[[Any], TimestampLike] | str | None = None
    unit_us: int = US_PER_SECOND

    def read(
        self, where: str, messages: Sequence[Message]
    ) -> tuple[Sequence[Any], Sequence[int], list[SetAside]]:
        """The elements with their event times, and what cannot be one.

        Args:
            where: topic and partition, for messages.
            messages: without errors, in the order of offsets.

        Raises:
            RegistryAwayError: what they are is not known at the moment.
        """
        if not messages:
            return [], [], []
        try:
            return *self._read_all(where, messages), []
        except RegistryAwayError:
            raise
        except Exception:  # noqa: BLE001 - which record it was, and why, is found one by one
            return self._read_one_by_one(where, messages)

    def _read_all(
        self, where: str, messages: Sequence[Message]
    ) -> tuple[Sequence[Any], Sequence[int]]:
        elements = self.records(messages) if self.rows is None else self._rows(where, messages)
        if self.event_time is None:
            times = np.array([message.timestamp()[1] for message in messages], np.int64)
            if times.max() > _MS_MAX:
                raise InputError(
                    f"{where} has a record whose timestamp is no instant",
                    detail=f"{times.max()} milliseconds since 1970",
                    hint="have its producer give milliseconds, or take the times from the records: event_time=",
                )
            is_known = times >= 0
            return elements, IntColumn(np.where(is_known, times * _US_PER_MS, MIN_TIMESTAMP_US))
        if isinstance(self.event_time, str):
            return elements, field_times_us(where, elements, self.event_time, self.unit_us)
        return elements, event_times_us(where, self.event_time, elements)

    def _rows(self, where: str, messages: Sequence[Message]) -> Sequence[Any]:
        assert self.rows is not None
        values = [message.value() for message in messages]
        if None in values:
            raise InputError(
                f"{where} has a record without a value, which is no row",
                hint="leave rows= out to read records that delete their key, or write values",
            )
        block = b"\n".join(value for value in values if value is not None)
        if (b"\n" in block and block.count(b"\n") >= len(values)) or b"\r" in block:
            # JSON has line ends as space alone; within a text they are escaped.
            block = b"\n".join(
                value.replace(b"\n", b" ").replace(b"\r", b" ") for value in values if value
            )
        rows = self.rows.rows(where, block)
        if len(rows) != len(values):
            raise InputError(
                f"{where} has a record with an empty value, which is no row",
                hint="write one JSON object as the value",
            )
        return rows

    def records(self, messages: Sequence[Message]) -> list[KafkaRecord]:
        """The records of messages.

        Args:
            messages: at least one, of one partition, without errors.
        """
        topic, partition = messages[0].topic() or "", messages[0].partition() or 0
        keys: Sequence[Any] = [message.key() for message in messages]
        values: Sequence[Any] = [message.value() for message in messages]
        if self.key is not None:
            keys = _decoded(self.key, keys, topic)
        if self.value is not None:
            values = _decoded(self.value, values, topic)
        return [
            KafkaRecord(
                key, value, headers, topic, partition, offset, None if ms < 0 else ms * _US_PER_MS
            )
            for key, value, headers, offset, (_, ms) in zip(
                keys,
                values,
                [_headers(message) for message in messages],
                [message.offset() or 0 for message in messages],
                [message.timestamp() for message in messages],
                strict=True,
            )
        ]

    def _read_one_by_one(
        self, where: str, messages: Sequence[Message]
    ) -> tuple[Sequence[Any], Sequence[int], list[SetAside]]:
        elements: list[Any] = []
        times_us: list[int] = []
        aside: list[SetAside] = []
        for message in messages:
            try:
                found, its_us = self._read_all(where, [message])
            except RegistryAwayError:
                raise
            except Exception as error:  # noqa: BLE001 - user code, and what producers have written
                aside.append(_set_aside(where, message, error))
            else:
                elements += found
                times_us += its_us
        return elements, times_us, aside


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    found: Any = message.headers()
    return tuple(found) if found else ()


def _decoded(decode: Decode, raw: Sequence[bytes | None], topic: str) -> list[Any]:
    return [None if each is None else decode(each, topic) for each in raw]


def _set_aside(where: str, message: Message, error: Exception) -> SetAside:
    key, value = message.key(), message.value()
    shown = "none" if value is None else f"{value[:_SHOWN_BYTES]!r}"
    fact = (
        error.fact if isinstance(error, InputError) else f"{where} has a record that cannot be read"
    )
    why = error.detail if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    hint = f"{error.hint}; or" if isinstance(error, InputError) else "correct its producer, or"
    cause = error.__cause__ if isinstance(error, InputError) else error
    (raw,) = RecordForm().records([message])
    return SetAside(
        error=InputError(
            f"{fact}, at offset {message.offset()}",
            detail=f"{where}, offset {message.offset()}: {why}; key: {key!r:.200}; value: {shown}",
            hint=f"{hint} go on without such records: df.Pipeline(..., tries_per_record=1) keeps them as dead letters",
        ),
        cause=cause if isinstance(cause, BaseException) else error,
        element=raw,
    )
