"""Adapters with lanes that are wrong."""

import itertools

import attrs

from dataflow.sink import Batching
from runners.millwheel.store.memory.store import MemoryStore
from runners.relay.outbox import AT_ONCE, LanePlace, OutboxBatch, PartialBatch, Taken, TakenLane


class LeavesDeliveredRows(MemoryStore):
    """What was delivered stays in the outbox, and comes again."""

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        state = self._outbox._lanes[lane.place.job, lane.place.sink, lane.place.number]
        if delivered == state.number:
            state.in_flight = []
        return super().next_batch(lane, delivered, batching, is_due=is_due)


class NumbersBatchesAnew(MemoryStore):
    """Whoever takes a lane begins to count."""

    def take_lane(self, place: LanePlace) -> TakenLane:
        lane = super().take_lane(place)
        self._outbox._lanes[place.job, place.sink, place.number].number = 0
        return attrs.evolve(lane, number=0)


class LetsSeveralRelay(MemoryStore):
    """A lane that was taken is still that of its former relay."""

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        state = self._outbox._lanes.get((lane.place.job, lane.place.sink, lane.place.number))
        if state is not None and state.writer == lane.writer:
            lane = attrs.evolve(lane, token=state.token)
        return super().next_batch(lane, delivered, batching, is_due=is_due)


class ChoosesRowsAnew(MemoryStore):
    """The batch in flight is whatever waits when a lane is taken."""

    def take_lane(self, place: LanePlace) -> TakenLane:
        lane = super().take_lane(place)
        state = self._outbox._lanes[place.job, place.sink, place.number]
        if state.in_flight:
            rows = self._tables[place.outbox.name].rows
            state.in_flight = [key for key in rows if isinstance(key, int)]
        return lane


class MixesLanes(MemoryStore):
    """Every lane has all rows."""

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        rows = self._tables[lane.place.outbox.name].rows if self._jobs else {}
        for key, row in rows.items():
            rows[key] = (lane.place.number, *row[1:])
        return super().next_batch(lane, delivered, batching, is_due=is_due)


class RemembersLanesOfTheGone(MemoryStore):
    """A job begun anew has the lanes of the former one."""

    def reset_job(self, job: str) -> None:
        lanes = dict(self._outbox._lanes)
        super().reset_job(job)
        self._outbox._lanes.update(lanes)


class SendsTheLastFirst(MemoryStore):
    """Rows leave in the reverse order."""

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        batch = super().next_batch(lane, delivered, batching, is_due=is_due)
        if not isinstance(batch, OutboxBatch):
            return batch
        return attrs.evolve(batch, rows=list(itertools.chain(reversed(batch.rows))))


class HoldsNothing(MemoryStore):
    """What waits is taken, whether it fills a batch or not."""

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        del is_due
        return super().next_batch(lane, delivered, batching)
