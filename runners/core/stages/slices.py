"""Slices: which transforms of a graph assign slices of windows, for which groupings.

Where windows overlap, an element is in several, and each further step has a copy of it for each of them.  Assigned its
slice instead (`WindowFn.slice_fn`), it stays one element up to the grouping, which makes the windows when they fire.
That is possible where nothing in between could tell the difference, and every window fires once, when all is there.
"""

from collections.abc import Collection, Iterator, Mapping

import attrs

from dataflow.column_fn import ColumnFunction
from dataflow.combine_fn import columns_of
from dataflow.combiners import columns_by_place
from dataflow.do_fn import CallableDoFn
from dataflow.extra_arguments import NO_ARGUMENTS
from dataflow.graph import MAIN, AssignWindows, Group, ParDo, PipelineGraph, TransformNode
from runners.core.partials.folding import is_immutable
from runners.core.single_firing.single_panes import SinglePanes
from windowing.window_fn import WindowFn, slice_fn_of


@attrs.frozen
class Slices:
    """By labels.

    Attributes:
        assigned: the functions that assign slices, of transforms that assign windows.
        groupings: those whose partials are of slices.
    """

    assigned: Mapping[str, WindowFn] = attrs.field(factory=dict)
    groupings: frozenset[str] = frozenset()

    def of_transforms(self, labels: Collection[str]) -> "Slices":
        """Keep what belongs to some transforms, and leave out the rest.

        Args:
            labels: of these transforms.
        """
        assigned = {label: fn for label, fn in self.assigned.items() if label in labels}
        return Slices(assigned, self.groupings.intersection(labels))


def slices_of_graph(graph: PipelineGraph) -> Slices:
    """What can be sliced of a pipeline all of whose input is there before a window fires.

    Args:
        graph: the pipeline.
    """
    assigned: dict[str, WindowFn] = {}
    groupings: set[str] = set()
    for node in graph.transforms:
        if not isinstance(node.operation, AssignWindows):
            continue
        slices = slice_fn_of(node.operation.window_fn)
        ends = list(_readers(graph, node))
        if slices is not None and ends and all(_takes_slices(graph, each) for each in ends):
            assigned[node.label] = slices
            groupings.update(each.label for each in ends)
    return Slices(assigned, frozenset(groupings))


def _readers(graph: PipelineGraph, node: TransformNode) -> Iterator[TransformNode]:
    """The transforms that read what one emits; instead of one that ignores windows, those that read what it emits."""
    for reader in graph.transforms:
        if any(output in reader.inputs for output in node.outputs.values()):
            if _ignores_windows(reader):
                yield from _readers(graph, reader)
            else:
                yield reader


def _ignores_windows(node: TransformNode) -> bool:
    """Whether a transform asks a function of each element that is none of the user's, and for nothing else."""
    operation = node.operation
    return (
        isinstance(operation, ParDo)
        and operation.tags == (MAIN,)
        and operation.arguments == NO_ARGUMENTS
        and operation.handling is None
        and isinstance(operation.fn, CallableDoFn)
        and isinstance(operation.fn.function, ColumnFunction)
        and operation.fn.function.ignores_windows
    )


def _takes_slices(graph: PipelineGraph, node: TransformNode) -> bool:
    """Whether each window of a grouping fires once, and its accumulators do not grow with what is in them.

    To fold an element once gains nothing where all elements are copied for each window in the end.
    """
    operation = node.operation
    if not isinstance(operation, Group) or SinglePanes.of_replay(graph, node) is None:
        return False
    combine_fn = operation.combine_fn
    if columns_of(combine_fn) is not None or columns_by_place(combine_fn) is not None:
        return True
    try:
        return is_immutable(combine_fn.create_accumulator())
    except Exception:  # noqa: BLE001 - raised again where it is needed, which is located
        return False
