"""OutputTag: wherever the name of an output is."""

import pickle
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

import dataflow as df

T = TypeVar("T")
BAD = df.OutputTag[str]("bad")


def parsed(line: str) -> Iterator[int | df.TaggedOutput]:
    yield int(line) if line.isdigit() else df.TaggedOutput(BAD, line)


def test_a_tag_is_its_name_with_a_type() -> None:
    outputs = df.Pipeline() | df.Create(["7", "x"]) | df.FlatMap(parsed).with_outputs(BAD)

    good, bad = outputs
    assert bad is outputs[BAD] is outputs["bad"] is outputs.bad
    assert ([7], ["x"]) == (df.collect(good), df.collect(bad))
    assert "OutputTag[str]('bad')" == repr(BAD)
    assert df.TaggedOutput("bad", 1) == df.TaggedOutput(df.OutputTag("bad"), 1)


def test_a_tag_travels_with_its_type() -> None:
    again = pickle.loads(pickle.dumps(df.OutputTag[tuple[str, int] | None]("maybe")))

    assert ("maybe", tuple[str, int] | None) == (again.name, again.element_type)


def test_of_a_tag_without_a_type_nothing_is_known() -> None:
    def of_any(kind: type[T]) -> df.OutputTag[T]:
        return df.OutputTag[T]("any")

    assert Any is df.OutputTag("any").element_type
    texts = df.Pipeline() | df.Create(["a"])
    outputs = texts | df.FlatMap(str.split).with_outputs(of_any(int))
    assert Any is outputs[of_any(int)].element_type


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_tag_needs_a_name(name: Any) -> None:
    with pytest.raises(df.PipelineError, match=r"OutputTag needs a name.*test_output_tags.py:"):
        df.OutputTag[int](name)


def test_an_output_that_is_not_there_is_named() -> None:
    outputs = df.Pipeline() | df.Create(["a"]) | df.FlatMap(parsed).with_outputs("other")

    with pytest.raises(df.PipelineError, match="there is no output 'bad'"):
        outputs[BAD]
    with pytest.raises(df.PipelineError, match="are not all different"):
        df.FlatMap(parsed).with_outputs(BAD, "bad")


def test_an_element_of_another_type_is_found_when_it_runs() -> None:
    def lies(line: str) -> Iterator[Any]:
        yield df.TaggedOutput("bad", len(line))

    p = df.Pipeline(check_types=True)
    p | df.Create(["a"]) | "lies" >> df.FlatMap(lies).with_outputs(BAD)
    with pytest.raises(df.TransformError, match="'lies'") as failure:
        p.run()
    assert "str" in str(failure.value)
