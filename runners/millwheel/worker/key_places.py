"""KeyPlaces: which key range each key is in, looked up once for as long as the ranges are the same."""

from typing import Any

from dataflow.canonical_keys import canonical_key
from runners.core.ground.key_codec import KEYS_MAX, KeyCodec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyMap


class KeyPlaces(dict[Any, RangeId | None]):
    """``places[key]`` is the range of any key; None if it is in none of them.  Raises what `KeyCodec.encode` raises.

    Keeps at most `KEYS_MAX` keys.

    Args:
        keys: the ranges.
        codec: of their grouping.
    """

    def __init__(self, keys: KeyMap, codec: KeyCodec) -> None:
        super().__init__()
        self._keys, self._codec = keys, codec

    def __missing__(self, key: Any) -> RangeId | None:
        found = self._keys.find(self._codec.encode(key).hash)
        if found is not None:
            if len(self) >= KEYS_MAX:
                self.clear()
            self[canonical_key(key)] = found
        return found
