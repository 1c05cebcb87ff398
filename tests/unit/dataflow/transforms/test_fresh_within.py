"""How far behind the clock something may be, declared where it is made or written: in the graph, and nowhere else."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.testing.model_sink import ModelSink
from runners.core.stages.plan import plan

S = 1_000_000
COLUMNS = {"key": str, "total": int}


def sums(p: df.Pipeline) -> Any:
    return (
        p
        | "read" >> df.Create([("a", 1)])
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
    )


def declared(build: Callable[[df.Pipeline], object]) -> list[tuple[str, str, int]]:
    p = df.Pipeline()
    build(p)
    return [(each.label, stage, each.within_us) for each, stage in plan(p.graph()).freshness()]


def test_of_a_table_of_a_sink_and_of_a_collection() -> None:
    """Each with the stage that makes what it is about."""

    def build(p: df.Pipeline) -> None:
        rows = sums(p)
        rows | "rows" >> df.WriteToPostgres("rows", columns=COLUMNS, fresh_within="5s")
        rows | "sent" >> df.Write(ModelSink(), fresh_within=timedelta(minutes=1))
        p | "late" >> df.Create([1]) | "read soon" >> df.FreshWithin(0.5)

    assert declared(build) == [
        ("rows", "sum", 5 * S),
        ("sent", "sum", 60 * S),
        ("read soon", "late/Read(MemorySource)", S // 2),
    ]


def test_it_is_no_part_of_what_a_pipeline_is() -> None:
    """A job goes on under another objective, or none, without an update; and nothing is computed otherwise."""

    def made(*, within: str | None) -> df.Pipeline:
        p = df.Pipeline()
        rows = sums(p)
        if within is not None:
            rows = rows | df.FreshWithin(within)
        rows | "rows" >> df.WriteToPostgres("rows", columns=COLUMNS, key="key", fresh_within=within)
        return p

    with_one, without = made(within="5s"), made(within=None)
    assert with_one.graph().fingerprint() == without.graph().fingerprint()
    assert [str(each) for each in with_one.graph().transforms] != []
    assert len(with_one.graph().transforms) == len(without.graph().transforms)
    assert [*with_one.run().read_table("rows")] == [*without.run().read_table("rows")]


@pytest.mark.parametrize("within", ["soon", 0, -1, "1 month"])
def test_what_is_no_length_of_time_is_refused(within: Any) -> None:
    with pytest.raises(df.PipelineError, match=r"'rows'.*fresh_within"):
        sums(df.Pipeline()) | "rows" >> df.WriteToPostgres(
            "rows", columns=COLUMNS, fresh_within=within
        )
