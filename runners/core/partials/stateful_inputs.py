"""StatefulInputs: what goes through the shuffle to a stateful DoFn.

A partial is ``(key, window, [(value, timestamp_us, pane, sign), ...], count)``: nothing is folded, and the elements of
a key and window stay in the order in which they arrived.
"""

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from dataflow.canonical_keys import PLAIN_TYPES, CanonicalKeys
from dataflow.errors import KeyEncodingError
from dataflow.graph import PipelineGraph, SideInputs, StatefulParDo, TransformNode
from runners.core.ground.bundle import Bundle
from runners.core.ground.pairs import refuse_other_than_pairs
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from windowing.pane import NO_FIRING, PaneInfo
from windowing.window import GLOBAL_WINDOW, Window

#: One element on its way to a stateful DoFn: value, event time, pane, sign.
Input = tuple[Any, int, PaneInfo, int]

_sign = itemgetter(3)


class StatefulInputs:
    """Builds the partials for one stateful DoFn; the counterpart of `Lifter`."""

    def __init__(self, node: TransformNode) -> None:
        self._node = node

    def lift(self, bundle: Bundle, *, watermark_us: int) -> list[Partial]:
        """Make partials of a bundle of ``(key, value)`` pairs, by canonical keys; late ones need not be kept apart.

        Args:
            bundle: the elements.
            watermark_us: not used; as for `Lifter.lift`.

        Raises:
            TransformError: an element is not a pair, or a key cannot be hashed.
            KeyEncodingError: something cannot be a key.
        """
        size = len(bundle)
        groups: dict[tuple[Any, Window], list[Input]] = defaultdict(list)
        keys = CanonicalKeys()
        refuse_other_than_pairs(self._node, bundle.values)
        columns = zip(
            bundle.values,
            bundle.windows or [GLOBAL_WINDOW] * size,
            bundle.timestamps_us,
            bundle.panes or [NO_FIRING] * size,
            bundle.signs or [+1] * size,
            strict=True,
        )
        try:
            for (key, value), window, timestamp_us, pane, sign in columns:
                one = key if type(key) in PLAIN_TYPES else keys[key]
                groups[one, window].append((value, timestamp_us, pane, sign))
        except KeyEncodingError as error:
            raise error.located(str(self._node)) from None
        return [(key, window, inputs, len(inputs)) for (key, window), inputs in groups.items()]

    @staticmethod
    def net_count(partial: Partial) -> int:
        """The number of elements in a partial, less those that it retracts."""
        return sum(map(_sign, partial[2]))

    def combined(self, partials: Iterable[Partial]) -> list[Partial]:
        """Merge the partials of several bundles, in their order, into fewer ones with the same elements."""
        groups: dict[tuple[Any, Window], list[Input]] = defaultdict(list)
        for key, window, inputs, _ in partials:
            groups[key, window].extend(inputs)
        return [(key, window, inputs, len(inputs)) for (key, window), inputs in groups.items()]


def lifter_of(graph: PipelineGraph, node: TransformNode) -> Lifter | StatefulInputs:
    """The object that makes the partials for a grouping of the graph.

    Args:
        graph: of the pipeline.
        node: the grouping or stateful DoFn.
    """
    if isinstance(node.operation, StatefulParDo | SideInputs):
        return StatefulInputs(node)
    return Lifter.of(graph, node)
