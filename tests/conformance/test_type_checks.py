"""Runs that check types: what is of its type goes through as before, and what is not is a failure of user code."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.testing.runner_conformance import PROGRAMS, Program, check_runner
from tests.conformance.conftest import MakeRunner


def with_length(text: str) -> tuple[str, int]:
    # Its annotation is wrong of some.
    return (text, len(text)) if text != "liar" else (text, "many")  # type: ignore[return-value]


def totals(group: tuple[str, Sequence[int]]) -> Iterator[dict[str, Any]]:
    yield {"text": group[0], "total": sum(group[1])}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_programs_emit_the_same_with_their_types_checked(program: Program) -> None:
    check_runner(partial(DirectRunner, check_types=True), [program])


def test_what_is_of_another_type_is_a_dead_letter(make_runner: MakeRunner) -> None:
    p = df.Pipeline(make_runner(check_types=True, tries_per_record=1))
    texts: Any = p | df.Create(["a", 7, "liar", "bc", "a"])
    groups = texts | "lengths" >> df.Map(with_length) | df.GroupByKey() | df.FlatMap(totals)
    groups | df.WriteToPostgres("totals", columns={"text": str, "total": int}, key=["text"])
    result = p.run()
    result.wait_until_finish()

    found = {row["text"]: row["total"] for row in result.read_table("totals")}
    assert {"a": 2, "bc": 2} == found
    liar, number = sorted(letter["error"] for letter in result.dead_letters())
    assert "transform 'lengths' (tests" in liar
    assert "is to emit tuple[str, int], and emitted tuple[str, str]" in liar
    assert "element: ('liar', 'many')" in liar
    assert "takes str, and was given int" in number


def test_what_a_transform_takes_and_emits_is_checked() -> None:
    def failing(*transforms: Any, values: Sequence[Any]) -> str:
        p = df.Pipeline(check_types=True)
        outputs: Any = p | df.Create(values)
        for transform in transforms:
            outputs = outputs | transform
        with pytest.raises(df.TransformError) as caught:
            p.run()
        assert "check_types" in caught.value.hint
        return f"{caught.value.fact}; {caught.value.detail}"

    untyped = df.Map(lambda element: element)
    assert "'Map(with_length)' (" in failing(untyped, df.Map(with_length), values=[b"a"])
    declared = untyped.with_output_types(dict[str, list[int]])
    assert "item 1 of value of key 'a'" in failing(declared, values=[{"a": [1, "x"]}])
    taken = untyped.with_input_types(int | None)
    assert "takes int | None, and was given str" in failing(untyped, taken, values=["a", 1])
    keyed = untyped.with_output_types(tuple[str, int])
    text = failing(keyed, df.GroupByKey(), values=[("a", 1), ("b", 2.5)])
    assert "emitted tuple[str, float]; element: ('b', 2.5); item 1 of tuple" in text
    side = df.Map(lambda element, least: element, 1).with_input_types(str)
    assert "takes str" in failing(untyped, side, values=[1])


def test_elements_with_side_inputs_are_checked_without_them() -> None:
    def longer(word: str, least: int) -> bool:
        return len(word) > least

    p = df.Pipeline(check_types=True)
    least = df.AsSingleton(p | "number" >> df.Create([1]))
    words: Any = p | df.Create(["ab", 7])
    words | df.Filter(longer, least)
    with pytest.raises(df.TransformError, match="takes str, and was given int"):
        p.run()


@pytest.mark.slow
def test_nothing_of_it_is_in_a_run_that_does_not_check() -> None:
    pipeline = df.Pipeline()
    pipeline | df.Create(["a"]) | df.Map(with_length)

    assert pipeline.graph().type_checks
    assert not plan(pipeline.graph()).graph.type_checks
    assert plan(pipeline.graph(), check_types=True).graph.type_checks
    program = (
        "import sys, dataflow as df\n"
        "with df.Pipeline() as p: p | df.Create([1]) | df.Map(abs).with_output_types(int)\n"
        "assert 'typeguard' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_shape_is_the_same_whether_or_not_types_are_known() -> None:
    """So a job may be continued with other annotations."""

    def graph(transform: Any) -> PipelineGraph:
        pipeline = df.Pipeline()
        pipeline | df.Create([1]) | "step" >> transform
        return pipeline.graph()

    known = graph(df.Map(abs).with_output_types(int).with_input_types(int))
    assert known.type_checks
    assert known.fingerprint() == graph(df.Map(abs)).fingerprint()
