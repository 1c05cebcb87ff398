"""Digests of elements: numbers that are the same wherever and whenever an element is worked on.

What has to be chosen, and by nothing that a pipeline knows (which of several equals, which elements of a sample, which
shard of a key), is chosen by these: so it is the same after a retry, in any order of arrival, and where an element is
retracted.

**Invariant:** equal elements have the same digest, as far as they are made of keys' types, lists, tuples, sets and
mappings; others are digested by their pickles.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any

from dataflow.coders import encode_key
from dataflow.errors import KeyEncodingError
from dataflow.serialization import dumps

_DIGEST_BYTES = 8


def element_digest(element: Any, seed: int = 0) -> int:
    """A number of 64 bits, unsigned, that looks like chance.

    Args:
        element: anything that can be stored.
        seed: gives other digests.

    Raises:
        PipelineError: the element cannot be pickled.
    """
    salt = seed.to_bytes(16, "big", signed=True)
    return int.from_bytes(
        blake2b(_encoded(element), digest_size=_DIGEST_BYTES, salt=salt).digest(), "big"
    )


def _encoded(element: Any) -> bytes:
    try:
        return b"k" + encode_key(element)
    except KeyEncodingError:
        pass
    if isinstance(element, float):
        return b"n"  # NaN: any other float is a key
    if isinstance(element, tuple):
        # A named tuple equals a plain one.
        plain = tuple(element)
        return (
            _encoded(plain) if type(element) is not tuple else _joined(b"t", map(_encoded, plain))
        )
    if isinstance(element, list):
        return _joined(b"l", map(_encoded, element))
    if isinstance(element, AbstractSet):
        return _joined(b"s", sorted(map(_encoded, element)))
    if isinstance(element, Mapping):
        pairs = (_joined(b"p", map(_encoded, each)) for each in element.items())
        return _joined(b"m", sorted(pairs))
    return b"o" + dumps(element)


def _joined(kind: bytes, parts: Any) -> bytes:
    """The parts, each by its digest, which has a fixed length."""
    return kind + b"".join(blake2b(each, digest_size=16).digest() for each in parts)
