"""Retirement: the part of a pipeline through which nothing is emitted any more, and what was is retracted.

A version of a job on its way to another pipeline retires the edges that the other one does not have.  What a stage
emits takes two kinds of ways to groupings and tables: those without a retired edge, which go on, and those over one.
Elements that were emitted go over the latter once more, with a sign of -1, and nothing else does.

**Law:** the ways of a stage are those that go on and the retired ones, and none is both; a transform that is reached by
both kinds is in both parts.

Pure; ADR 0066.
"""

from collections.abc import Collection, Iterator, Sequence

import attrs

from dataflow.graph import KeyedOperation, PipelineGraph, TransformNode, WriteTable
from runners.core.stages.plan import Edge, Stage


@attrs.frozen(kw_only=True)
class DividedStage:
    """A stage, divided by retired edges.

    Attributes:
        going_on: its root, and what is reached without a retired edge.
        retired: its root, and the ways to ends that go over a retired edge; None if there is none.
        graph: has the collections of both.
    """

    going_on: Stage
    retired: Stage | None
    graph: PipelineGraph


def edges_of(graph: PipelineGraph, node: TransformNode) -> Iterator[tuple[Edge, int]]:
    """The edges into a transform, each with its collection, in the order of inputs.

    Args:
        graph: has the transform.
        node: the transform.
    """
    makers = {
        output: (maker.label, tag)
        for maker in graph.transforms
        for tag, output in maker.outputs.items()
    }
    for each in node.inputs:
        sender, tag = makers[each]
        yield Edge(sender, tag, node.label), each


def divided(
    graph: PipelineGraph,
    stage: Stage,
    edges: Collection[Edge],
    ends: Collection[str] | None = None,
) -> DividedStage:
    """Divide a stage into what goes on and what is retired.

    Args:
        graph: of the whole pipeline.
        stage: of its plan.
        edges: those that are retired, of any stage.
        ends: the labels of groupings and tables; what is retired and leads to none of them is left out.  None: all.
    """
    first_free = max(graph.pcollections) + 1

    def beyond(pcollection: int) -> int:
        """A collection as far as it has come over a retired edge."""
        return first_free + pcollection

    before, after = set(stage.root.outputs.values()), set[int]()
    going_on, retired = list[TransformNode](), list[TransformNode]()
    members = {each.label for each in (*stage.nodes, *stage.groups)}
    for node in graph.transforms:
        if node.label not in members:
            continue
        inputs = [*edges_of(graph, node)]
        kept = [each for edge, each in inputs if each in before and edge not in edges]
        gone = [each for edge, each in inputs if each in before and edge in edges]
        gone += [beyond(each) for _, each in inputs if each in after]
        outputs = {tag: beyond(each) for tag, each in node.outputs.items()}
        if kept:
            going_on.append(attrs.evolve(node, inputs=tuple(kept)))
        if gone:
            retired.append(attrs.evolve(node, inputs=tuple(gone), outputs=outputs))
        if not isinstance(node.operation, KeyedOperation):
            before |= set(node.outputs.values()) if kept else set()
            after |= set(node.outputs.values()) if gone else set()
    copies = {
        beyond(key): attrs.evolve(each, id=beyond(key)) for key, each in graph.pcollections.items()
    }
    reached = [node for node in retired if _is_end(node) and (ends is None or node.label in ends)]
    whole = [*going_on, *retired]
    return DividedStage(
        going_on=_staged(stage, going_on),
        retired=_staged(stage, _leading_to(reached, whole)) if reached else None,
        graph=attrs.evolve(graph, pcollections={**graph.pcollections, **copies}),
    )


def _is_end(node: TransformNode) -> bool:
    return isinstance(node.operation, KeyedOperation | WriteTable)


def _leading_to(
    ends: Sequence[TransformNode], nodes: Sequence[TransformNode]
) -> Sequence[TransformNode]:
    """The ends, and those of the nodes that lead there, in the order of the nodes."""
    wanted = {each for node in ends for each in node.inputs}
    found = list[TransformNode]()
    for node in reversed(nodes):
        is_leading = not _is_end(node) and not wanted.isdisjoint(node.outputs.values())
        if is_leading:
            wanted.update(node.inputs)
        if is_leading or any(node is each for each in ends):
            found.append(node)
    return found[::-1]


def _staged(stage: Stage, nodes: Sequence[TransformNode]) -> Stage:
    groups = {each.label for each in stage.groups}
    tables = {each.label for each in stage.tables}
    return Stage(
        root=stage.root,
        nodes=tuple(each for each in nodes if each.label not in groups),
        groups=tuple(each for each in nodes if each.label in groups),
        tables=tuple(each for each in nodes if each.label in tables),
    )
