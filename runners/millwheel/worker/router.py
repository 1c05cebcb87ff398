"""Router: which key range of a grouping a partial belongs to, and whether it gets there by a channel."""

from collections.abc import Mapping, Sequence
from functools import partial

from dataflow.graph import SideInputs, StatefulParDo
from runners.core.ground.key_codec import KeyCodec
from runners.core.partials.partial import Partial
from runners.core.partials.parts import by_label
from runners.core.partials.plain_partials import size_of_plain_inputs
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.worker.handed_on import HandedOn
from runners.millwheel.worker.key_places import KeyPlaces
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.sizes import Pieces, of_key
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.stored.partials import encode_partials

_OPTIONS = WorkerOptions()
#: Plain values that have more bytes than this are sent in pieces, as other values are.
_PLAIN_BYTES_MAX = 1 << 20


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
        self._places: Mapping[str, KeyPlaces[RangeId]] = {}
        #: Those whose partials are lists of elements.
        self._of_inputs = frozenset(
            stage.name
            for stage in plan.groupings()
            if isinstance(stage.root.operation, StatefulParDo | SideInputs)
        )
        #: The groupings that partials are handed on to without a channel; set by the worker in each round.
        self.handed_on_to = frozenset[str]()
        #: The number of the routing that it follows; 0 before the first.
        self.number = 0

    def follow(self, routing: Routing) -> None:
        """Divide by this routing from here on, unless it is older than the one in use."""
        if routing.number > self.number:
            self.number, maps = routing.number, routing.maps()
            gaps = [name for name, ranges in maps.items() if not ranges.is_whole]
            assert not gaps, f"some keys of {gaps} have no range, or two: {routing}"
            self._places = {
                name: KeyPlaces(
                    ranges, self._codecs[name], {each: each for each in ranges.range_ids}
                )
                for name, ranges in maps.items()
            }

    def outgoing(
        self, sender: OwnedRange, groups: Mapping[str, Sequence[Partial]], *, hold_us: int
    ) -> tuple[Sequence[Checkpoint], Sequence[HandedOn]]:
        """Divide partials into those sent on channels and those handed on.  Raises as `payloads` does.

        Args:
            sender: the range that has made it.
            groups: partials by the name of their grouping.
            hold_us: as of `OwnedRange.send`.
        """
        if self.handed_on_to.isdisjoint(groups):
            return sender.send(self.payloads(groups), hold_us=hold_us), ()
        sent, handed_on = dict[str, Sequence[Partial]](), list[HandedOn]()
        for name, partials in groups.items():
            if name not in self.handed_on_to:
                sent[name] = partials
                continue
            size = size_of_plain_inputs(partials) if name in self._of_inputs else None
            if size is not None and size <= _PLAIN_BYTES_MAX:
                handed_on.append(HandedOn(name, sender, hold_us, size, partials))
            elif payloads := self.payloads({name: partials}):
                size = sum(len(blob) for _, blob in payloads)
                handed_on.append(HandedOn(name, sender, hold_us, size, None, payloads))
        return sender.send(self.payloads(sent), hold_us=hold_us) if sent else (), handed_on

    def send(self, handed_on: HandedOn) -> Sequence[Checkpoint]:
        """Send on channels what was handed on and is not taken in.  Raises as `payloads` does."""
        payloads = handed_on.payloads
        if handed_on.partials is not None:
            payloads = self.payloads({handed_on.receiver: handed_on.partials})
        return handed_on.sender.send(payloads, hold_us=handed_on.hold_us)

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
