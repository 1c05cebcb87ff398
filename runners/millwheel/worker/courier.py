"""Courier: takes a worker's deliveries and acknowledgements to the owner of their range, until they are answered.

What a range has sent stays in its outbox until it is acknowledged.  The courier knows only where to send it: to another
range of the same worker, to an address, or nowhere for now, because the range is changing owners.
MillWheel, sections 4.2 and 6.1.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from runners.core.ground.clock import Clock
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.wire.messages import Acknowledge, Deliver, encode
from runners.millwheel.wire.transport import Transport
from runners.millwheel.worker.inbox import Inbox
from runners.millwheel.worker.owned_range import OwnedRange, accepted_of
from runners.millwheel.worker.tracing import BundleTracer

#: Unacknowledged deliveries are sent again after this long; needed only after a lost message, or one after a gap.
RESEND_INTERVAL_MS = 2_000


class Courier:
    """Sends the deliveries and acknowledgements of one worker; not thread-safe.

    Args:
        ranges: those that the worker owns; kept up to date by it.
        transport: to the other workers.
        clock: only for the time between two attempts.
        tracing: of the worker; None: nothing is traced.
    """

    def __init__(
        self,
        ranges: Mapping[RangeId, OwnedRange],
        transport: Transport,
        clock: Clock,
        tracing: BundleTracer | None = None,
    ) -> None:
        self.ranges, self._transport, self._clock = ranges, transport, clock
        self._tracing = tracing or BundleTracer(None, clock)
        self._routes: dict[RangeId, str] = {}
        self._resent_ms = clock.monotonic_ms()
        self.inbox = Inbox(ranges)

    def send(self, checkpoint: Checkpoint) -> None:
        """Send a production of one of the worker's ranges to its receiver."""
        channel, sequence, _, payload = checkpoint
        owned = self.ranges[channel.sender]
        is_here = channel.receiver in self.ranges
        if not is_here and channel.receiver not in self._routes:
            return  # the range is changing its owner: the next owner is sent everything
        delivery = Deliver(
            channel, sequence, payload, owned.outbox.is_oldest(checkpoint),
            owned.origin_of(checkpoint), self._tracing.send(checkpoint),
        )  # fmt: skip
        if is_here:
            self.take_in(delivery)
        else:
            self._send(channel.receiver, delivery)

    def has_on_its_way(self, sender: OwnedRange, computation: str) -> bool:
        """Whether a range has sent a computation something that the computation has not taken in.

        Args:
            sender: the range.
            computation: the name of one whose ranges are all here.
        """
        return sender.outbox.hold_of(computation, partial(accepted_of, self.ranges)) is not None

    def hand_on(self, checkpoint: Checkpoint) -> None:
        """Let a range take a production in before that is committed, if it is one of this worker's.

        Args:
            checkpoint: of one of its ranges, which is committed with whatever is done with it, or before that.
        """
        channel, sequence, _, payload = checkpoint
        if channel.receiver not in self.ranges:
            return
        sender = self.ranges[channel.sender]
        is_oldest = sender.outbox.is_oldest(checkpoint)
        trace = self._tracing.send(checkpoint, is_handed_on=True)
        self.take_in(Deliver(channel, sequence, payload, is_oldest, sender.next_mark, trace))

    def take_in(self, delivery: Deliver) -> None:
        """Take in a delivery that has arrived; one that was processed long ago is acknowledged again."""
        if self.inbox.put(delivery):
            self.acknowledge([delivery.channel])

    def take_acknowledged(self, message: Acknowledge) -> None:
        """Take in an acknowledgement: a receiver has committed what it was sent."""
        owned = self.ranges.get(message.channel.sender)
        if owned is not None:
            owned.outbox.acknowledge(message.channel, message.sequence, message.receipt)
            self._tracing.acknowledged(message.channel, message.sequence)

    def acknowledge(self, channels: Iterable[Channel]) -> None:
        """Report to senders how far their channels have been committed."""
        for channel in channels:
            owned = self.ranges.get(channel.receiver)
            if owned is None or not owned.delivered.get(channel, 0):
                continue
            message = Acknowledge(channel, owned.delivered[channel], owned.receipt())
            if channel.sender in self.ranges:
                self.take_acknowledged(message)
            else:
                self._send(channel.sender, message)

    def reroute(self, addresses: Mapping[RangeId, str]) -> None:
        """Send everything unacknowledged to the new owners of ranges that have changed their owner."""
        changed = {
            range_id
            for range_id, address in addresses.items()
            if self._routes.get(range_id) != address
        }
        for address in set(self._routes.values()) - set(addresses.values()):
            self._transport.forget(address)
        self._routes = dict(addresses)
        self._send_again(changed, self.ranges)

    def send_all_of(self, senders: Iterable[RangeId]) -> None:
        """Send what is unacknowledged in the outboxes of ranges that have just been taken over."""
        self._send_again(self._receivers, senders)

    def resend_stale(self) -> None:
        """Send again, at intervals, what may have been lost."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._resent_ms >= RESEND_INTERVAL_MS:
            self._resent_ms = now_ms
            # Also to ranges of this worker: a sender whose productions are not durable may leave a gap after those of
            # the range's former owner, and what comes after the gap is taken in only when it has become the oldest.
            self._send_again(self._receivers, self.ranges)

    @property
    def _receivers(self) -> set[RangeId]:
        return {*self._routes, *self.ranges}

    def _send_again(self, receivers: set[RangeId], senders: Iterable[RangeId]) -> None:
        for owned in [self.ranges[each] for each in senders]:
            for checkpoint in list(owned.outbox.for_receivers(receivers)):
                self.send(checkpoint)

    def _send(self, range_id: RangeId, message: Deliver | Acknowledge) -> None:
        # Without a route the range is changing its owner: the next owner sends again and is answered.
        address = self._routes.get(range_id)
        if address is not None:
            self._transport.send(address, encode(message))
