"""MemoryOutbox: the lanes of outboxes in memory."""

import itertools
from collections.abc import Callable

import attrs

from runners.core.tables.changelog import Rows
from runners.relay.outbox import (
    BATCH_ROWS_MAX,
    TAKEN,
    LanePlace,
    OutboxBatch,
    Taken,
    TakenLane,
)


@attrs.define
class _Lane:
    """A lane.

    Attributes:
        in_flight: the keys of the rows in flight.
    """

    writer: str
    token: int = 0
    number: int = 0
    in_flight: list[int] = attrs.field(factory=list)


class MemoryOutbox:
    """Lanes of outboxes in memory; `runners.relay.outbox.OutboxStore` has the contract.

    Args:
        run: a text that no other run has: the part of a writer's name that differs.
        rows: the rows of the table with a name: by number, with the lane as the first value.
        batch_rows_max: rows of a batch.
    """

    def __init__(
        self, run: str, rows: Callable[[str], Rows], *, batch_rows_max: int = BATCH_ROWS_MAX
    ) -> None:
        self._run, self._rows, self._batch_rows_max = run, rows, batch_rows_max
        self._lanes_made = itertools.count(1)
        self._lanes: dict[tuple[str, str, int], _Lane] = {}

    def take_lane(self, place: LanePlace) -> TakenLane:
        """Take a lane."""
        lane = self._lanes.get(_key(place))
        if lane is None:
            writer = f"{self._run} {next(self._lanes_made)}"
            lane = self._lanes[_key(place)] = _Lane(writer)
        lane.token += 1
        return TakenLane(
            place=place,
            writer=lane.writer,
            token=lane.token,
            number=lane.number,
            is_in_flight=bool(lane.in_flight),
        )

    def next_batch(self, lane: TakenLane, delivered: int) -> OutboxBatch | Taken | None:
        """Note what is delivered, and take the batch after it.

        Args:
            lane: as it was taken.
            delivered: the number of the last batch that the sink has.
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
            of_lane = [key for key, row in rows.items() if row[0] == lane.place.number]
            known.in_flight = [key for key in of_lane[: self._batch_rows_max] if type(key) is int]
            known.number += bool(known.in_flight)
        if not known.in_flight:
            return None
        return OutboxBatch(number=known.number, rows=[rows[key][1:] for key in known.in_flight])

    def count_waiting(self, place: LanePlace) -> int:
        """How many rows of the lane are not known to be delivered."""
        return sum(row[0] == place.number for row in self._rows(place.outbox.name).values())

    def forget(self, job: str) -> None:
        """Forget the lanes of a job that is reset.

        Args:
            job: its name.
        """
        for key in [each for each in self._lanes if each[0] == job]:
            del self._lanes[key]


def _key(place: LanePlace) -> tuple[str, str, int]:
    return place.job, place.sink, place.number
