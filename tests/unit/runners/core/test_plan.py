"""ExecutionPlan: which transforms run together."""

from typing import Any

import dataflow as df
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.spark.shipped_plan import ShippedPlan


def built() -> ExecutionPlan:
    """Two sources into one grouping into another, a table behind each."""
    pipeline = df.Pipeline(DirectRunner())
    one: Any = pipeline | "one" >> df.Create([("a", 1)])
    two: Any = pipeline | "two" >> df.Create([("a", 2)])
    both = (one, two) | df.Flatten() | "both" >> df.Map(lambda x: x)
    first = both | "first" >> df.GroupByKey()
    second = first | "between" >> df.Map(lambda x: x) | "second" >> df.GroupByKey()
    for name, rows in (("t1", first), ("t2", second)):
        (
            rows
            | name >> df.Map(lambda pair: {"a": pair})
            | df.WriteToPostgres(name, columns={"a": int})
        )
    return plan(pipeline.graph())


def test_stages_are_cut_at_groupings() -> None:
    """A transform behind a Flatten runs in every stage that reaches it."""
    stages = {name: [node.label for node in stage.nodes] for name, stage in built().stages.items()}

    assert {
        "one/Read(MemorySource)": ["Flatten", "both"],
        "two/Read(MemorySource)": ["Flatten", "both"],
        "first": ["between", "t1", "WriteToPostgres(t1)"],
        "second": ["t2", "WriteToPostgres(t2)"],
    } == stages


def test_senders_come_before_receivers() -> None:
    execution = built()

    assert ("one/Read(MemorySource)", "two/Read(MemorySource)") == execution.senders("first")
    assert ("first",) == execution.senders("second")
    assert ["first", "second"] == [stage.name for stage in execution.groupings()]
    assert 2 == len(list(execution.sources()))
    assert ["WriteToPostgres(t1)"] == [t.label for t in execution.stages["first"].tables]


def test_the_plan_of_a_stage_is_that_stage_alone() -> None:
    """With the collections of what it emits and sends to, and of nothing else."""
    whole = built()

    for name, stage in whole.stages.items():
        alone = whole.of_stage(name)
        assert {name: stage} == dict(alone.stages)
        labels = {stage.root.label, *(node.label for node in (*stage.nodes, *stage.groups))}
        assert labels == {node.label for node in alone.graph.transforms}
        read = {each for node in (*stage.nodes, *stage.groups) for each in node.inputs}
        assert read <= set(alone.graph.pcollections) <= set(whole.graph.pcollections)
        assert all(
            alone.graph.pcollections[each] == whole.graph.pcollections[each] for each in read
        )


def test_the_plan_of_a_stage_has_what_is_sliced_and_checked_of_it() -> None:
    pipeline = df.Pipeline(DirectRunner())
    for name in ("one", "two"):
        pairs = pipeline | name >> df.Create([df.TimestampedValue(("a", 1), 0.0)])
        sliding = pairs | f"{name} windows" >> df.WindowInto(df.SlidingWindows(60, period=10))
        _ = sliding | f"{name} sum" >> df.CombinePerKey(df.SumCombineFn())
    whole = plan(pipeline.graph(), check_types=True, slices=True)

    parts = [whole.of_stage(name) for name in whole.stages]

    assert whole.slices.assigned
    assert whole.slices.groupings
    for part in parts:
        labels = {node.label for node in part.graph.transforms}
        assert part.slices.groupings == whole.slices.groupings & labels
        assert part.slices.assigned.keys() == whole.slices.assigned.keys() & labels
    checks = {check for part in parts for check in part.graph.type_checks}
    assert checks == set(whole.graph.type_checks) != set()


def test_the_plans_of_stages_grow_with_their_number() -> None:
    """Not with its square: each task of a batch loads the plan of its stage."""

    def pickled(branches: int) -> int:
        pipeline = df.Pipeline(DirectRunner())
        for number in range(branches):
            pairs = pipeline | f"{number}" >> df.Create([("a", number)])
            _ = pairs | f"{number} grouped" >> df.GroupByKey()
        return sum(map(len, ShippedPlan.of(plan(pipeline.graph()), by_stage=True).code.values()))

    assert pickled(20) < 3 * pickled(10)
