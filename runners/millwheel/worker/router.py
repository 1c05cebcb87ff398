"""Router: which key range of a grouping a partial belongs to."""

from collections.abc import Mapping, Sequence
from functools import partial

from runners.core.ground.key_codec import KeyCodec
from runners.core.partials.partial import Partial
from runners.core.partials.parts import by_label
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.key_places import KeyPlaces
from runners.millwheel.worker.sizes import Pieces, of_key
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.stored.partials import encode_partials

_OPTIONS = WorkerOptions()


class Router:
    """Divides partials among the ranges of the groupings, by the last routing that the master sent.

    Args:
        plan: the pipeline.
        options: how large what is sent may be.
    """

    def __init__(self, plan: ExecutionPlan, options: WorkerOptions = _OPTIONS) -> None:
        self._codecs = {stage.name: KeyCodec(str(stage.root)) for stage in plan.groupings()}
        self._pieces = {
            stage.name: Pieces(
                options.value_bytes_max, partial(_not_sent, str(stage.root)), options.steps
            )
            for stage in plan.groupings()
        }
        self._places: Mapping[str, KeyPlaces] = {}
        #: The number of the routing that it follows; 0 before the first.
        self.number = 0

    def follow(self, routing: Routing) -> None:
        """Divide by this routing from here on, unless it is older than the one in use."""
        if routing.number > self.number:
            self.number, maps = routing.number, routing.maps()
            gaps = [name for name, ranges in maps.items() if not ranges.is_whole]
            assert not gaps, f"some keys of {gaps} have no range, or two: {routing}"
            self._places = {
                name: KeyPlaces(ranges, self._codecs[name]) for name, ranges in maps.items()
            }

    def payloads(self, groups: Mapping[str, Sequence[Partial]]) -> list[tuple[RangeId, bytes]]:
        """The payloads for each range, in pieces of a bounded size and in their order.

        Raises:
            KeyEncodingError: a key has no deterministic encoding; names the grouping.
            TransformError: what there is for a key and window is too large to be sent; likewise.
        """
        payloads: list[tuple[RangeId, bytes]] = []
        for name, partials in groups.items():
            for range_id, part in by_label(partials, self._places[name].__getitem__).items():
                assert range_id is not None  # or the map would not be whole
                payloads += [
                    (range_id, blob) for _, blob in self._pieces[name].of(part, encode_partials)
                ]
        return payloads


def _not_sent(where: str, partial: Partial) -> str:
    return of_key(where, "be sent a value", partial[0])
