"""Canonical keys: the one of several equal keys that is seen on all runners, before and after a crash.

A key is made canonical where a grouping first looks at it, and is what its encoding decodes to
(`dataflow.coders.decode_key`), in value and in type:

* ``True``, ``1.0`` and ``1`` become ``1``; scalars of numpy become the Python values they stand for.
* An instant becomes one in UTC, whatever zone it was given in, and two are one key if they are the same moment.  An
  hour that comes twice is two keys, though Python calls both readings of its clock equal (PEP 495).
* Other types are refused, also where they are equal to one of these (`Decimal`, enums, named tuples): what such a key
  can do beyond its value would be lost.
"""

import dataclasses
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any

import attrs
import numpy as np

from dataflow.errors import KeyEncodingError
from windowing.errors import TimeError
from windowing.timestamps import to_datetime, to_timestamp_us

#: Keys of these types are canonical as they are; not those of their subclasses.
PLAIN_TYPES = frozenset((str, int, bytes, type(None), date))

_OF_PLAIN_TYPES = PLAIN_TYPES | {tuple}
_KEY_TYPES = (
    "None, bool, int, float, str, bytes, date, datetime with a time zone, and tuples of these"
)
#: The kinds of numpy's scalars that stand for such values: bool, int, float, bytes, str.
_NUMPY_KINDS = frozenset("biufSU")


def canonical_key(key: Any) -> Any:
    """The key that is emitted and stored for all keys that equal this one.

    Raises:
        KeyEncodingError: there is none, because of the type of the key, or of something in it; the hint has the remedy.
    """
    return key if type(key) in PLAIN_TYPES else _canonical(key, key)


class CanonicalKeys(dict[Any, Any]):
    """Canonical keys by themselves: ``keys[key]`` is the canonical one of any key.  Raises as `canonical_key`.

    It contains canonical keys alone, so keys that Python calls equal and that are not the same key cannot meet here.
    """

    def __missing__(self, key: Any) -> Any:
        canonical = canonical_key(key)
        # Another key that equals it may have come before.
        return self.setdefault(canonical, canonical)


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
        f"{key!r} cannot be a key",
        detail=why,
        hint=f"keys are made of {_KEY_TYPES}; convert yours, {convert}",
    )


def _canonical(part: Any, key: Any) -> Any:
    kind = type(part)
    if kind in PLAIN_TYPES:
        return part
    if kind is tuple:
        if PLAIN_TYPES.issuperset(map(type, part)):
            return part
        return tuple([_canonical(item, key) for item in part])
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
            return _canonical(item, key)
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise refusal(key, f"{name} has no deterministic encoding", _conversion(part))


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
    (Enum, "e.g. key.name or key.value"),
    (Decimal, "e.g. to an int of the smallest unit, or str(key.normalize())"),
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
    if type(part).__module__ == "uuid":
        return "e.g. str(key)"
    is_record: Callable[[Any], bool] = attrs.has
    if dataclasses.is_dataclass(part):
        return "e.g. dataclasses.astuple(key)"
    return "e.g. attrs.astuple(key)" if is_record(type(part)) else "e.g. to a tuple of its fields"
