"""Canonical keys: the one of several equal keys that is seen on all runners, before and after a crash.

A key is made canonical where a grouping first looks at it, and is what its encoding decodes to
(`dataflow.coders.decode_key`), in value and in type:

* ``True``, ``1.0`` and ``1`` become ``1``; scalars of numpy become the Python values they stand for.
* An instant becomes one in UTC, whatever zone it was given in, and two are one key if they are the same moment.  An
  hour that comes twice is two keys, though Python calls both readings of its clock equal (PEP 495).
* A key of a class (an enum, a named tuple, a frozen dataclass, a `Decimal`, a `Window`) keeps its class, and is one key
  only with keys of that class (`dataflow.typed_keys`): ``Decimal("1.00")`` is one key with ``Decimal(1)``, not with 1.
* Other types are refused, with what to do.
"""

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from itertools import chain
from operator import is_
from typing import Any

import numpy as np

from dataflow.errors import KeyEncodingError
from dataflow.key_forms import encoded_form
from dataflow.typed_keys import ATOMS, EnumKind, NotAKeyError, RecordKind, TypedKey, kind_of
from windowing.errors import TimeError
from windowing.timestamps import to_datetime, to_timestamp_us

#: Keys of these types are canonical as they are; not those of their subclasses.
PLAIN_TYPES = frozenset((str, int, bytes, type(None), date))

_OF_PLAIN_TYPES = PLAIN_TYPES | {tuple}
_TEXT_MAX = 500
#: Of keys of one of these types those that are equal are one key.
_EXACT = PLAIN_TYPES.union(ATOMS, (bool, float))
_EXACT_BASES = (Enum, np.generic)
_KEY_TYPES = (
    "None, bool, int, float, str, bytes, Decimal, UUID, date, time, timedelta, datetime with a time zone, windows, "
    "members of enums, and named tuples, frozen dataclasses, frozen attrs classes and tuples of these"
)
#: The kinds of numpy's scalars that stand for such values: bool, int, float, bytes, str.
_NUMPY_KINDS = frozenset("biufSU")


def canonical_key(key: Any) -> Any:
    """The key that is emitted and stored for all keys that equal this one.

    Raises:
        KeyEncodingError: there is none, because of the type of the key, or of something in it; the hint has the remedy.
    """
    kind = type(key)
    if kind in PLAIN_TYPES or kind is TypedKey:
        return key
    of_classes: list[Any] = []
    canonical = _canonical(key, key, of_classes)
    return TypedKey(encoded_form(canonical), canonical) if of_classes else canonical


