"""RepeatedColumn: a list of one value, without the list."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from dataflow.columns import RepeatedColumn, picked

SIZES = st.integers(0, 9)
BOUNDS = st.none() | st.integers(-12, 12)


@given(size=SIZES, start=BOUNDS, stop=BOUNDS)
def test_it_is_that_list(size: int, start: int | None, stop: int | None) -> None:
    column, expected = RepeatedColumn(7, size), [7] * size

    assert column == expected
    assert column[start:stop] == expected[start:stop]
    assert len(column[start:stop]) == len(expected[start:stop])
    assert pickle.loads(pickle.dumps(column)) == expected


@given(indexes=st.lists(st.integers(0, 8), max_size=20))
def test_what_is_picked_of_it_is_the_same(indexes: list[int]) -> None:
    found = picked(RepeatedColumn(7, 9), indexes)

    assert isinstance(found, RepeatedColumn)
    assert found == [7] * len(indexes)
