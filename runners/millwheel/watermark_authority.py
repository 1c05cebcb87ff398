"""WatermarkAuthority: input watermarks of all computations, from the output watermarks of all ranges.

A consumer's input watermark is the minimum over every range of every computation that sends to it.
 A range that has not
reported counts with its last value, so a lost worker holds time still instead of letting it jump.

**Invariant:** no watermark ever goes back, across owners and restarts: every range starts from what it last committed.

MillWheel, sections 4.5 and 7.2.  Pure; the journal is the watermark that each commit stores with its range.
"""

from collections.abc import Collection, Mapping

from runners.millwheel.ids import RangeId
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class WatermarkAuthority:
    """Lives in the master.

    Args:
        senders: for each computation, the computations that send to it; none for a source.
        ranges: every range of the job.
        committed_us: input watermark (for a source: output watermark) that each range last committed.
    """

    def __init__(
        self,
        senders: Mapping[str, tuple[str, ...]],
        ranges: tuple[RangeId, ...],
        committed_us: Mapping[RangeId, int],
    ) -> None:
        self._senders = dict(senders)
        self._outputs_us = dict.fromkeys(ranges, MIN_TIMESTAMP_US)
        self._ranges = {
            name: [range_id for range_id in ranges if range_id.computation == name]
            for name in senders
        }
        self._idle: set[RangeId] = set()
        self._inputs_us = {
            # Acting on a watermark is committed with it, and it was true of all senders when it was: the furthest
            # range speaks for its whole computation.
            name: max(committed_us.get(each, MIN_TIMESTAMP_US) for each in self._ranges[name])
            for name, computations in senders.items()
            if computations
        }

    @property
    def inputs_us(self) -> Mapping[str, int]:
        """Input watermark per computation that has senders."""
        return self._inputs_us

    def report(self, outputs_us: Mapping[RangeId, int], idle: Collection[RangeId] = ()) -> bool:
        """Take a worker's output watermarks in; whether any input watermark moved.

        Ranges in ``idle`` were polled and had nothing, so they hold nobody back for now.
        """
        for range_id, watermark_us in outputs_us.items():
            self._outputs_us[range_id] = max(self._outputs_us[range_id], watermark_us)
        self._idle = (self._idle - outputs_us.keys()) | set(idle)
        moved = False
        for name in self._inputs_us:
            watermark_us = min(self._outputs_us[each] for each in self._waited_for(name))
            if watermark_us > self._inputs_us[name]:
                self._inputs_us[name] = watermark_us
                moved = True
        return moved

    def _waited_for(self, name: str) -> list[RangeId]:
        """The ranges that a computation's input waits for: where all are idle, time stands still."""
        senders = [each for sender in self._senders[name] for each in self._ranges[sender]]
        waiting = [each for each in senders if each not in self._idle]
        # Only a split that may still move counts: the end of one split is not the end of its idle neighbour.
        if any(self._outputs_us[each] < MAX_TIMESTAMP_US for each in waiting):
            return waiting
        return senders

    def lowest_output_us(self) -> int:
        """The output watermark of the range that is furthest behind."""
        return min(self._outputs_us.values())
