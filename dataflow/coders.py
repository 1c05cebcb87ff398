"""Keys as bytes: one deterministic encoding and one stable 64-bit hash, the same on every machine and in every run.

The encoding is canonical CBOR (RFC 8949, section 4.2) of the few types that have one.
Of keys that are one key (``1``, ``1.0``, ``True``; see `dataflow.canonical_keys`) it encodes the canonical one, so
grouping in memory and routing by bytes agree.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import cbor2
import numpy as np
from numpy.typing import NDArray

from dataflow.canonical_keys import canonical_key, key_text, refusal
from dataflow.errors import KeyEncodingError
from dataflow.key_forms import encoded_form, key_of_form
from dataflow.typed_keys import TypedKey

#: A store finds state by key, and no entry of a Postgres index has more than 2,704 bytes.
KEY_BYTES_MAX = 2_000

_HASH_BYTES = 8
#: Bytes of an encoded integer of 64 bits, at most.
_INT_BYTES_MAX = 9

_NO_BYTES = blake2b(digest_size=_HASH_BYTES)

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
            canonical = canonical_key(key)
            encoded = canonical.encoded if type(canonical) is TypedKey else encoded_form(canonical)
    except UnicodeEncodeError:
        raise refusal(key, "it contains a lone surrogate and so is not Unicode text") from None
    if len(encoded) > KEY_BYTES_MAX:
        raise KeyEncodingError(
            f"a key of {len(encoded):,} bytes is too long",
            detail=f"it may have {KEY_BYTES_MAX:,}; it begins with {key_text(key)[:80]}",
            hint="put what is long into the value, and use its hash as the key, e.g. hashlib.sha256",
        )
    return encoded


def encode_keys(keys: Sequence[Any]) -> list[bytes]:
    """The canonical bytes of several keys, in less time than one by one; raises what `encode_key` raises."""
    if set(map(type, keys)) == {int}:
        # No integer of 64 bits is too long, and a longer one is encoded by itself.
        encode = cbor2.dumps
        encoded = [encode(key) for key in keys]
        return encoded if max(map(len, encoded)) <= _INT_BYTES_MAX else list(map(encode_key, keys))
    return list(map(encode_key, keys))


def decode_key(encoded: bytes) -> Any:
    """The canonical key of the one that was encoded, as the core holds it (`dataflow.typed_keys`).

    Raises:
        PipelineError: it is of a class that is not there.
    """
    return key_of_form(encoded)


def hash_key(encoded: bytes) -> int:
    """Unsigned 64-bit hash of an encoded key; decides which key range owns it, so it never changes between releases."""
    return int.from_bytes(_digest(encoded), "big")


def hash_keys(encoded: Iterable[bytes]) -> NDArray[np.uint64]:
    """What `hash_key` makes of each of several encoded keys."""
    return np.frombuffer(b"".join(map(_digest, encoded)), ">u8").astype(np.uint64)


def _digest(encoded: bytes) -> bytes:
    # A copy of one that has the parameters takes two thirds of the time of making another.
    digest = _NO_BYTES.copy()
    digest.update(encoded)
    return digest.digest()
