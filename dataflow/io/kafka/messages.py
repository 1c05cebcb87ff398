"""From elements to messages, and from signed changes to what a topic can say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import attrs
import msgspec

from dataflow.errors import PipelineError
from dataflow.sink import SinkChange

_encode = msgspec.json.Encoder(order="deterministic").encode
#: The header of a change that says whether it is one (``+1``) or takes one back (``-1``).
SIGN_HEADER = "dataflow-sign"
_SIGNS = {+1: b"+1", -1: b"-1"}

#: The key, the value, and the headers of a message: what an element is in the outbox.
Encoded = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]


class Mode(Enum):
    """What becomes of elements that are emitted and retracted, in a topic."""

    #: Each element is a message, and none is ever retracted.
    APPEND = "append"
    #: A message replaces that of its key; a retraction is a message without a value (a tombstone).
    UPSERT = "upsert"
    #: Each message says what was before and what is after, as those of Debezium do.
    DEBEZIUM = "debezium"
    #: Each change is a message, with its sign in a header.
    CHANGELOG = "changelog"


@attrs.frozen
class Encode:
    """Encodes elements; what a retraction is encoded as is what its element was.

    Attributes:
        key: the name of a member, or a function of the element; None: messages have no key.
        value: a function of the element; None: the element itself.
        headers: a function of the element; None: messages have none.
        mode: what becomes of retractions.
    """

    key: str | Callable[[Any], Any] | None
    value: Callable[[Any], Any] | None
    headers: Callable[[Any], Mapping[str, bytes | str]] | None
    mode: Mode

    def __call__(self, element: Any) -> Encoded:
        """The message of an element.

        Args:
            element: any.

        Raises:
            PipelineError: the message needs a key or value that it has not.
        """
        key = None if self.key is None else _bytes(_member(element, self.key))
        found = element if self.value is None else self.value(element)
        if self.mode is Mode.DEBEZIUM and isinstance(found, bytes | str | None):
            raise PipelineError(
                f"a message of mode='debezium' cannot have the value {found!r:.100}",
                hint="let value= return what JSON can have as an object, or nothing be given",
            )
        if self.mode in {Mode.UPSERT, Mode.DEBEZIUM} and key is None:
            raise PipelineError(
                f"a message of mode={self.mode.value!r} has no key: {element!r:.200}",
                hint="give WriteToKafka a key=... that no element lacks",
            )
        headers = () if self.headers is None else _headers(self.headers(element))
        return key, _bytes(found), headers


def _member(element: Any, key: str | Callable[[Any], Any]) -> Any:
    if callable(key):
        return key(element)
    return element[key] if isinstance(element, Mapping) else getattr(element, key)


def _bytes(value: Any) -> bytes | None:
    """Bytes as they are, text in UTF-8, anything else as JSON, the same whatever the order of its members."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return _encode(value._asdict() if hasattr(value, "_asdict") else value)


def _headers(given: Mapping[str, bytes | str]) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in given.items()
    )


def messages_of(mode: Mode, changes: Sequence[SinkChange]) -> list[Encoded]:
    """The messages of a batch of changes, in order for each key.

    Args:
        mode: what becomes of retractions.
        changes: of `Encoded` elements.
    """
    if mode is Mode.UPSERT:
        return _upserts(changes)
    if mode is Mode.DEBEZIUM:
        return _envelopes(changes)
    if mode is Mode.CHANGELOG:
        return [
            (key, value, (*headers, (SIGN_HEADER, _SIGNS[change.sign])))
            for change in changes
            for key, value, headers in [change.value]
        ]
    return [change.value for change in changes]


def _upserts(changes: Sequence[SinkChange]) -> list[Encoded]:
    """The last value of each key; a retraction of a value that was replaced says nothing."""
    last: dict[bytes, Encoded] = {}
    for change in changes:
        key, value, headers = change.value
        if change.sign > 0:
            last.pop(key, None)
            last[key] = change.value
        elif key not in last or last[key][1] == value:
            last.pop(key, None)
            last[key] = key, None, headers
    return list(last.values())


def _envelopes(changes: Sequence[SinkChange]) -> list[Encoded]:
    """Of each key: what is retracted and then emitted is one update, whatever comes between of other keys."""
    made: list[tuple[bytes, bytes | None, bytes | None, Any]] = []
    #: Where the last message of a key is, if it is a deletion that an emission may follow.
    deletions: dict[bytes, int] = {}
    for change in changes:
        key, value, headers = change.value
        if change.sign < 0:
            deletions[key] = len(made)
            made.append((key, value, None, headers))
        elif key in deletions:
            at = deletions.pop(key)
            made[at] = key, made[at][1], value, headers
        else:
            made.append((key, None, value, headers))
    return [(key, _envelope(before, after), headers) for key, before, after, headers in made]


def _envelope(before: bytes | None, after: bytes | None) -> bytes:
    """Both as they are: each is JSON."""
    kind = b"c" if before is None else b"d" if after is None else b"u"
    return b'{"before":%b,"after":%b,"op":"%b"}' % (before or b"null", after or b"null", kind)
