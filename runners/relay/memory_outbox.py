"""MemoryOutbox: the lanes of outboxes in memory."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from sys import getsizeof

import attrs

from dataflow.sink import Batching
from dataflow.table import Row
from runners.core.tables.changelog import Rows
from runners.relay.outbox import (
    AT_ONCE,
    PARTIAL,
    TAKEN,
    LaneFailure,
    LanePlace,
    LaneStatus,
    OutboxBatch,
    PartialBatch,
    Taken,
    TakenLane,
)


@attrs.define
class _Lane:
    """A lane; nobody has taken it while its token is 0.

    Attributes:
        in_flight: the keys of the rows in flight.
    """

    outbox: str
    writer: str
    token: int = 0
    number: int = 0
    in_flight: list[int] = attrs.field(factory=list)
    failure: LaneFailure | None = None


class MemoryOutbox:
    """Lanes of outboxes in memory; `runners.relay.outbox.OutboxStore` has the contract.

    Args:
        run: a text that no other run has: the part of a writer's name that differs.
        rows: the rows of the table with a name: by number, with the lane as the first value.
        now_us: the time since 1970, in microseconds, at which failures are noted.
    """

    def __init__(
        self, run: str, rows: Callable[[str], Rows], now_us: Callable[[], int] = lambda: 0
    ) -> None:
        self._run, self._rows, self._now_us = run, rows, now_us
        self._lanes_made = itertools.count(1)
        self._lanes: dict[tuple[str, str, int], _Lane] = {}

    def take_lane(self, place: LanePlace) -> TakenLane:
        """Take a lane."""
        lane = self._lane(place)
        lane.token += 1
        return TakenLane(
            place=place,
            writer=lane.writer,
            token=lane.token,
            number=lane.number,
            is_in_flight=bool(lane.in_flight),
        )

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        """Note what is delivered, and take the batch after it.

        Args:
            lane: as it was taken.
            delivered: the number of the last batch that the sink has.
            batching: when a batch is full.
            is_due: whether a batch that is not full is taken too.
        """
        known = self._lanes.get(_key(lane.place))
        if known is None or (known.token, known.writer) != (lane.token, lane.writer):
            return TAKEN
        if delivered > known.number:
            return TAKEN
        rows = self._rows(lane.place.outbox.name)
        if delivered == known.number:
            for key in known.in_flight:
                del rows[key]
            known.in_flight = []
            waiting = [
                (key, row)
                for key, row in rows.items()
                if row[0] == lane.place.number and type(key) is int
            ]
            keys, size_bytes = _fitting(waiting, batching)
            is_full = len(keys) == batching.max_rows or size_bytes >= batching.max_bytes
            if keys and not (is_due or is_full):
                return PARTIAL
            known.in_flight, known.number = keys, known.number + bool(keys)
        if not known.in_flight:
            return None
        return OutboxBatch(number=known.number, rows=[rows[key][1:] for key in known.in_flight])

    def count_waiting(self, place: LanePlace) -> int:
        """How many rows of the lane are not known to be delivered."""
        return sum(row[0] == place.number for row in self._rows(place.outbox.name).values())

    def note_failure(self, place: LanePlace, reason: str | None) -> None:
        """Keep that a lane cannot be sent; None: it can."""
        lane, now_us = self._lane(place), self._now_us()
        before = lane.failure
        lane.failure = (
            None
            if reason is None
            else LaneFailure(
                since_us=before.since_us if before else now_us,
                last_us=now_us,
                tries=1 + (before.tries if before else 0),
                reason=reason,
            )
        )

    def status(self, job: str, outbox: str) -> Sequence[LaneStatus]:
        """The lanes of an outbox, in order.

        Args:
            job: its name.
            outbox: the name of the table.
        """
        waiting = Counter(row[0] for row in self._rows(outbox).values())
        taken = {
            number: (sink, lane)
            for (of_job, sink, number), lane in self._lanes.items()
            if of_job == job and lane.outbox == outbox
        }
        found = []
        for number in sorted({*waiting, *taken}):
            sink, lane = taken.get(number, (None, None))
            found.append(
                LaneStatus(
                    outbox=outbox,
                    sink=sink,
                    number=number,
                    waiting=waiting[number],
                    oldest_us=None,
                    delivered=lane.number - bool(lane.in_flight) if lane and lane.token else None,
                    failure=lane.failure if lane else None,
                )
            )
        return found

    def _lane(self, place: LanePlace) -> _Lane:
        lane = self._lanes.get(_key(place))
        if lane is None:
            writer = f"{self._run} {next(self._lanes_made)}"
            lane = self._lanes[_key(place)] = _Lane(place.outbox.name, writer)
        return lane

    def forget_outbox(self, job: str, outbox: str) -> None:
        """Forget the lanes of an outbox that is dropped.

        Args:
            job: its name.
            outbox: the name of the table.
        """
        self._lanes = {
            key: lane for key, lane in self._lanes.items() if key[0] != job or lane.outbox != outbox
        }

    def forget(self, job: str) -> None:
        """Forget the lanes of a job that is reset.

        Args:
            job: its name.
        """
        for key in [each for each in self._lanes if each[0] == job]:
            del self._lanes[key]


def _fitting(waiting: Sequence[tuple[int, Row]], batching: Batching) -> tuple[list[int], int]:
    """The keys of the rows that fit into a batch; and the bytes of these, or of too many."""
    keys, total_bytes = list[int](), 0
    for key, row in waiting[: batching.max_rows]:
        total_bytes += sum(map(getsizeof, row))
        if keys and total_bytes > batching.max_bytes:
            break
        keys.append(key)
    return keys, total_bytes


def _key(place: LanePlace) -> tuple[str, str, int]:
    return place.job, place.sink, place.number
