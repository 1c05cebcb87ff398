"""OwnedRange: a range as its owner holds it in memory.

Soft state is consistent because a range has one writer: everything here is what the store has,
plus what the next commit
will add.  When a commit is fenced all of it is thrown away.
"""

from collections.abc import Sequence

import attrs

from runners.core.percentile_watermark import ProgressSketch, SplitProgress
from runners.millwheel.delivery import Outbox, Trail
from runners.millwheel.ids import Channel, Fence, RangeId
from runners.millwheel.messages import Deliver
from runners.millwheel.signals import NO_SIGNALS, SignalMark
from runners.millwheel.store.port import TakenRange
from windowing.timestamps import MIN_TIMESTAMP_US


@attrs.define
class OwnedRange:
    """Fence, deliveries and watermark of one range.

    ``watermark_us``: the event time up to which the range has acted; for a source, up to which it has read.
    ``window_hold_us``: the event time of the earliest pane that a window is still to say.
    ``is_idle``: a source split that was polled and had nothing.
    ``percentile_us``: the percentile watermark on which the range has acted; None where its triggers follow none.
    ``sketch``: of a source split: the event times that it has had, if somebody follows a percentile of them.
    ``signal_mark``: how far it has come with the job's signals; ``signal_mark_committed``: that by its last commit.
    """

    range_id: RangeId
    token: int
    bundle: int
    outbox: Outbox
    delivered: dict[Channel, int]
    watermark_us: int
    output_watermark_us: int = MIN_TIMESTAMP_US
    window_hold_us: int | None = None
    is_idle: bool = False
    signal_mark: SignalMark = NO_SIGNALS
    signal_mark_committed: SignalMark = NO_SIGNALS
    percentile_us: int | None = None
    sketch: ProgressSketch | None = None
    _signals: Trail[int] = attrs.field(init=False)
    _percentiles: Trail[int | None] = attrs.field(init=False)
    _progress: Trail[SplitProgress | None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._signals = Trail(self.outbox, 0)
        self._percentiles = Trail(self.outbox, None)
        self._progress = Trail(self.outbox, None)

    @classmethod
    def taken(cls, taken: TakenRange) -> "OwnedRange":
        """A range just acquired."""
        row = taken.row
        owned = cls(
            range_id=row.range_id,
            token=row.token,
            bundle=row.bundle,
            outbox=Outbox(taken.checkpoints, taken.sent),
            delivered=dict(taken.delivered),
            watermark_us=MIN_TIMESTAMP_US if row.watermark_us is None else row.watermark_us,
            signal_mark_committed=row.signal_mark,
            percentile_us=row.percentile_us,
        )
        owned.act_on_signals(row.signal_mark)
        return owned

    def fence(self) -> Fence:
        """What the next commit must show."""
        return Fence(range_id=self.range_id, token=self.token, bundle=self.bundle + 1)

    def accept(self, deliveries: Sequence[Deliver]) -> list[Deliver]:
        """Those deliveries that are next on their channels; notes them as delivered.

        What was seen before is passed over, and so is what comes after a gap: the sender will send the channel again.
        """
        accepted = []
        for delivery in deliveries:
            if delivery.sequence == self.delivered.get(delivery.channel, 0) + 1:
                self.delivered[delivery.channel] = delivery.sequence
                accepted.append(delivery)
        return accepted

    def act_on_signals(self, mark: SignalMark) -> None:
        """Note how far it has come; never back.  What it has sent so far is ahead of the signals that it passes on."""
        if mark.number > self.signal_mark.number:
            self._signals.note(mark.number)
        self.signal_mark = max(self.signal_mark, mark)

    def passed_signal(self) -> int:
        """The number of the last signal that receivers may act on; 0 if there is none."""
        return self._signals.passed()

    def passed_percentile_us(self) -> int | None:
        """How far the range has come by the percentile that it follows, as far as receivers know; None: not known."""
        self._percentiles.note(self.percentile_us)
        passed_us = self._percentiles.passed()
        if passed_us is None or self.window_hold_us is None:
            return passed_us
        return min(passed_us, self.window_hold_us)

    def passed_progress(self) -> SplitProgress | None:
        """Where a source split is, as far as receivers know; None: not known."""
        if self.sketch is not None:
            self._progress.note(self.sketch.progress())
        return self._progress.passed()

    def advance_output(self) -> int:
        """The output watermark: what has been acted on, held back by what is not acknowledged or not said yet."""
        holds_us = [self.watermark_us, self.outbox.hold_us, self.window_hold_us]
        watermark_us = min(hold_us for hold_us in holds_us if hold_us is not None)
        self.output_watermark_us = max(self.output_watermark_us, watermark_us)
        return self.output_watermark_us
