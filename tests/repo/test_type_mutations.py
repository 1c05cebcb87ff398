"""The tests are tested: types that are compared wrongly on purpose must fail a law or an example."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import dataflow as df
from dataflow import type_contradictions, type_hints
from dataflow.type_contradictions import contradict
from dataflow.type_hints import type_of
from tests.unit.dataflow import test_element_types
from tests.unit.dataflow import test_type_contradictions as laws

Patch = pytest.MonkeyPatch


def a_number_is_only_itself(patch: Patch) -> None:
    """An int is no float."""
    patch.setattr(type_contradictions, "_are_taken_for_each_other", lambda *_: False)


def nothing_is_of_two_classes(patch: Patch) -> None:
    """Also where there is a class of both."""
    patch.setattr(type_contradictions, "_is_one_in", lambda *_: False)


def parts_make_no_difference(patch: Patch) -> None:
    """Of tuples, lists and mappings."""
    patch.setattr(type_contradictions, "_parts_contradict", lambda *_: False)


def of_a_union_the_first_counts(patch: Patch) -> None:
    """The others are forgotten."""
    members = type_hints.members_of
    patch.setattr(type_contradictions, "members_of", lambda hint: members(hint)[:1])


def a_mapping_gives_its_values(patch: Patch) -> None:
    """When it is iterated."""
    item_of, entries_of = type_hints.item_of, type_hints.entries_of

    def wrong(hint: Any) -> Any:
        entries = entries_of(hint)
        return item_of(hint) if entries is None else entries[1]

    patch.setattr(type_contradictions, "item_of", wrong)


@settings(
    database=None,
    deadline=None,
    max_examples=200,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(laws._VALUES, laws._HINTS)
def check(value: Any, hint: Any) -> None:
    if laws.is_of(value, hint):
        assert not contradict(type_of(value), hint)
    for one, other in ALIKE:
        assert not contradict(one, other)
    assert contradict(tuple[str, int], tuple[str, str])


#: What the law has no values for.
ALIKE: tuple[tuple[Any, Any], ...] = (
    (laws.Left, laws.Right),
    (int | str, str),
    (int, float),
    (dict[str, int], Iterable[str]),
)


def test_tags_whose_types_are_forgotten_are_found(monkeypatch: Patch) -> None:
    def check_tags() -> None:
        texts = df.Pipeline() | df.Create(["a"])
        numbers = df.OutputTag[int]("numbers")
        outputs = texts | df.FlatMap(str.split).with_outputs(numbers)
        test_element_types.test_types_flow(lambda: outputs[numbers], int)
        with pytest.raises(df.PipelineError):
            outputs.numbers | df.Map(str.upper)

    check_tags()
    monkeypatch.setattr(df.OutputTag, "element_type", Any)

    with pytest.raises(AssertionError):
        check_tags()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        a_number_is_only_itself,
        nothing_is_of_two_classes,
        parts_make_no_difference,
        of_a_union_the_first_counts,
        a_mapping_gives_its_values,
    ],
    ids=lambda each: each.__name__,
)
def test_a_wrong_comparison_is_found(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    check()
    mutation(monkeypatch)

    with pytest.raises((AssertionError, TypeError)):
        check()
