"""ExecutionPlan: the graph cut into stages at its groupings.

A stage starts at a read or at a grouping and runs everything up to the next groupings and tables at once, so that
elements cross a process boundary only where keys must come together.  A transform behind a Flatten
is part of every stage that reaches it.

"Grouping" here is every operation that needs the elements of a key in one place: `Group` and `StatefulParDo`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import attrs

from dataflow.graph import (
    FreshnessDeclared,
    KeyedOperation,
    PipelineGraph,
    Read,
    TransformNode,
    WriteTable,
)
from runners.core.ground.lineage import Lineage
from runners.core.stages.slices import Slices, slices_of_graph


@attrs.frozen(kw_only=True)
class Stage:
    """A part of the pipeline: a read or a grouping, and all transforms up to the next groupings.

    Its name is the label of ``root``; it names the computation in the store.

    Attributes:
        nodes: the transforms after the root, in topological order, without the groupings they feed.
    """

    root: TransformNode
    nodes: tuple[TransformNode, ...]
    groups: tuple[TransformNode, ...]
    tables: tuple[TransformNode, ...]

    @property
    def name(self) -> str:
        """The computation's name."""
        return self.root.label

    @property
    def is_source(self) -> bool:
        """Whether it starts at a read."""
        return isinstance(self.root.operation, Read)

    @property
    def read(self) -> Read:
        """The read that it starts at; it is a source."""
        operation = self.root.operation
        assert isinstance(operation, Read)
        return operation


class Edge(NamedTuple):
    """A collection on its way from the transform that makes it to one that reads it.

    Attributes:
        sender: the label of the first.
        tag: which of its outputs it is.
        receiver: the label of the second.
    """

    sender: str
    tag: str
    receiver: str


@attrs.frozen(kw_only=True)
class Retirement:
    """The edges over which nothing is emitted any more, and what was is retracted (ADR 0066).

    Attributes:
        edges: those edges.
        ends: the labels of the groupings and tables from which it is retracted; what others have had goes otherwise.
        version: the version of the job that retracts; how far it has come means nothing to another one.
        converted: the labels of the groupings whose input may not be retracted any more in the other pipeline.
        is_converting: whether all is retracted, and nothing is done but to convert their state (ADR 0069).
    """

    edges: frozenset[Edge]
    ends: frozenset[str]
    version: int
    converted: frozenset[str] = frozenset()
    is_converting: bool = False


@attrs.frozen(kw_only=True)
class ExecutionPlan:
    """The stages by name, in an order in which senders come before receivers.

    Attributes:
        retirement: of a version of a job on its way to another pipeline; None of any other.
        lineage: how much of the lineage of panes is recorded; None: nothing.
        slices: which windows are made of slices.
    """

    graph: PipelineGraph
    stages: Mapping[str, Stage]
    retirement: Retirement | None = None
    lineage: Lineage | None = None
    slices: Slices = attrs.field(factory=Slices)

    def senders(self, name: str) -> tuple[str, ...]:
        """The names of the stages that send to a grouping."""
        return tuple(
            stage.name
            for stage in self.stages.values()
            if any(group.label == name for group in stage.groups)
        )

    def of_stage(self, name: str) -> "ExecutionPlan":
        """Cut the plan down to one stage: its transforms, and the groupings that it sends to.

        A process that runs nothing else needs no more.

        Args:
            name: of the stage.
        """
        # Where something is retracted, the transforms before a stage count as well.
        assert self.retirement is None
        stage = self.stages[name]
        members = {each.label for each in (stage.root, *stage.nodes, *stage.groups)}
        nodes = tuple(node for node in self.graph.transforms if node.label in members)
        graph = self.graph.of_transforms(nodes)
        return attrs.evolve(
            self, graph=graph, stages={name: stage}, slices=self.slices.of_transforms(members)
        )

    def freshness(self) -> Iterator[tuple[FreshnessDeclared, str]]:
        """What is declared of collections, each with the name of a stage that makes it."""
        for declared in self.graph.freshness:
            for stage in self.stages.values():
                made = {
                    output
                    for node in (stage.root, *stage.nodes)
                    for output in node.outputs.values()
                }
                if declared.pcollection in made:
                    yield declared, stage.name

    def sources(self) -> Iterator[Stage]:
        """The stages that start at a read."""
        return (stage for stage in self.stages.values() if stage.is_source)

    def groupings(self) -> Iterator[Stage]:
        """The stages that start at a grouping."""
        return (stage for stage in self.stages.values() if not stage.is_source)


def plan(
    graph: PipelineGraph,
    *,
    check_types: bool = False,
    lineage: Lineage | None = None,
    slices: bool = False,
) -> ExecutionPlan:
    """Cut a graph into stages.

    Args:
        graph: the pipeline.
        check_types: whether elements are checked against the types that are known of them; else nothing of these is in
            the plan.
        lineage: how much of the lineage of panes is recorded; None: nothing.
        slices: whether windows are made of slices where that is possible; only for an engine that has all input before
            any window fires.
    """
    if not check_types:
        graph = attrs.evolve(graph, type_checks=())
    roots = [node for node in graph.transforms if isinstance(node.operation, Read | KeyedOperation)]
    stages = {root.label: _stage(graph, root) for root in roots}
    is_sliced = slices and lineage is None
    return ExecutionPlan(
        graph=graph,
        stages=stages,
        lineage=lineage,
        slices=slices_of_graph(graph) if is_sliced else Slices(),
    )


def _stage(graph: PipelineGraph, root: TransformNode) -> Stage:
    reached = set(root.outputs.values())
    nodes, groups, tables = [], [], []
    for node in graph.transforms:  # topological, so one pass reaches everything
        if reached.isdisjoint(node.inputs):
            continue
        if isinstance(node.operation, KeyedOperation):
            groups.append(node)
            continue
        nodes.append(node)
        reached.update(node.outputs.values())
        if isinstance(node.operation, WriteTable):
            tables.append(node)
    return Stage(root=root, nodes=tuple(nodes), groups=tuple(groups), tables=tuple(tables))
