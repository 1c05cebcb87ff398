"""How a stage is divided by retired edges: every way is in one of the two parts, and in one only."""

from collections import Counter
from collections.abc import Iterator

import attrs
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import KeyedOperation, PipelineGraph, WriteTable
from runners.core.stages.plan import Edge, Stage, plan
from runners.core.stages.retirement import divided, edges_of
from runners.direct import DirectRunner

Way = tuple[Edge, ...]


def graph_of(choices: list[tuple[int, int]]) -> PipelineGraph:
    """A grouping, transforms behind it that take one or two of those before, and three groupings."""
    pipeline = df.Pipeline(DirectRunner())
    first = (
        pipeline
        | df.Create([(1, 1)])
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "first" >> df.CombinePerKey(sum)
    )
    made = [first]
    for number, (one, two) in enumerate(choices):
        inputs = [made[one % len(made)], made[two % len(made)]]
        if inputs[0] is inputs[1]:
            made.append(inputs[0] | f"map {number}" >> df.Map(lambda pair: pair))
        else:
            made.append(inputs | f"flatten {number}" >> df.Flatten())
    for number, each in enumerate(made[-3:]):
        _ = each | f"group {number}" >> df.CombinePerKey(sum)
    return pipeline.graph()


def ways(graph: PipelineGraph, stage: Stage) -> Iterator[Way]:
    """The ways of a stage to its groupings and tables."""
    makers = {
        output: (node, tag)
        for node in (stage.root, *stage.nodes)
        for tag, output in node.outputs.items()
    }

    def back(pcollection: int, receiver: str) -> Iterator[Way]:
        if pcollection not in makers:
            return
        node, tag = makers[pcollection]
        edge = Edge(node.label, tag, receiver)
        if node.label == stage.root.label:
            yield (edge,)
            return
        for each in node.inputs:
            for way in back(each, node.label):
                yield (*way, edge)

    for end in (*stage.groups, *stage.tables):
        for each in end.inputs:
            yield from back(each, end.label)


@given(
    choices=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6),
    data=st.data(),
)
def test_each_way_is_in_one_part(choices: list[tuple[int, int]], data: st.DataObject) -> None:
    """The retired part has those over a retired edge, as often as there are, and what goes on has all others."""
    graph = graph_of(choices)
    edges = [edge for node in graph.transforms for edge, _ in edges_of(graph, node)]
    retired = data.draw(st.sets(st.sampled_from(edges)))
    ends = [n.label for n in graph.transforms if isinstance(n.operation, KeyedOperation)]
    wanted = data.draw(st.sets(st.sampled_from(ends)))
    stage = plan(graph).stages["first"]

    parts = divided(graph, stage, retired, wanted)

    whole = Counter(ways(graph, stage))
    assert Counter(ways(parts.graph, parts.going_on)) == Counter(
        {way: count for way, count in whole.items() if retired.isdisjoint(way)}
    )
    gone = {
        way: count
        for way, count in whole.items()
        if not retired.isdisjoint(way) and way[-1].receiver in wanted
    }
    found = Counter() if parts.retired is None else Counter(ways(parts.graph, parts.retired))
    assert found == Counter(gone)
    assert (parts.retired is None) == (not gone)
    if parts.retired is not None:
        # Nothing runs that leads nowhere.
        for node in parts.retired.nodes:
            is_read = any(
                not set(node.outputs.values()).isdisjoint(each.inputs)
                for each in (*parts.retired.nodes, *parts.retired.groups)
            )
            assert is_read or isinstance(node.operation, WriteTable)


def test_nothing_is_retired_without_edges() -> None:
    graph = graph_of([(0, 0), (0, 1)])
    stage = plan(graph).stages["first"]
    parts = divided(graph, stage, frozenset())
    assert parts.retired is None
    assert attrs.astuple(parts.going_on, recurse=False) == attrs.astuple(stage, recurse=False)
