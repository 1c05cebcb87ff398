"""Places of the keys of a map: a number of 64 bits that is the same in every process, as Python's hashes are not.

**Invariant:** of two keys that Python calls equal both have the same place, or one of them has none.  So it follows
what makes keys equal in a dict, and not what makes them one key of a grouping (`dataflow.canonical_keys`): 1, True
and Decimal(1) are at one place, and a named tuple is where the plain one is.

Of classes that say themselves what they equal nothing is known: these have no place.
"""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from hashlib import blake2b
from typing import Any
from uuid import UUID

import numpy as np

from dataflow.typed_keys import EnumKind, NotAKeyError, kind_of, time_us, timedelta_us

_PART_BYTES = 16
_PLACE_BYTES = 8
#: Classes whose subclasses equal them too, unless they say otherwise; with what equality is there.
_EQUALITIES: dict[type, Any] = {
    base: base.__eq__ for base in (int, float, Decimal, Fraction, complex, str, bytes, tuple)
}
#: Scalars of numpy that equal the Python values they stand for: bool, int, float, bytes, str.
_NUMPY_KINDS = frozenset("biufSU")
_IDENTITY: Any = object.__eq__


class _NoPlaceError(Exception):
    """It is not known what equals a value."""


def place_of(key: Any) -> int | None:
    """The place of a key; None if it is of a class of which it is not known what equals it.

    Args:
        key: can be hashed.
    """
    try:
        encoded = _encoded(key)
    except _NoPlaceError:
        return None
    return int.from_bytes(blake2b(encoded, digest_size=_PLACE_BYTES).digest(), "big")


def _encoded(key: Any) -> bytes:
    kind = type(key)
    if kind is str:
        return b"s" + str.encode(key, errors="surrogatepass")
    if kind is int:
        # Python's hash of a number is that of every number that equals it, and the same in every process.
        return b"i%d" % hash(key)
    if key is None:
        return b"-"
    if isinstance(key, np.generic) and key.dtype.kind in _NUMPY_KINDS:
        item = key.item()
        if type(item) is not kind:
            return _encoded(item)
    for base, equality in _EQUALITIES.items():
        if isinstance(key, base):
            if kind.__eq__ is not equality:
                raise _NoPlaceError
            return _of_base(base, key)
    if kind is frozenset:
        return b"f" + b"".join(sorted(map(_digest, key)))
    return _of_time(key) if isinstance(key, date | time | timedelta) else _of_class(key)


def _of_base(base: type, key: Any) -> bytes:
    if base is str:
        return b"s" + str.encode(key, errors="surrogatepass")
    if base is bytes:
        return b"".join((b"b", key))
    if base is tuple:
        return b"t" + b"".join(map(_digest, tuple.__iter__(key)))
    # NaN equals nothing, and has a hash by where it is in memory.
    return b"i%d" % hash(key) if key == key else b"n"  # noqa: PLR0124 - false of NaN alone


def _of_time(key: Any) -> bytes:
    kind = type(key)
    if kind is datetime:
        plain = key.replace(fold=0)
        if key.tzinfo is None:
            return f"N{plain.isoformat()}".encode()
        try:
            return f"D{plain.astimezone(UTC).isoformat()}".encode()
        except OverflowError:
            return b"D"
    if kind is date:
        return b"d%d" % key.toordinal()
    if kind is timedelta:
        return b"l%d" % timedelta_us(key)
    if kind is time and key.tzinfo is None:
        return b"T%d" % time_us(key)
    raise _NoPlaceError


def _of_class(key: Any) -> bytes:
    kind = type(key)
    if kind is UUID:
        return b"".join((b"u", key.bytes))
    if isinstance(key, Enum):
        if kind.__eq__ is not _IDENTITY:
            raise _NoPlaceError
        content = key.value if isinstance(key, Flag) else key.name
        return f"e{kind.__module__}.{kind.__qualname__}.{content}".encode()
    try:
        found = kind_of(kind)
    except NotAKeyError:
        raise _NoPlaceError from None
    if found is None or isinstance(found, EnumKind):
        raise _NoPlaceError
    return repr(found.path).encode() + b"".join(map(_digest, found.take(key)))


def _digest(part: Any) -> bytes:
    return blake2b(_encoded(part), digest_size=_PART_BYTES).digest()
