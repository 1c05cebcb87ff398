"""The port of an outbox, as a relay sees it: lanes with a token, and batches with a number.

**Invariant:** a batch is the same rows under the same number until it is delivered, whoever asks; so it can be sent by
another relay, and the sink's number says whether it was.
**Invariant:** numbers of a lane have no gap, and rows leave it in the order of the commits that a row depends on.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from dataflow.sink import Batching
from dataflow.table import Row, TableSpec

#: What is there is sent.
AT_ONCE = Batching()


@attrs.frozen(kw_only=True)
class LanePlace:
    """Which lane: the same for every relay, now and later.

    Attributes:
        job: the job's name.
        sink: the label of the transform that writes to the sink.
        outbox: the table of the sink's rows.
        number: of the lane.
    """

    job: str
    sink: str
    outbox: TableSpec
    number: int

    def __str__(self) -> str:
        return f"lane {self.number} of {self.sink} in job {self.job}"


@attrs.frozen(kw_only=True)
class TakenLane:
    """A lane in the hands of a relay.

    Attributes:
        writer: what the sink knows the lane by (`dataflow.sink.Lane.writer`).
        token: of the relay; the next one has a higher one.
        number: of the batch in flight, or if there is none of the last one that was delivered.
        is_in_flight: whether that batch is not known to be delivered.
    """

    place: LanePlace
    writer: str
    token: int
    number: int
    is_in_flight: bool


@attrs.frozen(kw_only=True)
class OutboxBatch:
    """Rows of a lane, in order, without `dataflow.sink.LANE`: the sign, and the columns of the sink."""

    number: int
    rows: Sequence[Row]


@attrs.frozen(kw_only=True)
class LaneFailure:
    """A lane that cannot be sent now.

    Attributes:
        since_us: when it failed first, in microseconds since 1970, by the store's clock.
        last_us: when it failed last.
        tries: how often.
        reason: of the last time.
    """

    since_us: int
    last_us: int
    tries: int
    reason: str


@attrs.frozen(kw_only=True)
class VisibleBatch:
    """The last batch that a sink is known to have; times are in microseconds since 1970, by the store's clock.

    Attributes:
        first_us: when the first of its rows was written to the outbox.
        last_us: when the last one was.
        visible_us: when the store learnt that the sink has it.
    """

    first_us: int
    last_us: int
    visible_us: int


@attrs.frozen(kw_only=True)
class LaneStatus:
    """What waits in a lane, and how far the sink is.

    Attributes:
        outbox: the table of the sink's rows.
        sink: the label of the transform that writes to the sink; None: nobody has sent anything yet.
        number: of the lane.
        waiting: how many rows are not known to be delivered.
        oldest_us: when the first of them came, in microseconds since 1970; None: none waits, or it is not known.
        delivered: the number of the last batch that the sink is known to have; None: none was sent.
        failure: why it cannot be sent now; None: nothing is known to be in the way.
        visible: how fresh the sink is; None: nothing was sent, or it is not known.
    """

    outbox: str
    sink: str | None
    number: int
    waiting: int
    oldest_us: int | None
    delivered: int | None
    failure: LaneFailure | None
    visible: VisibleBatch | None = None

    @property
    def title(self) -> str:
        """Sink and lane, for people."""
        return f"lane {self.number} of {self.sink or self.outbox.partition('.')[2]}"


class PartialBatch:
    """Rows wait, fewer than fill a batch; none was taken."""


PARTIAL = PartialBatch()


class Taken:
    """The lane was taken by another relay, or does not know a batch that was sent; it is to be taken again."""


TAKEN = Taken()


class OutboxStore(Protocol):
    """Lanes of a store."""

    def take_lane(self, place: LanePlace) -> TakenLane:
        """Take a lane: whoever has had it can take no batch from then on.  May be called again after a failure.

        Raises:
            StoreError: there is no such job.
        """

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        """Note what is delivered, and take the batch after it; None: there are no rows.

        Idempotent: a batch that was taken and not delivered comes again, with the same rows.

        Args:
            lane: as it was taken.
            delivered: the number of the last batch that the sink has; its rows are deleted.
            batching: when a batch is full.
            is_due: whether a batch that is not full is taken too.
        """

    def count_waiting(self, place: LanePlace) -> int:
        """How many rows of the lane are not known to be delivered."""

    def note_failure(self, place: LanePlace, reason: str | None) -> None:
        """Keep that a lane cannot be sent, beside those of before; or that it can, and nothing of them.

        Args:
            place: of the lane.
            reason: why it cannot; None: it can.

        Raises:
            StoreError: there is no such job.
        """


def values_of(row: Row) -> tuple[int, tuple[Any, ...]]:
    """The sign of a row of a batch, and its columns."""
    return row[0], tuple(row[1:])
