"""KeyPlaces: which key range each key is in, looked up once for as long as the ranges are the same."""

from collections.abc import Mapping
from typing import Any, TypeVar

from dataflow.canonical_keys import canonical_key
from runners.core.ground.key_codec import KEYS_MAX, KeyCodec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyMap

PlaceT = TypeVar("PlaceT")


class KeyPlaces(dict[Any, PlaceT | None]):
    """``places[key]`` is the range of any key; None if it is in none of them.  Raises what `KeyCodec.encode` raises.

    Keeps at most `KEYS_MAX` keys.

    Args:
        keys: the ranges.
        codec: of their grouping.
        places: what stands for each of the ranges.
    """

    def __init__(self, keys: KeyMap, codec: KeyCodec, places: Mapping[RangeId, PlaceT]) -> None:
        super().__init__()
        self._keys, self._codec, self._places = keys, codec, places

    def __missing__(self, key: Any) -> PlaceT | None:
        range_id = self._keys.find(self._codec.encode(key).hash)
        if range_id is None:
            return None
        if len(self) >= KEYS_MAX:
            self.clear()
        found = self[canonical_key(key)] = self._places[range_id]
        return found
