"""Router: which key range of a grouping a partial belongs to."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dataflow.serialization import dumps
from runners.core.key_codec import KeyCodec
from runners.core.partial_parts import by_label
from runners.core.partials import Partial
from runners.core.plan import ExecutionPlan
from runners.millwheel.ids import RangeId
from runners.millwheel.key_range import KeyMap
from runners.millwheel.shapes import Routing


class Router:
    """Divides partials among the ranges of the groupings, by the last routing that it was told to follow.

    Args:
        plan: the pipeline.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self._codecs = {stage.name: KeyCodec(str(stage.root)) for stage in plan.groupings()}
        self._maps: Mapping[str, KeyMap] = {}
        #: That of the routing that it follows; 0 before the first.
        self.number = 0

    def follow(self, routing: Routing) -> None:
        """Divide by this from here on, unless it knows a newer one."""
        if routing.number > self.number:
            self.number, self._maps = routing.number, routing.maps()
            gaps = [name for name, ranges in self._maps.items() if not ranges.is_whole]
            assert not gaps, f"some keys of {gaps} have no range, or two: {routing}"

    def payloads(self, groups: Mapping[str, Sequence[Partial]]) -> Mapping[RangeId, bytes]:
        """One payload for each range that is sent anything.

        Raises:
            KeyEncodingError: a key has no deterministic encoding; names the grouping.
        """
        payloads: dict[RangeId, bytes] = {}
        for name, partials in groups.items():
            range_of = partial(_range_of, self._maps[name], self._codecs[name])
            for range_id, part in by_label(partials, range_of).items():
                assert range_id is not None  # or the map would not be whole
                payloads[range_id] = dumps(part)
        return payloads


def _range_of(keys: KeyMap, codec: KeyCodec, key: Any) -> RangeId | None:
    return keys.find(codec.encode(key).hash)
