"""WatermarkAuthority: input watermarks of all computations, from the output watermarks of all ranges.

A consumer's input watermark is the minimum over every range of every computation that sends to it.  A range that has
not reported counts with its last value, so a lost worker stops the watermark instead of letting it jump.  What an owner
of a key range has reported does not show what the next owner sends from it (ADR 0050).
A consumer that follows a percentile has a second watermark, which leaves the slowest records out of account
(`runners.core.stages.percentile_watermark`).

**Invariant:** no watermark ever goes back, across owners and restarts: every range starts from what it last committed.

**Invariant:** a split that a source gets while the job runs holds watermarks from before it is in the store until its
owner has reported; and no watermark comes to the end of time while a source may get another.

MillWheel, sections 4.5 and 7.2.  Pure; the journal is the watermark that each commit stores with its range.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from runners.core.stages.percentile_watermark import SplitProgress, percentile_watermark_us
from runners.millwheel.model.ids import RangeId
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

_NONE: Mapping[RangeId, int] = MappingProxyType({})
#: By range, where it is known.
_Committed = Mapping[RangeId, int | None]


class WatermarkAuthority:
    """Lives in the master.

    Args:
        senders: for each computation, the computations that send to it; none for a source.
        ranges: every range of the job.
        committed_us: input watermark (for a source: output watermark) that each range last committed.
        growing: the sources that may get splits while the job runs.
        percentiles: what is followed, by computation that follows one.
        committed_percentiles_us: percentile watermark that each of their ranges last committed.
    """

    def __init__(
        self,
        senders: Mapping[str, tuple[str, ...]],
        ranges: tuple[RangeId, ...],
        committed_us: _Committed,
        *,
        growing: Collection[str] = (),
        percentiles: Mapping[str, float] = MappingProxyType({}),
        committed_percentiles_us: _Committed = _NONE,
    ) -> None:
        self._senders, self._percentiles = dict(senders), dict(percentiles)
        self._outputs_us = dict.fromkeys(ranges, MIN_TIMESTAMP_US)
        self._ranges = {
            name: [range_id for range_id in ranges if range_id.computation == name]
            for name in senders
        }
        self._idle: Collection[RangeId] = ()
        self._growing = frozenset(growing)
        #: By source that is getting splits, the watermark at which they begin.
        self._holds_us: dict[str, int] = {}
        # A range commits its input watermark, which no sender can go behind.  So the one that is furthest counts for
        # its whole computation.
        self._inputs_us = {
            name: self._furthest_us(name, committed_us)
            for name, computations in senders.items()
            if computations
        }
        self._spread_to_senders()
        self._percentiles_us = {
            name: self._furthest_us(name, committed_percentiles_us) for name in percentiles
        }
        self._followed_percentiles_us = {
            range_id: us
            for range_id, us in committed_percentiles_us.items()
            if us is not None and range_id.computation in percentiles
        }
        self._progress: dict[RangeId, SplitProgress] = {}
        self._slowest_us = self.slowest_source_us()
        self._has_news = False

    @property
    def inputs_us(self) -> Mapping[str, int]:
        """Input watermark per computation that has senders."""
        return self._inputs_us

    @property
    def percentiles_us(self) -> Mapping[str, int]:
        """Percentile watermark per computation that follows one."""
        return self._percentiles_us

    @property
    def outputs_us(self) -> Mapping[RangeId, int]:
        """Output watermark of each range that counts."""
        return self._outputs_us

    @property
    def holds_us(self) -> Mapping[str, int]:
        """By source that is getting splits, the watermark at which they begin."""
        return self._holds_us

    @property
    def idle(self) -> Collection[RangeId]:
        """The splits that hold nothing back, as of the last `advance`."""
        return self._idle

    @property
    def growing(self) -> Collection[str]:
        """The sources that may still get splits."""
        return self._growing

    def knows(self, range_id: RangeId) -> bool:
        """Whether the range is one whose watermark counts."""
        return range_id in self._outputs_us

    def add(self, range_id: RangeId) -> None:
        """Add a key range that comes from another; until it is reported on, the watermarks behind it stay.

        Args:
            range_id: of the new range.
        """
        self._outputs_us[range_id] = MIN_TIMESTAMP_US
        self._ranges[range_id.computation].append(range_id)

    @property
    def may_grow(self) -> bool:
        """Whether a source may still get splits."""
        return bool(self._growing)

    def stop_growing(self) -> None:
        """Expect no more splits, beside those that are on their way."""
        self._growing = frozenset()

    def hold(self, source: str) -> int:
        """Hold what a source feeds, as it is about to get splits; returns the watermark at which these begin.

        That is as far as the source has come, as no watermark goes back.

        Args:
            source: that may get splits.
        """
        outputs_us = [
            self._outputs_us[each]
            for each in self._ranges[source]
            if each not in self._idle and self._outputs_us[each] < MAX_TIMESTAMP_US
        ]
        # Where its splits are idle, or have come back from that, what it feeds may have come further.
        inputs_us = [us for name, us in self._inputs_us.items() if source in self._senders[name]]
        hold_us = max([min(outputs_us, default=MIN_TIMESTAMP_US), *inputs_us])
        self._holds_us[source] = hold_us
        return hold_us

    def let_go(self, source: str) -> None:
        """End the hold of a source: its new splits hold for themselves, or there are none."""
        self._holds_us.pop(source, None)

    def add_split(self, range_id: RangeId, watermark_us: int) -> None:
        """Add a split that a source has got.

        Args:
            range_id: of the new split.
            watermark_us: at which it begins.
        """
        self._outputs_us[range_id] = watermark_us
        self._ranges[range_id.computation].append(range_id)

    def is_ended(self, range_id: RangeId) -> bool:
        """Whether a split has reported that it has come to its end."""
        return self._outputs_us[range_id] >= MAX_TIMESTAMP_US

    def begin_anew(self, range_ids: Iterable[RangeId]) -> None:
        """Count nothing that was reported on key ranges: they have another owner, or it has taken them once more.

        The watermarks behind them stay until it reports.

        Args:
            range_ids: the ranges, known or not; a source split sends only what it has read itself, and is left out.
        """
        for range_id in range_ids:
            if range_id in self._outputs_us and self._senders[range_id.computation]:
                self._outputs_us[range_id] = MIN_TIMESTAMP_US
                self._followed_percentiles_us.pop(range_id, None)

    def retire(self, range_id: RangeId) -> None:
        """Remove a range that has nothing left to do, so that no watermark waits for it."""
        del self._outputs_us[range_id]
        self._ranges[range_id.computation].remove(range_id)
        self._followed_percentiles_us.pop(range_id, None)

    def report(
        self,
        outputs_us: Mapping[RangeId, int],
        *,
        inputs_us: Mapping[str, int] = MappingProxyType({}),
        percentiles_us: Mapping[RangeId, int] = _NONE,
        progress: Mapping[RangeId, SplitProgress] = MappingProxyType({}),
    ) -> None:
        """Note a worker's report on its ranges; `advance` moves the watermarks accordingly.

        The two are apart because a report is about a few ranges, and the watermarks about all: with many workers there
        are many reports at once.

        Args:
            outputs_us: their output watermarks.
            inputs_us: input watermarks that the worker knows to have come further than they have here (ADR 0111).
            percentiles_us: percentile watermark up to which they have fired and emitted, of those that follow one.
            progress: where they are, of source splits of which a grouping follows a percentile.
        """
        for range_id, watermark_us in outputs_us.items():
            is_source = not self._senders[range_id.computation]
            before_us = self._outputs_us[range_id] if is_source else watermark_us
            self._outputs_us[range_id] = max(before_us, watermark_us)
        for name, watermark_us in inputs_us.items():
            if watermark_us > self._inputs_us[name]:
                self._inputs_us[name] = watermark_us
                self._has_news = True
        # Less than before where a record that was left out has opened a window: its pane is still to come.
        self._followed_percentiles_us.update(percentiles_us)
        self._progress.update(progress)

    def advance(self, idle: Collection[RangeId] = ()) -> bool:
        """Advance the watermarks by what was reported; returns whether one of them, or the slowest source, has moved.

        Args:
            idle: source splits that hold no watermark back for now: their worker has polled them, and they had nothing
                (`runners.millwheel.master.slots.idle_splits`).
        """
        self._idle = idle
        slowest_us = self.slowest_source_us()
        moved = slowest_us != self._slowest_us or self._has_news
        self._slowest_us, self._has_news = slowest_us, False
        for name, known_us in self._inputs_us.items():
            senders = self._senders[name]
            watermark_us = min(
                [
                    *(self._outputs_us[each] for each in self._waited_for(name)),
                    *(us for source, us in self._holds_us.items() if source in senders),
                ]
            )
            if watermark_us >= MAX_TIMESTAMP_US and self._may_get_splits(name):
                continue
            if watermark_us > known_us:
                self._inputs_us[name] = watermark_us
                moved = True
        for name, percentile in self._percentiles.items():
            percentile_us = self._percentile_us(name, percentile)
            if percentile_us >= MAX_TIMESTAMP_US and self._may_get_splits(name):
                continue
            if percentile_us > self._percentiles_us[name]:
                self._percentiles_us[name] = percentile_us
                moved = True
        return moved

    def _may_get_splits(self, name: str) -> bool:
        """Whether the end of all splits that there are is not the end of what a computation is sent."""
        return not self._growing.isdisjoint(self._senders[name])

    def lowest_output_us(self) -> int:
        """The output watermark of the range that is furthest behind."""
        return min([*self._outputs_us.values(), *self._holds_us.values()])

    def slowest_source_us(self) -> int:
        """The output watermark of the source split that is furthest behind; idle ones are left out."""
        outputs_us = [
            us
            for range_id, us in self._outputs_us.items()
            if not self._senders[range_id.computation] and range_id not in self._idle
        ]
        return min(outputs_us, default=MAX_TIMESTAMP_US)

    def _spread_to_senders(self) -> None:
        """Raise the input watermark of each sender to that of its receivers.

        It had reached that before, if perhaps without a commit.  If senders took records behind it now, these would be
        late for a receiver that need not have lost them.
        """
        changed = list(self._inputs_us)
        while changed:
            name = changed.pop()
            for sender in self._senders[name]:
                if self._inputs_us.get(sender, MAX_TIMESTAMP_US) < self._inputs_us[name]:
                    self._inputs_us[sender] = self._inputs_us[name]
                    changed.append(sender)

    def _furthest_us(self, name: str, committed_us: _Committed) -> int:
        known_us = (committed_us.get(each) for each in self._ranges[name])
        return max((us for us in known_us if us is not None), default=MIN_TIMESTAMP_US)

    def _waited_for(self, name: str) -> list[RangeId]:
        """The ranges that a computation's input waits for: where all are idle, all of them, so its watermark stays."""
        senders = [each for sender in self._senders[name] for each in self._ranges[sender]]
        waiting = [each for each in senders if each not in self._idle]
        # Only a split that may still move counts: the end of one split is not the end of its idle neighbour.
        if any(self._outputs_us[each] < MAX_TIMESTAMP_US for each in waiting):
            return waiting
        return senders

    def _percentile_us(self, name: str, percentile: float) -> int:
        unfinished = [
            each for each in self._waited_for(name) if self._outputs_us[each] < MAX_TIMESTAMP_US
        ]
        sources = [each for each in unfinished if not self._senders[each.computation]]
        # Where all are idle nothing is known of what comes next.
        splits = [None if each in self._idle else self._progress.get(each) for each in sources]
        groupings = [each for each in unfinished if self._senders[each.computation]]
        return percentile_watermark_us(
            percentile,
            watermark_us=self._inputs_us[name],
            splits=splits,
            senders_us=self._processed(groupings, percentile),
        )

    def _processed(self, senders: Iterable[RangeId], percentile: float) -> Iterable[int]:
        """Yield how far ranges of groupings have emitted what a follower of some percentile waits for."""
        for each in senders:
            if self._percentiles.get(each.computation, 0) >= percentile:
                yield self._followed_percentiles_us.get(each, MIN_TIMESTAMP_US)
            else:
                yield self._outputs_us[each]
