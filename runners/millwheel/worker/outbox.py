"""Outbox: what a range has committed and not yet seen acknowledged.

Send, process, commit, acknowledge, delete: an entry is durable before it is sent, is sent again until it is
acknowledged, and holds its sender's output watermark all the while.  The receiver deduplicates by one number per
channel, so a channel is always sent in order, from its oldest entry on.

MillWheel, section 6.1 (strong productions).  Pure bookkeeping: no sockets, no store.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from runners.millwheel.model.ids import Channel, RangeId, Receipt
from runners.millwheel.model.production import Checkpoint

ValueT = TypeVar("ValueT")


class Outbox:
    """Unacknowledged productions of one range.

    Args:
        checkpoints: those that are durable.
        sent: the highest sequence of each channel so far.
        weak_from: where sequences begin if new productions are not durable at once; None: they are.  A later owner must
            begin higher up, because it does not know how far this one came.
    """

    def __init__(
        self,
        checkpoints: Iterable[Checkpoint],
        sent: Mapping[Channel, int],
        *,
        weak_from: int | None = None,
    ) -> None:
        self._weak_from = weak_from
        #: Productions that are not durable.
        self._volatile: set[tuple[Channel, int]] = set()
        self._open: dict[Channel, deque[Checkpoint]] = {}
        #: Of each channel the open entries after which none has a lower hold: the first of them has the lowest of all.
        self._holding: dict[Channel, deque[Checkpoint]] = {}
        self._sent = dict(sent)
        self._acknowledged: dict[Channel, int] = {}
        #: The receipts that came with acknowledgements, of channels that are in the outbox or were.
        self.receipts: dict[Channel, Receipt] = {}
        #: Of each channel with acknowledged productions that are not deleted yet, the first of these.
        self._undeleted: dict[Channel, int] = {}
        self._open_bytes = 0
        for checkpoint in sorted(checkpoints, key=lambda each: each.sequence):
            self._add(checkpoint)

    @property
    def open_bytes(self) -> int:
        """Bytes sent and not acknowledged: what flow control counts."""
        return self._open_bytes

    def open_bytes_by_receiver(self) -> Mapping[RangeId, int]:
        """Bytes sent and not acknowledged, by the range that they were sent to."""
        found: dict[RangeId, int] = {}
        for channel, entries in self._open.items():
            size = sum(len(each.payload) for each in entries)
            found[channel.receiver] = found.get(channel.receiver, 0) + size
        return found

    @property
    def is_empty(self) -> bool:
        """Whether everything has been acknowledged, and the acknowledgements handed to a commit."""
        return not self._open and not self._acknowledged

    @property
    def has_acknowledged(self) -> bool:
        """Whether `take_acknowledged` has something to return."""
        return bool(self._acknowledged)

    @property
    def hold_us(self) -> int | None:
        """The event time at which unacknowledged work holds the output watermark; None if there is none."""
        # The hold of the next entry can be lower, where its range has been joined by one that is behind it.
        holding = self._holding.values()
        return min((entries[0].min_timestamp_us for entries in holding), default=None)

    def hold_of(self, computation: str, accepted: Callable[[Channel], int]) -> int | None:
        """The event time of what is on its way to a computation that has not taken it in; None if nothing is.

        Args:
            computation: the receiver.
            accepted: the last sequence on a channel that its receiver has taken in, durably or not.
        """
        lowest = (
            next((each for each in entries if each.sequence > accepted(channel)), None)
            for channel, entries in self._holding.items()
            if channel.receiver.computation == computation
        )
        return min((each.min_timestamp_us for each in lowest if each is not None), default=None)

    def next_sequence(self, channel: Channel) -> int:
        """The sequence that the next production on a channel will have."""
        return max(self._sent.get(channel, 0), self._weak_from or 0) + 1

    def create(self, channel: Channel, min_timestamp_us: int, payload: bytes) -> Checkpoint:
        """Create the next production on a channel; to be sent after it is committed.

        Args:
            channel: from the range of the outbox to the receiver.
            min_timestamp_us: the event time at which the production holds the output watermark until it is
                acknowledged.
            payload: what the receiver gets; opaque here.
        """
        sequence = self._sent[channel] = self.next_sequence(channel)
        checkpoint = Checkpoint(channel, sequence, min_timestamp_us, payload)
        if self._weak_from is not None:
            self._volatile.add((channel, sequence))
        self._add(checkpoint)
        return checkpoint

    def acknowledge(self, channel: Channel, sequence: int, receipt: Receipt | None = None) -> None:
        """Note that the receiver has committed everything on a channel up to a sequence, as its receipt shows.

        Args:
            channel: from the range of the outbox to the receiver.
            sequence: of the last production that is committed; what was acknowledged before changes nothing.
            receipt: the commit of the receiver; None leaves the receipt that came before.
        """
        entries = self._open.get(channel)
        while entries and entries[0].sequence <= sequence:
            checkpoint = entries.popleft()
            if receipt is not None:
                self.receipts[channel] = receipt
            self._open_bytes -= len(checkpoint.payload)
            if (channel, checkpoint.sequence) in self._volatile:
                self._volatile.remove((channel, checkpoint.sequence))
            else:
                self._acknowledged[channel] = checkpoint.sequence
                self._undeleted.setdefault(channel, checkpoint.sequence)
        if entries is not None and not entries:
            del self._open[channel], self._holding[channel]
        elif entries:
            holding = self._holding[channel]
            while holding[0].sequence < entries[0].sequence:
                holding.popleft()

    def is_open(self, checkpoint: Checkpoint) -> bool:
        """Whether a production has not been acknowledged."""
        entries = self._open.get(checkpoint.channel)
        return entries is not None and entries[0].sequence <= checkpoint.sequence

    def is_oldest(self, checkpoint: Checkpoint) -> bool:
        """Whether everything before a production on its channel has been acknowledged."""
        entries = self._open.get(checkpoint.channel)
        return not entries or checkpoint.sequence <= entries[0].sequence

    def is_volatile(self, checkpoint: Checkpoint) -> bool:
        """Whether a production is not durable."""
        return (checkpoint.channel, checkpoint.sequence) in self._volatile

    def keep(self, checkpoint: Checkpoint) -> None:
        """Note that a production is durable now."""
        self._volatile.discard((checkpoint.channel, checkpoint.sequence))

    def newest(self) -> Mapping[Channel, int]:
        """The last sequence of every channel that has something in the store: unacknowledged, or not deleted yet."""
        return self._acknowledged | {
            channel: entries[-1].sequence for channel, entries in self._open.items()
        }

    def is_acknowledged(self, newest: Mapping[Channel, int]) -> bool:
        """Whether everything up to these sequences has been acknowledged."""
        return not any(
            channel in self._open and self._open[channel][0].sequence <= sequence
            for channel, sequence in newest.items()
        )

    def is_deleted(self, newest: Mapping[Channel, int]) -> bool:
        """Whether everything up to these sequences is gone from the store too, and no later owner sends it again."""
        return self.is_acknowledged(newest) and not any(
            channel in self._undeleted and self._undeleted[channel] <= sequence
            for channel, sequence in newest.items()
        )

    def take_acknowledged(self) -> Mapping[Channel, int]:
        """Return what the next commit is to delete; afterwards it counts as deleted."""
        taken, self._acknowledged, self._undeleted = self._acknowledged, {}, {}
        return taken

    def for_receivers(self, receivers: Container[RangeId]) -> Iterator[Checkpoint]:
        """Entries to the given ranges, in the order of their channels: what a new owner must be sent."""
        for channel, entries in self._open.items():
            if channel.receiver in receivers:
                yield from entries

    def _add(self, checkpoint: Checkpoint) -> None:
        self._open.setdefault(checkpoint.channel, deque()).append(checkpoint)
        holding = self._holding.setdefault(checkpoint.channel, deque())
        while holding and holding[-1].min_timestamp_us >= checkpoint.min_timestamp_us:
            holding.pop()
        holding.append(checkpoint)
        self._open_bytes += len(checkpoint.payload)


class Trail(Generic[ValueT]):
    """Values that follow what a range sends: each is passed on when all that was sent before it has been acknowledged.

    So a receiver that gets a value has committed everything that was sent before it.

    Args:
        outbox: that of the range.
        first: what is passed on before there is a value.
        is_kept: whether what was sent before must not only be acknowledged, but gone from the store.
    """

    def __init__(self, outbox: Outbox, first: ValueT, *, is_kept: bool = False) -> None:
        self._is_gone = outbox.is_deleted if is_kept else outbox.is_acknowledged
        self._outbox = outbox
        self._waiting: deque[tuple[ValueT, Mapping[Channel, int]]] = deque()
        self._latest = self._passed = first

    def note(self, value: ValueT) -> None:
        """Note a value, which is passed on when all that was sent so far is acknowledged."""
        if value != self._latest:
            self._latest = value
            self._waiting.append((value, self._outbox.newest()))

    def passed(self) -> ValueT:
        """The last value noted for which everything ahead of it is acknowledged."""
        while self._waiting and self._is_gone(self._waiting[0][1]):
            self._passed, _ = self._waiting.popleft()
        return self._passed
