"""Distinct is the set of the elements of each window, however often it fires and whatever is retracted."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from tests.unit.dataflow.transforms.test_retractions import changes
from tests.unit.dataflow.transforms.test_transforms import run

MODES = list(df.AccumulationMode)
RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


@given(st.lists(st.integers(0, 5) | st.text("ab", max_size=1)))
def test_it_is_the_set_of_the_elements(values: list[Any]) -> None:
    assert Counter(set(values)) == Counter(run(df.Distinct(), values=values))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50))))
def test_each_window_has_its_own(values: list[tuple[int, int]]) -> None:
    elements = [df.TimestampedValue(*each) for each in values]
    found = run(
        df.WindowInto(df.FixedWindows(10)), df.Distinct(), df.Reify.Window(), values=elements
    )

    assert Counter({(value, second // 10) for value, second in values}) == Counter(
        (value, window.start_us // 10_000_000) for value, _, window in found
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda each: each.name)
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=5))
def test_a_window_that_fires_often_has_each_element_once(
    mode: df.AccumulationMode, batches: list[list[int]]
) -> None:
    pipeline, stream = df.Pipeline(), TestStream()
    for batch in batches:
        stream = stream.add_elements([df.TimestampedValue(value, 5) for value in batch])
    always = df.WindowInto(df.FixedWindows(10), trigger=df.Always(), accumulation_mode=mode)
    left: Counter[Any] = Counter()
    for change in changes(pipeline | stream | always | df.Distinct(), pipeline):
        left[change.value] += change.sign

    assert {value for batch in batches for value in batch} == {k for k, n in left.items() if n}
    assert set(left.values()) <= {0, 1}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=8))
def test_what_is_retracted_is_not_there_any_more(pairs: list[tuple[str, int]]) -> None:
    """The totals of keys: each new one retracts the one before."""
    pipeline, stream = df.Pipeline(), TestStream()
    for pair in pairs:
        stream = stream.add_elements([pair])
    always = df.WindowInto(df.GlobalWindows(), trigger=df.Always(), accumulation_mode=RETRACTING)
    totals = pipeline | stream | always | df.CombinePerKey(sum) | df.Values() | df.Distinct()
    left: Counter[Any] = Counter()
    for change in changes(totals, pipeline):
        left[change.value] += change.sign

    sums: Counter[str] = Counter()
    for key, number in pairs:
        sums[key] += number
    assert Counter(set(sums.values())) == +left
    assert min(left.values(), default=0) >= 0


def test_what_cannot_be_a_key_is_refused() -> None:
    with pytest.raises(df.KeyEncodingError, match="cannot be a key"):
        run(df.Distinct(), values=[1j])
