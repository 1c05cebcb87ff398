"""Signed groups: the values of several collections, some of which may be retracted, kept apart by collection.

Each side counts how often a value is there, below zero if it was retracted too early, and how many values there are,
so that neither has to be computed from all values.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any

import attrs

from dataflow.co_group_fn import CoGroupFn, Tagged
from dataflow.combine_fn import ChangingCombineFn
from dataflow.join_fn import JoinFn, Pairs, SideChange
from runners.core.partials.signed_combine import NAN, SignedCombineFn, as_given, not_found_again

#: The count of each value, and the number of values: ``[counts, size]``.
Side = list[Any]
Sides = tuple[Side, ...]


@attrs.frozen
class SignedCoGroupFn(SignedCombineFn):
    """A `CoGroupFn` over signed inputs."""

    combine_fn: CoGroupFn

    def create_accumulator(self) -> Sides:
        """An accumulator of no value on any side."""
        return tuple([[{}, 0] for _ in self.combine_fn.names])

    def add_inputs(self, accumulator: Sides, values: Iterable[tuple[Tagged, int]]) -> Sides:
        """Count values up and retractions down.

        Raises:
            TransformError: a value cannot be hashed.
        """
        sides = dict(zip(self.combine_fn.names, accumulator, strict=True))
        for (name, given), sign in values:
            value = NAN if type(given) is float and given != given else given  # noqa: PLR0124 - true of NaN alone
            try:
                _count(sides[name], value, sign)
            except TypeError as error:
                raise not_found_again(given, error) from None
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Sides]) -> Sides:
        """Add the counts up."""
        iterator = iter(accumulators)
        merged = next(iterator, None)
        if merged is None:
            return self.create_accumulator()
        for other in iterator:
            for side, (counts, _) in zip(merged, other, strict=True):
                for value, more in counts.items():
                    _count(side, value, more)
        return merged

    def extract_output(self, accumulator: Sides) -> Any:
        """The values of each collection."""
        return tuple(map(_values, accumulator))

    def size(self, accumulator: Sides) -> int:
        """The number of values of all collections, each counted as often as it is there."""
        return sum([size for _, size in accumulator])

    def is_void(self, accumulator: Sides) -> bool:
        """Whether every value has been retracted."""
        return not any(counts for counts, _ in accumulator)

    def unsigned(self, accumulator: Sides) -> tuple[list[Any], ...]:
        """The values of each collection, as `CoGroupFn` keeps them."""
        return tuple(map(_values, accumulator))


@attrs.frozen
class SignedJoinFn(SignedCoGroupFn, ChangingCombineFn):
    """A `JoinFn` over signed inputs."""

    combine_fn: JoinFn

    def extract_output(self, accumulator: Sides) -> Pairs:
        """All pairs of the values that are there."""
        return self.combine_fn.pairs(super().extract_output(accumulator))

    def changes(self, accumulator: Sides, more: Sides) -> tuple[Pairs, Pairs]:
        """The pairs that go, and those that come, when ``more`` is added to the counts.

        Args:
            accumulator: the counts before.
            more: the counts to add, below zero for retractions.
        """
        return self.combine_fn.changed(list(map(_change, accumulator, more)))


def _count(side: Side, value: Any, more: int) -> None:
    counts = side[0]
    before = counts.get(value, 0)
    after = before + more
    if after:
        counts[value] = after
    else:
        counts.pop(value, None)
    side[1] += max(after, 0) - max(before, 0)


def _values(side: Side) -> list[Any]:
    counts: Mapping[Any, int] = side[0]
    return _repeated(counts.items())


def _repeated(counts: Iterable[tuple[Any, int]]) -> list[Any]:
    return list(chain.from_iterable(repeat(as_given(value), count) for value, count in counts))


def _change(side: Side, more: Side) -> SideChange:
    """The change of a side when ``more`` is added; reads only ``more``, unless the values that stay are needed.

    Args:
        side: the counts before.
        more: the counts to add.
    """
    counts: Mapping[Any, int] = side[0]
    changed: Mapping[Any, int] = more[0]
    gone: list[tuple[Any, int]] = []
    come: list[tuple[Any, int]] = []
    for value, change in changed.items():
        before = counts.get(value, 0)
        after = max(before + change, 0)
        before = max(before, 0)
        (gone if after < before else come).append((value, abs(after - before)))
    return SideChange(
        gone=_repeated(gone), come=_repeated(come), kept=partial(_kept, side, more), size=side[1]
    )


def _kept(side: Side, more: Side) -> list[Any]:
    changed: Mapping[Any, int] = more[0]
    return _repeated(
        (value, min(count, count + changed.get(value, 0))) for value, count in side[0].items()
    )
