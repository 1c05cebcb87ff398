"""ExecutionPlan: which transforms run together."""

from typing import Any

import dataflow as df
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner


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
