"""KeyCodec: encodes keys as bytes and hashes; caches recent keys, as a bundle has few keys and many records."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow.canonical_keys import canonical_key
from dataflow.coders import encode_key, encode_keys, hash_key, hash_keys
from dataflow.errors import KeyEncodingError

#: With more keys than this the cache is cleared.
KEYS_MAX = 200_000


class EncodedKey(NamedTuple):
    """A key's canonical bytes and their unsigned 64-bit hash."""

    encoded: bytes
    hash: int


class KeyCodec:
    """Encodes the keys of one grouping.

    Args:
        where: names the grouping in errors.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._known: dict[Any, EncodedKey] = {}
        self._hashes: dict[Any, int] = {}

    def encode(self, key: Any) -> EncodedKey:
        """The key's bytes and hash.

        Raises:
            KeyEncodingError: the key has no deterministic encoding; names the transform.
        """
        known = self._known.get(key)
        if known is None:
            encoded = self._encoded(key)
            known = EncodedKey(encoded, hash_key(encoded))
            if len(self._known) >= KEYS_MAX:
                self._known.clear()
            # By the canonical key: the two readings of an hour that comes twice are equal, and not one key.
            self._known[canonical_key(key)] = known
        return known

    def hash(self, key: Any) -> int:
        """The key's hash alone, which takes half the time.  Raises what `encode` raises."""
        known = self._hashes.get(key)
        if known is None:
            known = hash_key(self._encoded(key))
            if len(self._hashes) >= KEYS_MAX:
                self._hashes.clear()
            self._hashes[canonical_key(key)] = known
        return known

    def hashes(self, keys: Sequence[Any]) -> NDArray[np.uint64]:
        """The hashes of canonical keys, in less time than one by one.  Raises what `encode` raises.

        Args:
            keys: each of them once; not kept, as a bundle's are.
        """
        try:
            return hash_keys(encode_keys(keys))
        except KeyEncodingError as error:
            raise error.located(self._where) from None

    def _encoded(self, key: Any) -> bytes:
        try:
            return encode_key(key)
        except KeyEncodingError as error:
            raise error.located(self._where) from None
