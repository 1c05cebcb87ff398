"""Layers: where the boxes of a drawing stand, so that arrows lead on and few of them cross.

A box is one layer behind the last of those that lead to it (the longest path).  Within its layer the order is that of
the mean place of its neighbours (the barycentre), looked at from both sides a few times, which is Sugiyama's method
without boxes for the bends of long arrows.  Equals keep the order in which they came, so a drawing does not jump.
"""

from collections.abc import Collection, Mapping, Sequence

_SWEEPS = 4


def layers_of(count: int, arrows: Collection[tuple[int, int]]) -> list[list[int]]:
    """The boxes of each layer, in their order.

    Args:
        count: how many boxes; they are numbered from 0.
        arrows: from box to box; there is no circle.
    """
    ranks = _ranks(count, arrows)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for box, rank in enumerate(ranks):
        layers[rank].append(box)
    before: dict[int, list[int]] = {box: [] for box in range(count)}
    behind: dict[int, list[int]] = {box: [] for box in range(count)}
    for start, end in arrows:
        before[end].append(start)
        behind[start].append(end)
    best, fewest = layers, crossings(layers, arrows)
    for sweep in range(_SWEEPS):
        layers = _swept(layers, before if sweep % 2 == 0 else behind, is_forward=sweep % 2 == 0)
        found = crossings(layers, arrows)
        if found < fewest:
            best, fewest = layers, found
    return best


def crossings(layers: Sequence[Sequence[int]], arrows: Collection[tuple[int, int]]) -> int:
    """How many pairs of arrows between the same two layers cross.

    Args:
        layers: as `layers_of` returns them.
        arrows: from box to box.
    """
    places = {box: (rank, at) for rank, layer in enumerate(layers) for at, box in enumerate(layer)}
    drawn = [(places[start], places[end]) for start, end in arrows]
    return sum(
        one[0][0] == other[0][0]
        and one[1][0] == other[1][0]
        and (one[0][1] - other[0][1]) * (one[1][1] - other[1][1]) < 0
        for number, one in enumerate(drawn)
        for other in drawn[:number]
    )


def _ranks(count: int, arrows: Collection[tuple[int, int]]) -> list[int]:
    ranks = [0] * count
    for _ in range(count):
        is_done = True
        for start, end in arrows:
            if ranks[end] <= ranks[start]:
                ranks[end], is_done = ranks[start] + 1, False
        if is_done:
            return ranks
    if arrows:
        raise ValueError("the arrows lead in a circle")
    return ranks


def _swept(
    layers: Sequence[Sequence[int]], neighbours: Mapping[int, Sequence[int]], *, is_forward: bool
) -> list[list[int]]:
    """Each layer in the order of its neighbours in those that come before it in this direction."""
    ordered = [list(layer) for layer in layers]
    places: dict[int, float] = {}
    for rank in range(len(layers)) if is_forward else reversed(range(len(layers))):
        layer = ordered[rank]
        own = {box: _relative(at, len(layer)) for at, box in enumerate(layer)}
        centres = {
            box: sum(places[each] for each in near) / len(near)
            if (near := [each for each in neighbours[box] if each in places])
            else own[box]
            for box in layer
        }
        layer.sort(key=lambda box, centres=centres: centres[box])  # type: ignore[misc]
        places |= {box: _relative(at, len(layer)) for at, box in enumerate(layer)}
    return ordered


def _relative(at: int, of: int) -> float:
    """Layers of different sizes are compared as if they were as long."""
    return (at + 0.5) / of
