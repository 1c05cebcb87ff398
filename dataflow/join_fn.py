"""JoinFn: the pairs that two collections make of a group, and how these change when the group does.

The values of a group all have one key, so the pairs of an inner join are all combinations of a left and a right value.
In an outer join a side that has nothing, while the other has something, stands for one that is missing: None.  So each
side *counts for* its values, or for one None; the pairs are all combinations of what the sides count for.

When sides change, the pairs with values that are gone from one go, and the pairs with values that are new on one come;
pairs of values that stay on both sides are not looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import product
from typing import Any

import attrs

from dataflow.co_group_fn import CoGroupFn
from dataflow.combine_fn import ChangingCombineFn

LEFT, RIGHT = "left", "right"


class JoinType(Enum):
    """The kinds of join, by the pairs for values that meet none of the other side."""

    #: Nothing.
    INNER = "inner"
    #: A left value with None.
    LEFT_OUTER = "left outer"
    #: A right value with None.
    RIGHT_OUTER = "right outer"
    #: Each with None.
    FULL_OUTER = "full outer"

    @property
    def keeps_left(self) -> bool:
        """Whether a left value is emitted without a right one."""
        return self in {JoinType.LEFT_OUTER, JoinType.FULL_OUTER}

    @property
    def keeps_right(self) -> bool:
        """Whether a right value is emitted without a left one."""
        return self in {JoinType.RIGHT_OUTER, JoinType.FULL_OUTER}


@attrs.frozen
class Pairs:
    """Pairs, as the two lists whose combinations they are; made when they are asked for."""

    products: tuple[tuple[Sequence[Any], Sequence[Any]], ...] = ()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for lefts, rights in self.products:
            yield from product(lefts, rights)

    def __bool__(self) -> bool:
        return any(lefts and rights for lefts, rights in self.products)


def _nothing() -> list[Any]:
    return []


@attrs.frozen(kw_only=True)
class SideChange:
    """How the values of one side change.

    Attributes:
        gone, come: the values that leave it and those that are new in it, each as often as it is.
        kept: makes the list of the values that stay; called only if one of them is in a pair that changes.
        size: how many values there were before.
    """

    gone: Sequence[Any] = ()
    come: Sequence[Any] = ()
    kept: Callable[[], list[Any]] = _nothing
    size: int = 0

    @property
    def size_now(self) -> int:
        """How many values there are afterwards."""
        return self.size - len(self.gone) + len(self.come)


def changed_pairs(join_type: JoinType, left: SideChange, right: SideChange) -> tuple[Pairs, Pairs]:
    """The pairs that go, and those that come, when both sides change.

    Takes as long as there are such pairs, and values that have changed.

    Args:
        join_type: which values without a partner make pairs.
        left: how often each value of the left side was there before, and is now.
        right: the same of the right side.
    """
    misses_right = [join_type.keeps_left and bool(n) for n in (left.size, left.size_now)]
    misses_left = [join_type.keeps_right and bool(n) for n in (right.size, right.size_now)]
    left, right = _padded(left, *misses_left), _padded(right, *misses_right)
    return (
        _pairs(left.gone, left, right.gone, right),
        _pairs(left.come, left, right.come, right),
    )


def _padded(side: SideChange, before: bool, after: bool) -> SideChange:  # noqa: FBT001 - two moments
    """A side with None in place of no value, where one is missed by the other side before, or afterwards."""
    was_none, is_none = before and not side.size, after and not side.size_now
    if was_none and is_none:
        return SideChange(kept=lambda: [None])
    gone = [None] if was_none else side.gone
    come = [None] if is_none else side.come
    return attrs.evolve(side, gone=gone, come=come)


def _pairs(
    lefts: Sequence[Any], left: SideChange, rights: Sequence[Any], right: SideChange
) -> Pairs:
    """Pairs with one of these values on either side, or on both."""
    products: list[tuple[Sequence[Any], Sequence[Any]]] = []
    if lefts and (others := [*right.kept(), *rights]):
        products.append((lefts, others))
    if rights and (others := left.kept()):
        products.append((others, rights))
    return Pairs(tuple(products))


@attrs.frozen
class JoinFn(CoGroupFn, ChangingCombineFn):
    """The `Pairs` of a left and a right collection."""

    join_type: JoinType

    @classmethod
    def of(cls, join_type: JoinType) -> "JoinFn":
        """A `JoinFn` for inputs that are tagged as `LEFT` and `RIGHT`."""
        return cls((LEFT, RIGHT), join_type)

    def extract_output(self, accumulator: tuple[list[Any], ...]) -> Pairs:
        """All pairs."""
        return self.pairs([list(values) for values in accumulator])

    def pairs(self, sides: Sequence[Sequence[Any]]) -> Pairs:
        """All pairs of a left and a right list."""
        left, right = (SideChange(come=values) for values in sides)
        return changed_pairs(self.join_type, left, right)[1]

    def changes(
        self, accumulator: tuple[list[Any], ...], more: tuple[list[Any], ...]
    ) -> tuple[Pairs, Pairs]:
        """The pairs that go, and those that come, with more values."""
        return self.changed(
            [
                SideChange(come=list(new), kept=values.copy, size=len(values))
                for values, new in zip(accumulator, more, strict=True)
            ]
        )

    def changed(self, sides: Sequence[SideChange]) -> tuple[Pairs, Pairs]:
        """The pairs that go, and those that come, when the left and the right side change."""
        left, right = sides
        return changed_pairs(self.join_type, left, right)
