"""Sums and means of what is left, also after infinities and NaN have been retracted, in whatever order."""

from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.serialization import dumps, loads
from dataflow.testing.laws import check_combine_fn

NUMBERS = st.sampled_from([inf, -inf, nan, 0.5, -3.0]) | st.integers(-9, 9)


def spelled(number: Any) -> str:
    return "nan" if isnan(number) else repr(float(number))


@pytest.mark.parametrize("combine_fn", [df.SumCombineFn(), df.MeanCombineFn()])
@given(values=st.lists(NUMBERS, min_size=1, max_size=8), data=st.data())
def test_what_is_left_is_as_if_the_rest_had_never_come(
    combine_fn: df.CombineFn, values: list[Any], data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(values)))
    changes = data.draw(
        st.permutations([*((+1, v) for v in values), *((-1, v) for v in values[kept:])])
    )
    accumulator = combine_fn.create_accumulator()
    for sign, value in changes:
        change = combine_fn.add_input if sign > 0 else combine_fn.retract_input
        accumulator = change(loads(dumps(accumulator)), value)
    fresh = combine_fn.add_inputs(combine_fn.create_accumulator(), values[:kept])

    assert spelled(combine_fn.extract_output(fresh)) == spelled(
        combine_fn.extract_output(accumulator)
    )


@pytest.mark.parametrize("combine_fn", [df.SumCombineFn(), df.MeanCombineFn()])
@given(values=st.lists(NUMBERS, max_size=5))
def test_they_are_as_all_combine_fns(combine_fn: df.CombineFn, values: list[Any]) -> None:
    check_combine_fn(combine_fn, values, by=spelled)
