"""Keys as bytes: one deterministic encoding and one stable 64-bit hash, the same on every machine and in every run.

The encoding is canonical CBOR (RFC 8949, section 4.2) of the few types that have one.
Of keys that are one key (``1``, ``1.0``, ``True``; see `dataflow.canonical_keys`) it encodes the canonical one, so
grouping in memory and routing by bytes agree.
"""

from datetime import date, datetime
from hashlib import blake2b
from typing import Any

import cbor2

from dataflow.canonical_keys import canonical_key, refusal
from dataflow.errors import KeyEncodingError
from windowing.timestamps import to_datetime, to_timestamp_us

#: A store finds state by key, and no entry of a Postgres index has more than 2,704 bytes.
KEY_BYTES_MAX = 2_000

# Most keys are short texts: of those CBOR needs one byte more, which has their length (RFC 8949, section 3).
_TEXT_HEADS = [bytes([0x60 + length]) for length in range(24)]


def encode_key(key: Any) -> bytes:
    """The canonical bytes of a key.

    Raises:
        KeyEncodingError: the key's type has no deterministic encoding, and the message names the type; or it has more
            than `KEY_BYTES_MAX` bytes.
    """
    try:
        if type(key) is str:
            text = key.encode()
            if len(text) < len(_TEXT_HEADS):
                return _TEXT_HEADS[len(text)] + text
            encoded = cbor2.dumps(key)
        elif type(key) is bytes:
            encoded = cbor2.dumps(key)
        else:
            encoded = cbor2.dumps(_tagged(canonical_key(key)), canonical=True)
    except UnicodeEncodeError:
        raise refusal(key, "it contains a lone surrogate and so is not Unicode text") from None
    if len(encoded) > KEY_BYTES_MAX:
        raise KeyEncodingError(
            f"a key of {len(encoded):,} bytes is too long",
            detail=f"it may have {KEY_BYTES_MAX:,}; it begins with {repr(key)[:80]}",
            hint="put what is long into the value, and use its hash as the key, e.g. hashlib.sha256",
        )
    return encoded


def decode_key(encoded: bytes) -> Any:
    """The canonical key of the one that was encoded."""
    return _restored(cbor2.loads(encoded))


def hash_key(encoded: bytes) -> int:
    """Unsigned 64-bit hash of an encoded key; decides which key range owns it, so it never changes between releases."""
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")


# Tags of our own inside a two-element array; a plain tuple is tagged too, so the two cannot be confused.
_TUPLE, _DATETIME, _DATE = 0, 1, 2


def _tagged(part: Any) -> Any:
    """Make a canonical key, or a part of one, a value that CBOR encodes: tuples and times become tagged lists."""
    kind = type(part)
    if kind is tuple:
        return [_TUPLE, [_tagged(item) for item in part]]
    if kind is datetime:
        return [_DATETIME, to_timestamp_us(part)]
    return [_DATE, part.toordinal()] if kind is date else part


def _restored(part: Any) -> Any:
    if not isinstance(part, list):
        return part
    tag, body = part
    if tag == _TUPLE:
        return tuple(_restored(item) for item in body)
    if tag == _DATE:
        return date.fromordinal(body)
    return to_datetime(body)
