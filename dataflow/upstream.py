"""What a collection comes from: the transforms before it in a graph, and the windows that its elements are in."""

from collections.abc import Callable, Iterator
from typing import Any

from dataflow.graph import (
    AssignWindows,
    PCollectionNode,
    PipelineGraph,
    Read,
    SideInputs,
    TransformNode,
)
from windowing.global_windows import GlobalWindows
from windowing.window_fn import FrozenWindows, WindowFn


def nearest(graph: PipelineGraph, pcollection: int, kinds: Any) -> Iterator[TransformNode]:
    """Upstream of a collection, the first transforms on each way whose operation is of such a kind.

    Args:
        graph: of the pipeline.
        pcollection: the index of the collection in it.
        kinds: the classes of operations that are looked for.
    """
    return nearest_if(graph, pcollection, lambda node: isinstance(node.operation, kinds))


def nearest_if(
    graph: PipelineGraph, pcollection: int, is_one: Callable[[TransformNode], bool]
) -> Iterator[TransformNode]:
    """Upstream of a collection, the first transforms on each way of which something is true.

    Args:
        graph: of the pipeline.
        pcollection: the index of the collection in it.
        is_one: what is true of them.
    """
    ahead = [graph.producers[pcollection]]
    seen: set[str] = set()
    while ahead:
        node = ahead.pop()
        if node.label in seen:
            continue
        seen.add(node.label)
        if is_one(node):
            yield node
        else:
            # Side inputs have windows of their own, which are not those of the elements.
            inputs = node.inputs[:1] if isinstance(node.operation, SideInputs) else node.inputs
            ahead.extend(graph.producers[each] for each in inputs)


def windows_of(graph: PipelineGraph, pcollection: PCollectionNode) -> frozenset[WindowFn]:
    """The window functions that gave the elements of a collection their windows.

    Args:
        graph: of the pipeline.
        pcollection: the collection.
    """
    strategy = pcollection.strategy
    if not isinstance(strategy.window_fn, FrozenWindows):
        return frozenset({strategy.window_fn})
    origins = nearest(graph, pcollection.id, AssignWindows | Read)
    return frozenset(
        each.operation.window_fn if isinstance(each.operation, AssignWindows) else GlobalWindows()
        for each in origins
    )
