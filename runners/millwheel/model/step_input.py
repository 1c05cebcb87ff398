"""StepInput: what a step of a worker works on, named so that it is known again when another worker is given it."""

from typing import NamedTuple

from runners.millwheel.model.ids import RangeId


class StepInput(NamedTuple):
    """Input of a step: some deliveries of one sender, the next records of a split, or what is due in key ranges.

    It is numbered, so that the same input and a later one are not the same.  The deliveries of a sender come in one
    order to every owner of the range, and those of other senders count for themselves: a range can go on with these for
    ever while it comes to the same delivery of this one again and again.

    Attributes:
        ranges: that the step is for: one, or all ranges of a computation on a worker where timers or signals are due.
        sender: of the deliveries; None: there are none.
        first: the sequence number of the first delivery, or how many bundles of the ranges are committed.
        last: the number of the last delivery, or the same as ``first``; None: of what is due, which a worker comes to
            before anything else, in as many steps as it takes.
    """

    ranges: tuple[RangeId, ...]
    sender: RangeId | None
    first: int
    last: int | None

    def __str__(self) -> str:
        return ", ".join(map(str, self.ranges))
