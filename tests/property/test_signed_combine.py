"""Accumulators of what comes and is retracted are those of what stands, however the changes are divided and merged."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.co_group_fn import CoGroupFn
from dataflow.combine_fn import ListCombineFn
from runners.core.partials.signed_combine import MultisetCombineFn, RetractingCombineFn
from runners.core.partials.signed_groups import SignedCoGroupFn

SIDES = ("left", "right")
#: Each NaN is an object of its own, as it is when it comes out of a computation.
VALUES = st.sampled_from(["0", "1", "nan", "nan"]).map(float)
SIGNS = st.sampled_from([1, 1, -1])


def parts_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[tuple[Any, int]]]]:
    """Changes in parts; a value may be retracted more often than it comes, and before."""
    return st.lists(st.lists(st.tuples(values, SIGNS), max_size=5), max_size=4)


def merged(combine_fn: Any, parts: Sequence[Sequence[Any]], *, at_once: bool) -> Any:
    """All parts: each folded by itself, and then merged; or one after the other in one accumulator."""
    if not at_once:
        folded = [combine_fn.add_inputs(combine_fn.create_accumulator(), part) for part in parts]
        return combine_fn.merge_accumulators([combine_fn.create_accumulator(), *folded])
    accumulator = combine_fn.create_accumulator()
    for part in parts:
        accumulator = combine_fn.add_inputs(accumulator, part)
    return accumulator


def counted(parts: Sequence[Sequence[tuple[Any, int]]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for value, sign in (each for part in parts for each in part):
        counts[repr(value)] += sign
    return counts


@given(parts=parts_of(VALUES), at_once=st.booleans())
def test_a_multiset_has_what_was_not_retracted(
    parts: list[list[tuple[float, int]]], *, at_once: bool
) -> None:
    """NaN too, which is found again; what was retracted before it came is missing, and takes nothing else away."""
    combine_fn = MultisetCombineFn(ListCombineFn())
    accumulator, counts = merged(combine_fn, parts, at_once=at_once), counted(parts)

    assert +counts == Counter(map(repr, combine_fn.extract_output(accumulator)))
    assert combine_fn.size(accumulator) == (+counts).total()
    assert combine_fn.is_void(accumulator) is not any(counts.values())


@given(parts=parts_of(st.tuples(st.sampled_from(SIDES), VALUES)), at_once=st.booleans())
def test_sides_have_what_was_not_retracted(
    parts: list[list[tuple[tuple[str, float], int]]], *, at_once: bool
) -> None:
    combine_fn = SignedCoGroupFn(CoGroupFn(SIDES))
    accumulator, counts = merged(combine_fn, parts, at_once=at_once), counted(parts)
    output = zip(SIDES, combine_fn.extract_output(accumulator), strict=True)

    assert +counts == Counter(repr((side, each)) for side, values in output for each in values)
    assert combine_fn.size(accumulator) == (+counts).total()
    assert combine_fn.is_void(accumulator) is not any(counts.values())


@given(parts=parts_of(st.integers(-5, 5)), at_once=st.booleans())
def test_a_function_that_retracts_counts_its_values(
    parts: list[list[tuple[int, int]]], *, at_once: bool
) -> None:
    """It could not be seen in a sum whether there is anything."""
    combine_fn = RetractingCombineFn(df.SumCombineFn())
    accumulator = merged(combine_fn, parts, at_once=at_once)
    changes = [each for part in parts for each in part]

    assert combine_fn.size(accumulator) == sum(sign for _, sign in changes)
    assert combine_fn.extract_output(accumulator) == sum(value * sign for value, sign in changes)
