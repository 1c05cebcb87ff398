"""Guarantees that do not fit the pipeline are refused before anything starts."""

import pytest

import dataflow as df
from dataflow.errors import PipelineError
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.model.guarantees import Guarantees, check_guarantees
from runners.testing.scripted_source import ScriptedSource

WEAK = Guarantees(strong_productions=False)


def sums(record_ids: df.RecordIds | None = None) -> df.Pipeline:
    p = df.Pipeline(DirectRunner())
    (
        p
        | "read" >> df.Read(ScriptedSource([]), record_ids=record_ids)
        | "pair" >> df.Map(lambda value: (value, 1))
        | "sum" >> df.CombinePerKey(sum)
    )
    return p


def test_reads_and_groupings_have_guarantees() -> None:
    check_guarantees(plan(sums().graph()), {"read": WEAK, "sum": WEAK})


@pytest.mark.parametrize("name", ["pair", "som"])
def test_others_have_none(name: str) -> None:
    with pytest.raises(PipelineError) as caught:
        check_guarantees(plan(sums().graph()), {name: WEAK})

    assert repr(name) in str(caught.value)
    assert "'read', 'sum'" in str(caught.value)


def test_ids_of_records_need_strong_productions() -> None:
    ids = df.RecordIds(of=str, slack=60)
    check_guarantees(plan(sums(ids).graph()), {"sum": WEAK})
    with pytest.raises(PipelineError, match="read"):
        check_guarantees(plan(sums(ids).graph()), {"read": WEAK})
