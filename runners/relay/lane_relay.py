"""LaneRelay: sends what waits in one lane of an outbox to its sink, exactly once.

The order of its acts is the whole proof: take the lane, fence it in the sink, ask the sink for its number, and then
send the batch above it; a batch is deleted only when the sink has said that it has it.  Where the outcome of a write is
unknown it is not sent again: the lane is taken, fenced and asked anew.
"""

import logging
from collections.abc import Callable, Sequence

from dataflow.errors import SinkError, SinkFencedError
from dataflow.serialization import loads
from dataflow.sink import Lane, Sink, SinkChange, SinkWriter
from dataflow.times import in_words
from runners.core.ground.clock import Clock
from runners.relay.batch_timer import BatchTimer
from runners.relay.outbox import (
    LanePlace,
    OutboxBatch,
    OutboxStore,
    PartialBatch,
    Taken,
    TakenLane,
    values_of,
)

_LOG = logging.getLogger(__name__)

OpenWriter = Callable[[Sink[object], Lane], SinkWriter]


class LaneRelay:
    """Relays one lane.  After any exception of `step` it begins anew with the next one.

    Args:
        outbox: that has the lane; of this thread.
        sink: that takes its rows.
        place: of the lane.
        open_writer: opens a writer of the sink.
        clock: tells how long changes have waited for a batch to be full.
    """

    def __init__(
        self,
        outbox: OutboxStore,
        sink: Sink[object],
        place: LanePlace,
        open_writer: OpenWriter,
        clock: Clock,
    ) -> None:
        self._outbox, self._sink, self.place = outbox, sink, place
        self._open, self._timer = open_writer, BatchTimer(sink.batching, clock)
        self._lane: TakenLane | None = None
        self._writer: SinkWriter | None = None
        self._delivered = 0

    def step(self, *, is_last: bool = False) -> int:
        """Send the next batch, if it is full or due.

        Args:
            is_last: whether no more changes come, so that what waits is sent whether it fills a batch or not.

        Returns:
            How many changes were sent; 0: none waits, or they wait for others.

        Raises:
            SinkFencedError: another relay has the lane, or has it no more.
            SinkRefusedError: the sink takes no such rows.
            SinkError: the sink has other batches than were sent to it.
            Exception: whatever else the sink or the store raises; trying again may help.
        """
        try:
            return self._step(is_last=is_last)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the lane; a later `step` takes it again."""
        self._lane = None
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _step(self, *, is_last: bool) -> int:
        if self._lane is None:
            # So many jobs never write to a sink; nobody is asked before there is something to say.
            is_waiting = bool(self._outbox.count_waiting(self.place))
            self._timer.note_first_look(is_waiting=is_waiting)
            if not is_waiting:
                return 0
            self._take()
        elif not (is_last or self._timer.is_to_look()):
            return 0
        assert self._lane is not None
        assert self._writer is not None
        batch = self._outbox.next_batch(
            self._lane,
            self._delivered,
            self._sink.batching,
            is_due=is_last or self._timer.is_due(),
        )
        if isinstance(batch, Taken):
            raise SinkFencedError(f"another process relays {self.place}")
        if isinstance(batch, PartialBatch):
            self._timer.note_partial()
            return 0
        if batch is not None:
            self._writer.write(batch.number, self._changes(batch))
            self._delivered = batch.number
            self._report(batch)
        self._timer.restart()
        return 0 if batch is None else len(batch.rows)

    def _take(self) -> None:
        lane = self._outbox.take_lane(self.place)
        delivered = lane.number - lane.is_in_flight
        writer = self._writer = self._open(
            self._sink,
            Lane(
                writer=lane.writer,
                number=self.place.number,
                title=str(self.place),
                delivered=delivered,
            ),
        )
        number = writer.fence(lane.token)
        if number not in {delivered, lane.number}:
            raise _other_number(lane, number)
        self._lane, self._delivered = lane, number

    def _report(self, batch: OutboxBatch) -> None:
        """Log how old what is visible now was; only of sinks for which changes wait."""
        if self._sink.batching.max_delay_ms:
            waited_ms = self._timer.waited_ms()
            _LOG.info(
                "%s: batch %d with %d changes is written; the first of them had waited for %s",
                self.place,
                batch.number,
                len(batch.rows),
                "longer than this relay is there"
                if waited_ms is None
                else in_words(waited_ms * 1_000),
            )

    def _changes(self, batch: OutboxBatch) -> Sequence[SinkChange]:
        if self._sink.columns is not None:
            signed = map(values_of, batch.rows)
            return [SinkChange(values, sign) for sign, values in signed]
        return [SinkChange(loads(value), sign) for sign, value in batch.rows]


def _other_number(lane: TakenLane, number: int) -> SinkError:
    is_ahead = number > lane.number
    return SinkError(
        f"{lane.place}: the sink has batch {number}, but batch {lane.number} "
        f"{'is on its way' if lane.is_in_flight else 'was delivered last'}",
        detail="the store is at an earlier moment than the sink"
        if is_ahead
        else "the sink has lost what it had confirmed",
        hint=f"was a backup of the {'store' if is_ahead else 'sink'} restored? nothing is sent, so that nothing is "
        "written twice or left out; bring both to one moment, or begin the job anew with an empty sink",
    )
