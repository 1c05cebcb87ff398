"""Inbox: deliveries that have arrived and have not been processed yet.

**Invariants**

* The deliveries that wait on a channel have no gap, follow what the range has accepted, and are each there once: a
  sender that is not answered sends everything again.
* So they are never more than what senders have unacknowledged, and senders stop at a limit of their own.  In this way a
  slow computation slows down the one before it, and in the end the source (backpressure).
"""

from collections import defaultdict, deque
from collections.abc import Mapping

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.step_limits import STEP_LIMITS


class Inbox:
    """Deliveries that wait for the ranges of one worker.

    Args:
        ranges: those that it owns; kept up to date by the worker.
    """

    def __init__(self, ranges: Mapping[RangeId, OwnedRange]) -> None:
        self._ranges = ranges
        self._waiting: dict[str, deque[Deliver]] = defaultdict(deque)
        self._last: dict[Channel, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def has(self, computation: str) -> bool:
        """Whether a delivery waits for a computation."""
        return bool(self._waiting[computation])

    def put(self, delivery: Deliver) -> bool:
        """Add a delivery; returns whether it was processed before, so that its sender needs another acknowledgement."""
        channel, sequence = delivery.channel, delivery.sequence
        owned = self._ranges.get(channel.receiver)
        if owned is None:
            return False
        last = max(self._last.get(channel, 0), owned.accepted.get(channel, 0))
        if delivery.follows(last):
            self._last[channel] = sequence
            self._waiting[channel.receiver.computation].append(delivery)
        return sequence <= owned.delivered.get(channel, 0)

    def take(
        self, computation: str, deliveries_max: int, bytes_max: int = STEP_LIMITS.nbytes
    ) -> list[Deliver]:
        """Remove and return the oldest deliveries for a computation, no more than a step should take in.

        Args:
            computation: its name.
            deliveries_max: at most so many.
            bytes_max: payloads of at most so many bytes together, but at least one delivery.

        Returns:
            In the order in which they came; empty if none waits.
        """
        waiting, taken, size = self._waiting[computation], list[Deliver](), 0
        while waiting and len(taken) < deliveries_max:
            size += len(waiting[0].payload)
            if taken and size > bytes_max:
                break
            taken.append(waiting.popleft())
        return taken

    def forget(self, range_id: RangeId) -> None:
        """Drop what waits for a range that is not owned any more."""
        waiting = self._waiting[range_id.computation]
        kept = [each for each in waiting if each.channel.receiver != range_id]
        self._waiting[range_id.computation] = deque(kept)
        for channel in [each for each in self._last if each.receiver == range_id]:
            del self._last[channel]
