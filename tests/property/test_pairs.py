"""What groupings take as pairs, whatever the others in the bundle are."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.combine_fn import ListCombineFn
from dataflow.errors import TransformError
from dataflow.graph import MAIN, Group, TransformNode
from runners.core.ground.pairs import refuse_other_than_pairs


class Visit(NamedTuple):
    """A tuple of two, as a class."""

    user: Any
    page: str


class Flag(int):
    """A key of a class that is not known by itself."""


PAIRS: Sequence[Any] = [
    ("a", 1),
    (1, []),
    (None, None),
    ((1, 2), 3),
    (True, 4),
    (2.5, 5),
    (Flag(1), 6),
    Visit("a", "b"),
]
NO_PAIRS: Sequence[Any] = ["ab", ["a", 1], {"a": 1, "b": 2}, (), ("a",), ("a", 1, 2), 7, None]
NO_KEYS: Sequence[Any] = [([], 1), ({}, 2), ((1, []), 3), Visit([], "b")]
NODE = TransformNode(
    label="group",
    location="here.py:1",
    operation=Group(ListCombineFn()),
    inputs=(0,),
    outputs={MAIN: 1},
)


@given(
    pairs=st.lists(st.sampled_from(PAIRS), max_size=4),
    others=st.lists(st.sampled_from([*NO_PAIRS, *NO_KEYS]), max_size=2),
    more=st.lists(st.sampled_from(PAIRS), max_size=2),
)
def test_a_bundle_is_refused_for_each_that_is_no_pair_with_a_key(
    pairs: list[Any], others: list[Any], more: list[Any]
) -> None:
    """The error shows the first of them."""
    refused: AbstractContextManager[Any] = nullcontext()
    if others:
        fact = "needs" if any(others[0] is each for each in NO_PAIRS) else "cannot be hashed"
        refused = pytest.raises(TransformError, match=fact)
    with refused:
        refuse_other_than_pairs(NODE, [*pairs, *others, *more])
