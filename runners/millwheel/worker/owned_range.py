"""OwnedRange: a range as its owner has it in memory.

Soft state is consistent because a range has one writer: everything here is what the store has, plus what the next
commit will add.  When a commit is fenced all of it is thrown away.
"""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from runners.core.stages.percentile_watermark import ProgressSketch, SplitProgress
from runners.millwheel.model.accounts import RangeHolds
from runners.millwheel.model.ids import Channel, CommitMark, Fence, RangeId, Receipt
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.model.signals import NO_SIGNALS, SignalMark
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.port import TakenRange
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.outbox import Outbox, Trail
from windowing.timestamps import MIN_TIMESTAMP_US

#: Productions that one owner of a range can send on a channel before they are durable.
SEQUENCES_PER_OWNER = 1 << 32


# Two of them are never one, so it is a key by itself.
@attrs.define(eq=False)
class OwnedRange:
    """Fence, deliveries and watermark of one range.

    Attributes:
        delivered: how far its channels have been taken in, durably.
        watermark_us: the input watermark, up to which the range has fired; for a source, up to which it has read.
        firing_us: the input watermark by which the range has fired some of what is due, until it has fired all of it.
        stored_input_watermark_us: the furthest input watermark by which it has fired anything, as of its last commit.
        window_hold_us: the event time of the earliest pane that a window is still to emit.
        is_idle: a source split that was polled and had nothing.
        signal_mark: up to which of the job's signals it has fired.
        signal_mark_committed: the signal mark of its last commit.
        keeps_signal_mark: whether its signal mark is committed: its windows may fire by signals.
        percentile_us: the percentile watermark up to which the range has fired; None where its triggers follow none.
        accepted: how far its channels have been taken in, in memory.
        remembers: whether the numbers of the deliveries that were taken in are durable, to deduplicate by them.
        keys: what it covers, of a key range that has not been merged into another.
        handover_with: see `Reshape`.
        poll: of a source split: its last poll by this owner; None: it has not asked yet.
        sketch: of a source split: the event times that it has had, if a grouping follows a percentile of them.
    """

    range_id: RangeId
    token: int
    bundle: int
    outbox: Outbox
    delivered: dict[Channel, int]
    watermark_us: int
    output_watermark_us: int = MIN_TIMESTAMP_US
    firing_us: int | None = None
    stored_input_watermark_us: int = attrs.field(
        default=attrs.Factory(lambda self: self.watermark_us, takes_self=True)
    )
    window_hold_us: int | None = None
    is_idle: bool = False
    signal_mark: SignalMark = NO_SIGNALS
    signal_mark_committed: SignalMark = NO_SIGNALS
    keeps_signal_mark: bool = False
    percentile_us: int | None = None
    accepted: dict[Channel, int] = attrs.field(factory=dict)
    remembers: bool = True
    keys: KeyRange | None = None
    handover_with: RangeId | None = None
    sketch: ProgressSketch | None = None
    poll: SplitPoll | None = None
    _signals: Trail[int] = attrs.field(init=False)
    _percentiles: Trail[int | None] = attrs.field(init=False)
    _progress: Trail[SplitProgress | None] = attrs.field(init=False)
    _routings: Trail[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._signals = Trail(self.outbox, 0)
        self._percentiles = Trail(self.outbox, None)
        self._progress = Trail(self.outbox, None)
        # The range that a production is addressed to must exist for as long as the production is in the store.
        self._routings = Trail(self.outbox, 0, is_kept=True)

    @classmethod
    def taken(
        cls,
        taken: TakenRange,
        *,
        is_weak: bool = False,
        remembers: bool = True,
        keeps_signal_mark: bool = False,
    ) -> "OwnedRange":
        """Make one of a range just acquired.

        Args:
            taken: the range as it is in the store.
            is_weak: whether what it sends is not durable at once; its sequences then begin above those of all former
                owners.
            remembers: whether the numbers of the deliveries that it takes in are to be durable.
            keeps_signal_mark: whether its windows may fire by signals.
        """
        row = taken.row
        # Above all numbers that an earlier owner can have used, and within the numbers of the store.
        weak_from = row.token * SEQUENCES_PER_OWNER if is_weak else None
        owned = cls(
            range_id=row.range_id,
            token=row.token,
            bundle=row.bundle,
            outbox=Outbox(taken.checkpoints, taken.sent, weak_from=weak_from),
            delivered=dict(taken.delivered),
            accepted=dict(taken.delivered),
            remembers=remembers,
            watermark_us=MIN_TIMESTAMP_US if row.watermark_us is None else row.watermark_us,
            firing_us=row.firing_us,
            stored_input_watermark_us=MIN_TIMESTAMP_US
            if row.input_watermark_us is None
            else row.input_watermark_us,
            signal_mark_committed=row.signal_mark,
            keeps_signal_mark=keeps_signal_mark,
            percentile_us=row.percentile_us,
            keys=row.keys,
            handover_with=row.handover_with,
        )
        owned.act_on_signals(row.signal_mark)
        return owned

    @property
    def mark(self) -> CommitMark:
        """Its last commit."""
        return CommitMark(self.token, self.bundle)

    @property
    def next_mark(self) -> CommitMark:
        """Its next commit."""
        return CommitMark(self.token, self.bundle + 1)

    def origin_of(self, checkpoint: Checkpoint) -> CommitMark | None:
        """The commit as of which a production that is sent now is durable; None: it is not durable."""
        return None if self.outbox.is_volatile(checkpoint) else self.mark

    def receipt(self) -> Receipt:
        """The receipt that goes with its acknowledgements of what it has committed."""
        return Receipt(self.mark, self.remembers)

    def fence(self) -> Fence:
        """The fence of the next commit."""
        token, bundle = self.next_mark
        return Fence(range_id=self.range_id, token=token, bundle=bundle)

    def send(
        self, payloads: Iterable[tuple[RangeId, bytes]], *, hold_us: int
    ) -> Sequence[Checkpoint]:
        """Create the productions that send some payloads to their receivers; to be sent as the guarantees allow.

        It keeps them until they are acknowledged, and holds its output watermark until then.

        Args:
            payloads: by the range that receives them, in their order.
            hold_us: the input watermark that the step had reached before (ADR 0007), in microseconds: nothing in the
                payloads is earlier, unless it is late already.
        """
        return tuple(
            self.outbox.create(Channel(self.range_id, receiver), hold_us, payload)
            for receiver, payload in payloads
        )

    def accept(self, deliveries: Sequence[Deliver]) -> list[Deliver]:
        """Accept the deliveries that are next on their channels, and return them.

        A delivery that came before is passed over, and so is one after a gap: the sender will send the channel again.
        """
        accepted = []
        for delivery in deliveries:
            if delivery.follows(self.accepted.get(delivery.channel, 0)):
                self.accepted[delivery.channel] = delivery.sequence
                accepted.append(delivery)
        return accepted

    def remember(self, delivered: Mapping[Channel, int]) -> None:
        """Restore how far channels were taken in before the same worker acquired the range again.

        Not all of that need be in the store.
        """
        for channel, sequence in delivered.items():
            for known in (self.delivered, self.accepted):
                known[channel] = max(sequence, known.get(channel, 0))

    def act_on_signals(self, mark: SignalMark) -> None:
        """Advance the signal mark, never back; signals are passed on after everything that was sent so far."""
        if mark.number > self.signal_mark.number:
            self._signals.note(mark.number)
        self.signal_mark = max(self.signal_mark, mark)

    def passed_signal(self) -> int:
        """The number of the last signal that receivers may fire by; 0 if there is none.

        Not one that the next owner may have to process again: the master may forget a signal that all have passed on.
        """
        passed = self._signals.passed()
        return min(passed, self.signal_mark_committed.number) if self.keeps_signal_mark else passed

    def passed_percentile_us(self) -> int | None:
        """The percentile watermark of the range, as far as receivers have what was sent before; None: not known."""
        self._percentiles.note(self.percentile_us)
        passed_us = self._percentiles.passed()
        if passed_us is None or self.window_hold_us is None:
            return passed_us
        return min(passed_us, self.window_hold_us)

    def passed_progress(self) -> SplitProgress | None:
        """The progress of a source split, as far as receivers have what was sent before; None: not known."""
        if self.sketch is not None:
            self._progress.note(self.sketch.progress())
        return self._progress.passed()

    def follow_routing(self, number: int) -> None:
        """Note that everything sent from here on is divided by the routing of that number."""
        self._routings.note(number)

    def passed_routing(self) -> int:
        """The number of the last routing such that nothing divided by an older one is unacknowledged."""
        return self._routings.passed()

    def holds(self) -> RangeHolds:
        """What its output watermark is the least of."""
        return RangeHolds(
            processed_us=self.watermark_us,
            unacknowledged_us=self.outbox.hold_us,
            window_us=self.window_hold_us,
        )

    @property
    def next_output_us(self) -> int:
        """The input watermark, or the hold of what is unacknowledged or not emitted yet where that is lower."""
        holds_us = [self.watermark_us, self.outbox.hold_us, self.window_hold_us]
        return min(hold_us for hold_us in holds_us if hold_us is not None)

    def advance_output(self) -> int:
        """Advance the output watermark to what holds it, and return it; it never goes back."""
        self.output_watermark_us = max(self.output_watermark_us, self.next_output_us)
        return self.output_watermark_us


def accepted_of(ranges: Mapping[RangeId, OwnedRange], channel: Channel) -> int:
    """The last sequence of a channel that its receiver has taken in, durably or not; 0: none, or it is not here.

    Args:
        ranges: those of a worker.
        channel: to one of them.
    """
    receiver = ranges.get(channel.receiver)
    return 0 if receiver is None else receiver.accepted.get(channel, 0)
