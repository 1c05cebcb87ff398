"""Digests of elements: numbers that are the same wherever and whenever an element is worked on.

What has to be chosen, and by nothing that a pipeline knows (which of several equals, which elements of a sample, which
shard of a key), is chosen by these: so it is the same after a retry, in any order of arrival, and where an element is
retracted.

**Invariant:** equal elements have the same digest if they are made of keys' types, lists, tuples, sets and mappings, or
are objects of one class with equal fields.  It does not depend on the order of a set, nor on which parts are the same
object, as a pickle does: what has been stored and read again keeps its digest.
"""

import copyreg
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType
from typing import Any

from dataflow.canonical_keys import canonical_key
from dataflow.coders import encode_key
from dataflow.errors import KeyEncodingError
from dataflow.typed_keys import TypedKey

_DIGEST_BYTES = 8
#: Of `object.__reduce_ex__`: the newest that gives plain values only.
_REDUCE_PROTOCOL = 4


def element_digest(element: Any, seed: int = 0) -> int:
    """A number of 64 bits, unsigned, that looks like chance.

    Args:
        element: anything that can be stored.
        seed: gives other digests.

    Raises:
        TypeError: the element cannot be pickled.
    """
    salt = seed.to_bytes(16, "big", signed=True)
    return int.from_bytes(
        blake2b(_encoded(element), digest_size=_DIGEST_BYTES, salt=salt).digest(), "big"
    )


def _encoded(element: Any) -> bytes:
    if isinstance(element, tuple) and type(element) is not tuple:
        # A named tuple equals a plain one.
        return _encoded(tuple(element))
    try:
        # A key of a class counts here as what it is made of.
        if type(canonical_key(element)) is not TypedKey:
            return b"k" + encode_key(element)
    except (KeyEncodingError, ValueError):
        pass  # ValueError: of an integer of so many digits that Python does not print it
    # What is too long for a key, or no text in Unicode; and subclasses, which equal what they are made of.
    if isinstance(element, str):
        return b"u" + str.encode(element, errors="surrogatepass")
    if isinstance(element, bytes):
        return b"b" + element
    if isinstance(element, int):
        return b"i%x" % element if type(element) is int else _encoded(int(element))
    if isinstance(element, float):
        return _encoded(float(element)) if element == element else b"n"  # noqa: PLR0124 - false of NaN alone
    if isinstance(element, tuple | list):
        return _joined(b"t" if isinstance(element, tuple) else b"l", map(_encoded, element))
    if isinstance(element, AbstractSet):
        return _joined(b"s", sorted(map(_encoded, element)))
    if isinstance(element, Mapping):
        pairs = (_joined(b"p", map(_encoded, each)) for each in element.items())
        return _joined(b"m", sorted(pairs))
    if isinstance(element, type | FunctionType | BuiltinFunctionType):
        return f"f{element.__module__}.{element.__qualname__}".encode()
    return _reduced(element)


def _reduced(element: Any) -> bytes:
    """An object as pickle takes it apart."""
    reduce = copyreg.dispatch_table.get(type(element))
    reduced = reduce(element) if reduce else element.__reduce_ex__(_REDUCE_PROTOCOL)
    if isinstance(reduced, str):
        return b"g" + reduced.encode()
    make, values, *more = reduced
    items = (list(each) if isinstance(each, Iterator) else each for each in more)
    return _joined(b"o", map(_encoded, (make, values, *items)))


def _joined(kind: bytes, parts: Any) -> bytes:
    """The parts, each by its digest, which has a fixed length."""
    return kind + b"".join(blake2b(each, digest_size=16).digest() for each in parts)
