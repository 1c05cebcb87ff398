"""Approximate combiners: exact where there is little, and near what plain Python gives where there is much."""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.combine_fn import combined
from dataflow.testing.laws import check_combine_fn
from tests.effort import costly

needs_library = pytest.mark.usefixtures("library")
VALUES = st.lists(st.integers(-9, 9) | st.text(max_size=1), max_size=8)
NUMBERS = st.lists(st.integers(-9, 9) | st.floats(-9, 9), max_size=8)


@pytest.fixture
def library() -> None:
    pytest.importorskip("datasketches", reason="it is an extra: pip install -e .[sketches]")


@needs_library
@given(VALUES)
def test_the_laws_hold_for_distinct_values(values: list[Any]) -> None:
    check_combine_fn(df.ApproximateUniqueCombineFn(), values)
    assert len(set(values)) == combined(df.ApproximateUniqueCombineFn(), values)


@needs_library
@given(NUMBERS)
def test_the_laws_hold_for_quantiles(values: list[float]) -> None:
    check_combine_fn(df.ApproximateQuantilesCombineFn(5), values)


@needs_library
@costly()
@given(st.integers(1, 30_000), st.integers(1, 5), st.sampled_from([0.05, 0.1]))
def test_many_distinct_values_are_counted_in_any_parts(
    distinct: int, parts: int, error: float
) -> None:
    """Within twice the error, which is exceeded once in ten thousand; and the same however they are divided."""
    fn = df.ApproximateUniqueCombineFn(error=error)
    values = [*range(distinct), *range(0, distinct, 7)]
    whole = combined(fn, values)
    divided = [fn.add_inputs(fn.create_accumulator(), values[at::parts]) for at in range(parts)]

    assert abs(whole - distinct) <= 2 * error * distinct
    assert whole == fn.extract_output(fn.merge_accumulators(divided))
    assert whole == combined(fn, values[::-1])


def ranks(numbers: Sequence[float], number: float) -> tuple[float, float]:
    return bisect_left(numbers, number) / len(numbers), bisect_right(numbers, number) / len(numbers)


@needs_library
@costly()
@given(st.integers(1, 20_000), st.integers(1, 5), st.integers(2, 11), st.integers(1, 50))
def test_quantiles_of_many_are_near(count: int, parts: int, quantiles: int, step: int) -> None:
    numbers = [float(number * 7_919 % 10_007 // step) for number in range(count)]
    fn = df.ApproximateQuantilesCombineFn(quantiles)
    divided = [fn.add_inputs(fn.create_accumulator(), numbers[at::parts]) for at in range(parts)]
    found = fn.extract_output(fn.merge_accumulators(divided))

    in_order = sorted(numbers)
    assert len(found) == quantiles
    assert (found[0], found[-1]) == (in_order[0], in_order[-1])
    for index, number in enumerate(found):
        low, high = ranks(in_order, number)
        slack = 0.02 + 1 / count
        assert low - slack <= index / (quantiles - 1) <= high + slack


@needs_library
def test_transforms_are_named_after_them() -> None:
    found: dict[str, Any] = {}
    with df.Pipeline() as p:
        pairs = p | df.Create([("k", number % 10) for number in range(100)])
        numbers = pairs | df.Map(lambda pair: pair[1])
        for name, transform in {
            "unique": numbers | df.ApproximateUnique.Globally(error=0.1),
            "unique by key": pairs | df.ApproximateUnique.PerKey(),
            "quantiles": numbers | df.ApproximateQuantiles.Globally(3),
            "quantiles by key": pairs | df.ApproximateQuantiles.PerKey(2),
        }.items():
            transform | name >> df.Map(lambda result, name=name: found.update({name: result}))

    assert found["unique"] == 10
    assert found["unique by key"] == ("k", 10)
    assert found["quantiles"] == [0, pytest.approx(4.5, abs=0.6), 9]
    assert found["quantiles by key"] == ("k", [0, 9])


@needs_library
@pytest.mark.parametrize("error", [0, 0.6, "much", float("nan")])
def test_errors_that_cannot_be_kept_are_refused(error: Any) -> None:
    with pytest.raises(df.PipelineError, match="relative error"):
        df.ApproximateUniqueCombineFn(error=error)


@needs_library
def test_fewer_than_two_quantiles_are_refused_and_so_is_nan() -> None:
    with pytest.raises(df.PipelineError, match="cannot be 1 quantiles"):
        df.ApproximateQuantiles.Globally(1)
    with pytest.raises(df.TransformError, match="NaN"):
        combined(df.ApproximateQuantilesCombineFn(2), [float("nan")])


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(df.PipelineError, match=r'pip install "dataflow-model\[sketches\]"'):
        df.ApproximateUnique.PerKey()
