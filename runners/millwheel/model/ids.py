"""Names of the things the exactly-once core fences, delivers and counts.

Values only: they cross process boundaries, so they are small, frozen and hashable.
MillWheel, sections 4.1 (keys, computations) and 6.2 (sequencers).
"""

from typing import NamedTuple

import attrs


class RangeId(NamedTuple):
    """One key range of one computation; for a source computation, one split.

    Attributes:
        index: counts the ranges of the computation from 0.
    """

    computation: str
    # In place of the method of tuples, which nothing asks a range for.
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.computation}[{self.index}]"

    @classmethod
    def parse(cls, text: str) -> "RangeId":
        """The inverse of `str`.

        Raises:
            ValueError: it is not the name of a range.
        """
        computation, bracket, index = text.removesuffix("]").rpartition("[")
        if not bracket or not text.endswith("]") or not index.isdecimal():
            raise ValueError(f"{text!r} is not the name of a range, such as count[0]")
        return cls(computation, int(index))


class Channel(NamedTuple):
    """The ordered stream of productions from one range to another.

    Deliveries on a channel carry a gap-free sequence starting at 1, so that "seen before" is one number.
    """

    sender: RangeId
    receiver: RangeId


@attrs.frozen(kw_only=True)
class Fence:
    """The right to commit one bundle on one range, spent by that commit.

    A commit that was delayed on the wire cannot land after its successor, of whichever owner (MillWheel 6.2,
    figure 12).

    Attributes:
        token: changes with the owner.
        bundle: changes with every commit; the store must have ``bundle - 1``.
    """

    range_id: RangeId
    token: int
    bundle: int


class CommitMark(NamedTuple):
    """The last commit of a range that is known; both numbers only grow, unless the store loses commits."""

    token: int
    bundle: int

    def __str__(self) -> str:
        return f"bundle {self.bundle} under token {self.token}"


class Receipt(NamedTuple):
    """What a receiver reports when it acknowledges: the commit as of which what it took in is durable.

    Attributes:
        is_remembered: whether the number of the delivery is durable too, and not only its effects.
    """

    mark: CommitMark
    is_remembered: bool
