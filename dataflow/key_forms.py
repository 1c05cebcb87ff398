"""Key forms: canonical keys as what CBOR encodes, and back; `dataflow.coders` is what others use.

None, integers, floats, texts and bytes are as they are; everything else is an array of two elements, the first a
number, for ever the same (docs/stored-format.md).  What is of a class has an array, too, for its content, so that a
version that does not know its number cannot read something else.
"""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import cbor2

from dataflow.typed_keys import (
    EnumKind,
    RecordKind,
    TypedKey,
    kind_at,
    kind_of,
    time_of_us,
    time_us,
    timedelta_us,
)
from windowing.timestamps import to_datetime, to_timestamp_us

_TUPLE, _DATETIME, _DATE, _DECIMAL, _UUID, _TIME, _TIMEDELTA, _MEMBER, _RECORD = range(9)


def encoded_form(canonical: Any) -> bytes:
    """The bytes of a canonical key.

    Args:
        canonical: the key; not a `TypedKey`, but the value of one.
    """
    return cbor2.dumps(_form(canonical), canonical=True)


def key_of_form(encoded: bytes) -> Any:
    """The inverse of `encoded_form`; a `TypedKey` if anything in it is of a class.

    Raises:
        PipelineError: a class in it is not there.
    """
    of_classes: list[Any] = []
    value = _restored(cbor2.loads(encoded), of_classes)
    return TypedKey(encoded, value) if of_classes else value


def _form(part: Any) -> Any:
    kind = type(part)
    if kind is tuple:
        return [_TUPLE, [_form(item) for item in part]]
    if kind is datetime:
        return [_DATETIME, to_timestamp_us(part)]
    if kind is date:
        return [_DATE, part.toordinal()]
    if kind in _PLAIN:
        return part
    if kind is Decimal:
        return [_DECIMAL, [str(part)]]
    if kind is UUID:
        return [_UUID, [part.bytes]]
    if kind is time:
        return [_TIME, [time_us(part)]]
    if kind is timedelta:
        return [_TIMEDELTA, [timedelta_us(part)]]
    of_class = kind_of(kind)
    if isinstance(of_class, EnumKind):
        return [_MEMBER, [*of_class.path, of_class.content(part)]]
    assert isinstance(of_class, RecordKind)
    return [_RECORD, [*of_class.path, *map(_form, of_class.take(part))]]


_PLAIN = frozenset((str, int, float, bytes, type(None)))


def _restored(part: Any, of_classes: list[Any]) -> Any:
    if not isinstance(part, list):
        return part
    tag, body = part
    if tag == _TUPLE:
        return tuple([_restored(item, of_classes) for item in body])
    if tag == _DATE:
        return date.fromordinal(body)
    if tag == _DATETIME:
        return to_datetime(body)
    of_classes.append(tag)
    if tag == _RECORD:
        module, name, *fields = body
        return kind_at((module, name)).make([_restored(field, of_classes) for field in fields])
    if tag == _MEMBER:
        module, name, content = body
        return kind_at((module, name)).member(content)
    return _ATOMS[tag](body[0])


_ATOMS: dict[int, Any] = {
    _DECIMAL: Decimal,
    _UUID: lambda content: UUID(bytes=content),
    _TIME: time_of_us,
    _TIMEDELTA: lambda content: timedelta(microseconds=content),
}
