"""Router: which key range of a grouping a partial belongs to."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from dataflow.serialization import dumps
from runners.core.key_codec import KeyCodec
from runners.core.partials import Partial
from runners.core.plan import ExecutionPlan
from runners.millwheel.ids import RangeId
from runners.millwheel.key_range import range_index


class Router:
    """Divides partials among the ranges of the groupings.

    Args:
        plan: the pipeline.
        range_counts: how many key ranges each grouping has.
    """

    def __init__(self, plan: ExecutionPlan, range_counts: Mapping[str, int]) -> None:
        self._range_counts = dict(range_counts)
        self._codecs = {stage.name: KeyCodec(str(stage.root)) for stage in plan.groupings()}

    def payloads(self, groups: Mapping[str, Iterable[Partial]]) -> Mapping[RangeId, bytes]:
        """One payload for each range that is sent anything.

        Raises:
            KeyEncodingError: a key has no deterministic encoding; names the grouping.
        """
        divided: dict[RangeId, list[Partial]] = defaultdict(list)
        for name, partials in groups.items():
            count, encode = self._range_counts[name], self._codecs[name].encode
            ranges = [RangeId(name, index) for index in range(count)]
            for partial in partials:
                divided[ranges[range_index(encode(partial[0]).hash, count)]].append(partial)
        return {range_id: dumps(partials) for range_id, partials in divided.items()}
