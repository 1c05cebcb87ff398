"""Pairs with a key: a bundle of others too is refused by the first element that is none, wherever it stands."""

from collections.abc import Sequence
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


PLAIN = [("a", 1), ("b", 2)]
#: What stands before and behind: nothing, pairs that are seen to be some all together, and pairs that are not.
AROUND: Sequence[Sequence[Any]] = [[], PLAIN, PAIRS]


@pytest.mark.parametrize("behind", AROUND, ids=["", "plain", "pairs"])
@pytest.mark.parametrize("before", AROUND, ids=["", "plain", "pairs"])
@pytest.mark.parametrize(
    ("others", "fact"), [(NO_PAIRS, r"needs \(key, value\) pairs"), (NO_KEYS, "cannot be hashed")]
)
def test_one_that_is_none_is_refused_among_any(
    others: Sequence[Any], fact: str, before: Sequence[Any], behind: Sequence[Any]
) -> None:
    for each in others:
        with pytest.raises(TransformError, match=fact):
            refuse_other_than_pairs(NODE, [*before, each, *behind])


@given(pairs=st.lists(st.sampled_from(PAIRS)))
def test_pairs_are_taken(pairs: list[Any]) -> None:
    refuse_other_than_pairs(NODE, pairs)
