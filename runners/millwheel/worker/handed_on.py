"""HandedOn: partials that one computation of a worker hands on to another one within a round.

Both are made durable by the commit of the round, so nothing can come between: no number says that they were taken in,
and they are on no channel (ADR 0112).  What the receiver does not take in within the round is sent on channels after
all, by the same commit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import attrs

from runners.core.partials.partial import Partial
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange


@attrs.frozen
class HandedOn:
    """Partials for one grouping.

    Attributes:
        receiver: the name of the grouping.
        sender: the range that has made them.
        hold_us: as of `OwnedRange.send`.
        nbytes: about how many bytes they have.
        partials: as they are, if they are of plain values; None: as payloads.
        payloads: by the range that receives them, in their order.
    """

    receiver: str
    sender: OwnedRange
    hold_us: int
    nbytes: int
    partials: Sequence[Partial] | None = None
    payloads: Sequence[tuple[RangeId, bytes]] = ()


class HandedOnPart(NamedTuple):
    """Partials that one range hands on to another one, as they are or encoded."""

    sender: OwnedRange
    receiver: OwnedRange
    content: Sequence[Partial] | bytes