class CanonicalKeys:
    """Canonical keys by themselves: ``keys[key]`` is the canonical one of any key.  Raises as `canonical_key`.

    Keys are remembered by their types, so those that Python calls equal and that are not the same key cannot meet here.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        types = _exact_types(key)
        if types is None:
            return canonical_key(key)
        known = self._known.get((types, key))
        if known is None:
            known = self._known[types, key] = canonical_key(key)
        return known


def _exact_types(key: Any) -> Any:
    """The types in a key, if equal keys of these types are one; None if that is uncertain, or not worth a look."""
    kind = type(key)
    if kind in _EXACT or issubclass(kind, _EXACT_BASES):
        return kind
    if not isinstance(key, tuple):
        return None
    kinds = tuple(map(type, key))
    if _EXACT.issuperset(kinds):
        return kind, kinds
    is_exact = all(each in _EXACT or issubclass(each, _EXACT_BASES) for each in kinds)
    return (kind, kinds) if is_exact else None


def are_canonical(keys: Collection[Any]) -> bool:
    """Whether keys are canonical for certain, without a call for each; False means "look closer"."""
    kinds = set(map(type, keys))
    if kinds <= PLAIN_TYPES:
        return True
    if not kinds <= _OF_PLAIN_TYPES:
        return False
    tuples = keys if len(kinds) == 1 else [key for key in keys if type(key) is tuple]
    return PLAIN_TYPES.issuperset(map(type, chain.from_iterable(tuples)))


def refusal(key: Any, why: str, convert: str = "e.g. to a tuple of its fields") -> KeyEncodingError:
    """The error about what cannot be a key; ``convert`` is the hint how to make one of it.

    Args:
        key: that cannot be encoded.
        why: what is wrong with it.
        convert: how to make a key of it, as part of the hint.
    """
    return KeyEncodingError(
        f"{key_text(key)} cannot be a key",
        detail=why,
        hint=f"keys are made of {_KEY_TYPES}; convert yours, {convert}",
    )


def key_text(key: Any) -> str:
    """The beginning of a key in an error: Python does not print every integer."""
    try:
        text = repr(key)
    except Exception as error:  # noqa: BLE001 - whatever a user's class raises, this is shown beside another error
        bits = f" of {key.bit_length():,} bits" if isinstance(key, int) else ""
        text = f"<{type(key).__qualname__}{bits}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _canonical(part: Any, key: Any, of_classes: list[Any]) -> Any:
    """A canonical key, or part of one; what is of a class is appended to ``of_classes``."""
    kind = type(part)
    if kind in PLAIN_TYPES:
        return part
    if kind is tuple:
        if PLAIN_TYPES.issuperset(map(type, part)):
            return part
        return tuple([_canonical(item, key, of_classes) for item in part])
    if kind is bool:
        return int(part)
    if kind is float:
        if part != part:  # noqa: PLR0124 - NaN is the only value unlike itself
            raise refusal(key, "NaN is not equal to itself, so it cannot be a key")
        return int(part) if part.is_integer() else part
    if isinstance(part, datetime):
        return _instant(part, key)
    if isinstance(part, date):
        return _exactly(date.fromordinal(part.toordinal()), part, key)
    if isinstance(part, np.generic) and part.dtype.kind in _NUMPY_KINDS:
        item = part.item()
        if type(item) is not kind:
            return _canonical(item, key, of_classes)
    return _of_class(part, key, of_classes)


def _of_class(part: Any, key: Any, of_classes: list[Any]) -> Any:
    cls = type(part)
    try:
        if cls in ATOMS:
            of_classes.append(part)
            return ATOMS[cls](part)
        kind = kind_of(cls)
    except NotAKeyError as error:
        raise refusal(key, error.why, error.convert) from None
    if kind is None:
        name = f"{cls.__module__}.{cls.__qualname__}"
        raise refusal(key, f"{name} has no deterministic encoding", _conversion(part))
    of_classes.append(part)
    if isinstance(kind, EnumKind):
        return part
    return _canonical_record(kind, part, key, of_classes)


def _canonical_record(kind: RecordKind, part: Any, key: Any, of_classes: list[Any]) -> Any:
    fields = kind.take(part)
    if isinstance(part, tuple) and len(fields) != len(kind.cls._fields):  # type: ignore[attr-defined]
        raise refusal(key, f"a {kind.cls.__qualname__} has more than its fields", "e.g. tuple(key)")
    canonical = [_canonical(field, key, of_classes) for field in fields]
    if all(map(is_, canonical, fields)):
        return part
    return kind.make(canonical)


def _instant(part: datetime, key: Any) -> datetime:
    if type(part) is datetime and part.tzinfo is UTC and not part.fold:
        return part
    try:
        canonical = to_datetime(to_timestamp_us(part))
    except TimeError as error:
        raise refusal(key, error.fact) from None
    except ValueError as error:
        # pandas' NaT is a datetime, too.
        raise refusal(key, f"it is no instant: {error}") from None
    # In the part's own zone, where an hour comes twice, nothing would equal it.
    return canonical if type(part) is datetime else _exactly(canonical, part.astimezone(UTC), key)


def _exactly(canonical: Any, part: Any, key: Any) -> Any:
    if canonical == part:
        return canonical
    kind = type(part)
    raise refusal(
        key,
        f"{kind.__module__}.{kind.__qualname__} has more than a {canonical!r}, which is all that a key keeps",
        "e.g. key.floor('us') of a pandas.Timestamp, or its value, an int of nanoseconds",
    )


#: How to make a key of a value of some type; the first that it is an instance of.
_CONVERSIONS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (timedelta, "e.g. key // timedelta(microseconds=1)"),
    ((set, frozenset), "e.g. tuple(sorted(key))"),
    (str, "e.g. str.__str__(key)"),
    (bytes, "e.g. bytes(key)"),
    (tuple, "e.g. tuple(key)"),
    ((np.datetime64, np.timedelta64), "e.g. int(key.astype('int64'))"),
    (int, "e.g. int(key)"),
    (float, "e.g. float(key)"),
)


def _conversion(part: Any) -> str:
    for kinds, conversion in _CONVERSIONS:
        if isinstance(part, kinds):
            return conversion
    return "e.g. to a tuple of its fields"
