"""PackSizes: how much a stage gathers for a grouping before it is packed.

As much as fits into `gather.PACKED_BYTES`, by the size of what was packed last.  Sizes in bytes differ from attempt to
attempt: a pickle depends on the identity of objects, and the frames around it on the version of the package.  In a
batch nobody minds.  In a backfill what is folded together decides what the next grouping has in its early panes, and in
which order it adds up floats; one receiver may have the output of one attempt, and the next one that of another.  So
there an attempt commits the sizes that it had (its *packings*), and later ones have the same.
"""

from collections.abc import Sequence
from typing import Self

import attrs


@attrs.frozen
class Packings:
    """The packings of an attempt at a range, for one grouping.

    Attributes:
        count: how many there were.
        changes: after which of them, counted from 1, how many records and how many partials were to be packed at most.
    """

    count: int = 0
    changes: Sequence[tuple[int, int, int]] = ()

    @property
    def numbers(self) -> Sequence[int]:
        """All of it as numbers, to be stored."""
        return [self.count, *(number for change in self.changes for number in change)]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Self:
        """The inverse of `numbers`."""
        count, *rest = numbers
        return cls(count, tuple(zip(rest[::3], rest[1::3], rest[2::3], strict=True)))


class PackSizes:
    """The sizes for one grouping.

    Args:
        records_first: the records to gather the first time, when their size is unknown.
        before: the packings of an earlier attempt, which this one has to follow as far as they go.

    Attributes:
        records_max: how many records to gather, where more of them take more room.
        partials_max: how many partials to gather; None: it is not known yet.
    """

    def __init__(self, records_first: int, before: Packings | None = None) -> None:
        self.records_max = records_first
        self.partials_max: int | None = None
        self._before = before or Packings()
        self._count, self._changes = 0, list[tuple[int, int, int]]()

    @property
    def packings(self) -> Packings:
        """What this attempt has packed so far."""
        return Packings(self._count, tuple(self._changes))

    def packed(self, records_fit: int, partials_fit: int) -> None:
        """Take note of a packing; what is to be packed next changes only if it is far from what fits.

        Args:
            records_fit: how many records would have had the right size.
            partials_fit: how many partials would have had it.
        """
        self._count += 1
        if self._count <= self._before.count:
            changes = self._before.changes
            here = [sizes for number, *sizes in changes if number == self._count]
        else:
            is_far = self.partials_max is None or (
                _is_far(self.records_max, records_fit) or _is_far(self.partials_max, partials_fit)
            )
            here = [[records_fit, partials_fit]] if is_far else []
        for records_max, partials_max in here:
            self.records_max, self.partials_max = records_max, partials_max
            self._changes.append((self._count, records_max, partials_max))


def _is_far(size: int, fit: int) -> bool:
    # A change is stored for good, and what is packed may well be half or twice as large.
    return not size <= 2 * fit <= 4 * size
