"""Layers of a drawing: arrows lead on, by the longest path, and crossings that need not be are not."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.layers import crossings, layers_of


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(0, 12))
    pairs = [(start, end) for start in range(count) for end in range(start + 1, count)]
    arrows = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    numbers = draw(st.permutations(range(count)))
    return count, [(numbers[start], numbers[end]) for start, end in arrows]


def in_order_of_numbers(layers: Sequence[Sequence[int]]) -> list[list[int]]:
    return [sorted(layer) for layer in layers]


@given(graph=graphs())
def test_each_box_is_right_behind_the_last_that_leads_to_it(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    count, arrows = graph
    layers = layers_of(count, arrows)
    ranks = {box: rank for rank, layer in enumerate(layers) for box in layer}
    assert sorted(ranks) == list(range(count))
    assert sum(map(len, layers)) == count
    for box in range(count):
        before = [ranks[start] for start, end in arrows if end == box]
        assert ranks[box] == max(before, default=-1) + 1
    assert crossings(layers, arrows) <= crossings(in_order_of_numbers(layers), arrows)
    assert layers == layers_of(count, arrows)


def test_crossings_that_need_not_be_are_not() -> None:
    arrows = [(0, 5), (1, 4), (2, 3), (3, 6), (4, 7), (5, 8)]
    layers = layers_of(9, arrows)
    assert crossings(in_order_of_numbers(layers), arrows) > 0
    assert crossings(layers, arrows) == 0


def test_equals_stay_where_they_were() -> None:
    assert layers_of(4, [(0, 3), (1, 3), (2, 3)]) == [[0, 1, 2], [3]]


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        layers_of(2, [(0, 1), (1, 0)])
