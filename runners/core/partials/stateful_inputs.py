"""StatefulInputs: what goes through the shuffle to a stateful DoFn.

A partial is ``(key, window, [(value, timestamp_us, pane, sign), ...], count)``: nothing is folded, and the elements of
a key and window stay in the order in which they arrived.  Where windows merge, all elements of a key do, as windows
that differ may become one; and none is merged here, as each element merges its window when it is seen.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeVar

from dataflow.canonical_keys import PLAIN_TYPES, CanonicalKeys
from dataflow.element_digests import element_digest
from dataflow.errors import KeyEncodingError
from dataflow.graph import PipelineGraph, SideInputs, StatefulParDo, TransformNode
from runners.core.ground.bundle import Bundle
from runners.core.ground.pairs import refuse_other_than_pairs
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from windowing.pane import NO_FIRING, PaneInfo
from windowing.window import GLOBAL_WINDOW, Window

PlaceT = TypeVar("PlaceT")
#: One element on its way to a stateful DoFn: value, event time, pane, sign.
Input = tuple[Any, int, PaneInfo, int]

_sign = itemgetter(3)


def without_retracted(inputs: Iterable[Input]) -> list[Input]:
    """Elements that wait, without those that are retracted by others of them; in their order.

    A retraction stays whose element is not among them.

    Args:
        inputs: of one key or shard, in the order in which they came.
    """
    left: dict[int, Input] = {}
    there: dict[int, list[int]] = {}
    for number, each in enumerate(inputs):
        value, timestamp_us, _, sign = each
        same = there.setdefault(element_digest((timestamp_us, value)), [])
        found = next((other for other in same if left[other][0] == value), None)
        if sign < 0 and found is not None:
            same.remove(found)
            del left[found]
            continue
        if sign > 0:
            same.append(number)
        left[number] = each
    return list(left.values())


class StatefulInputs:
    """Builds the partials for one stateful DoFn; the counterpart of `Lifter`.

    Args:
        node: the transform.
        keeps_order_of_keys: whether elements of a key stay in order even if their windows differ.
    """

    def __init__(self, node: TransformNode, *, keeps_order_of_keys: bool = False) -> None:
        self._node, self._keeps_order_of_keys = node, keeps_order_of_keys

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
        keys = CanonicalKeys()
        refuse_other_than_pairs(self._node, bundle.values)
        try:
            ones = [key if type(key) in PLAIN_TYPES else keys[key] for key, _ in bundle.values]
        except KeyEncodingError as error:
            raise error.located(str(self._node)) from None
        inputs = zip(
            [value for _, value in bundle.values],
            bundle.timestamps_us,
            bundle.panes or repeat(NO_FIRING, size),
            bundle.signs or repeat(+1, size),
            strict=True,
        )
        windows = bundle.windows
        if self._keeps_order_of_keys:
            assigned = windows or repeat(GLOBAL_WINDOW, size)
            return _in_order(
                (key, window, [each])
                for key, window, each in zip(ones, assigned, inputs, strict=True)
            )
        if windows is None:
            return [
                (key, GLOBAL_WINDOW, found, len(found))
                for key, found in _grouped(ones, inputs).items()
            ]
        return _partials(_grouped(zip(ones, windows, strict=True), inputs))

    @staticmethod
    def net_count(partial: Partial) -> int:
        """The number of elements in a partial, less those that it retracts."""
        return sum(map(_sign, partial[2]))

    def combined(self, partials: Iterable[Partial]) -> list[Partial]:
        """Merge the partials of several bundles, in their order, into fewer ones with the same elements."""
        if self._keeps_order_of_keys:
            return _in_order((key, window, inputs) for key, window, inputs, _ in partials)
        groups: dict[tuple[Any, Window], list[Input]] = defaultdict(list)
        for key, window, inputs, _ in partials:
            groups[key, window].extend(inputs)
        return _partials(groups)


def _grouped(places: Iterable[PlaceT], inputs: Iterable[Input]) -> Mapping[PlaceT, list[Input]]:
    """The elements of each place, in their order."""
    groups: dict[PlaceT, list[Input]] = defaultdict(list)
    for place, each in zip(places, inputs, strict=True):
        groups[place].append(each)
    return groups


def _partials(groups: Mapping[tuple[Any, Window], list[Input]]) -> list[Partial]:
    return [(key, window, inputs, len(inputs)) for (key, window), inputs in groups.items()]


def _in_order(elements: Iterable[tuple[Any, Window, list[Input]]]) -> list[Partial]:
    """Partials in which all elements of a key are in order."""
    by_key: dict[Any, list[tuple[Window, list[Input]]]] = defaultdict(list)
    for key, window, inputs in elements:
        runs = by_key[key]
        if runs and runs[-1][0] == window:
            runs[-1][1].extend(inputs)
        else:
            runs.append((window, list(inputs)))
    return [
        (key, window, inputs, len(inputs))
        for key, runs in by_key.items()
        for window, inputs in runs
    ]


def lifter_of(graph: PipelineGraph, node: TransformNode) -> Lifter | StatefulInputs:
    """The object that makes the partials for a grouping of the graph.

    Args:
        graph: of the pipeline.
        node: the grouping or stateful DoFn.
    """
    if isinstance(node.operation, StatefulParDo):
        is_merging = graph.pcollections[node.inputs[0]].strategy.is_merging
        return StatefulInputs(node, keeps_order_of_keys=is_merging)
    if isinstance(node.operation, SideInputs):
        return StatefulInputs(node)
    return Lifter.of(graph, node)
