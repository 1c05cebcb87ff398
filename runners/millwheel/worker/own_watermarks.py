"""OwnWatermarks: input watermarks that a worker computes itself, while it has all ranges of the job (ADR 0111).

The master computes a watermark from reports, and a window that waits for it fires some rounds of the worker later.
Where nobody else sends anything, the worker knows as much as the master does, and earlier: what it has read and taken
in by a round can fire windows by the same round, in the same commit.

**Invariant:** when a grouping acts by such a watermark, the store has how far the groupings that send to it have come,
or gets it by the same commit.  So no owner of theirs takes a record to be in time whose output would be late.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from runners.core.stages.percentile_watermark import percentiles_of
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.model.guarantees import BOTH, Guarantees
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange, accepted_of
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class OwnWatermarks:
    """Computes the input watermarks of groupings from what is in memory; not thread-safe.

    Not of groupings where what is sent or taken in may be durable later than what comes after it, and not where
    triggers follow a percentile too, which the master alone knows.

    Args:
        ranges: those that the worker owns; as they are at each call.
        plan: the pipeline.
        guarantees: those of computations that do not have both.

    Attributes:
        with_both_guarantees: the groupings that have them, and to which only such computations send.
        granted: how many ranges the job has, if the master has found all of them here; 0: it computes the watermarks.
    """

    def __init__(
        self,
        ranges: Mapping[RangeId, OwnedRange],
        plan: ExecutionPlan,
        guarantees: Mapping[str, Guarantees],
    ) -> None:
        self._ranges = ranges
        #: By computation, those that send to it; none of a source.
        self._senders = {name: plan.senders(name) for name in plan.stages}
        others = {name for name, each in guarantees.items() if each != BOTH}
        self.with_both_guarantees = frozenset(
            each.name
            for each in plan.groupings()
            if others.isdisjoint([each.name, *self._senders[each.name]])
        )
        self._computable = self.with_both_guarantees.difference(percentiles_of(plan))
        self._is_each_computable = all(each.name in self._computable for each in plan.groupings())
        self._by_computation: Mapping[str, list[OwnedRange]] = {}
        self.granted = 0

    @property
    def are_computed(self) -> bool:
        """Whether they are computed here, for now.

        Not where ranges have come or gone of which the master did not know: others may have them.
        """
        return 0 < self.granted == len(self._ranges)

    @property
    def are_all_computed(self) -> bool:
        """Whether those of all groupings are computed here, for now."""
        return self._is_each_computable and self.are_computed

    def index_ranges(self) -> None:
        """Index the ranges by computation; before watermarks are computed, and when ranges have come or gone."""
        found: dict[str, list[OwnedRange]] = {}
        for range_id, owned in self._ranges.items():
            found.setdefault(range_id.computation, []).append(owned)
        self._by_computation = found

    def _of(self, computations: Iterable[str]) -> Iterator[OwnedRange]:
        return chain.from_iterable(self._by_computation.get(each, ()) for each in computations)

    def input_us(self, name: str, due_us: Mapping[str, int], *, is_time: bool) -> int | None:
        """The input watermark of a grouping, in microseconds; None: it is not computed here, or need not be now.

        The end of time is left to the master, who knows whether a source may get more splits.

        Args:
            name: of the grouping.
            due_us: by grouping, the event time at which something of it is due first.
            is_time: whether watermarks are to move although nothing is due by them.
        """
        if name not in self._computable or not self.are_computed:
            return None
        due = [us for each, us in due_us.items() if each in self._computable]
        first_us = MIN_TIMESTAMP_US if is_time else min(due, default=MAX_TIMESTAMP_US)
        if first_us > self._least_source_us():
            return None
        holds_us = (self._output_us(owned, name) for owned in self._of(self._senders[name]))
        watermark_us = min(holds_us, default=MAX_TIMESTAMP_US)
        # No grouping behind this one comes further.
        return watermark_us if first_us <= watermark_us < MAX_TIMESTAMP_US else None

    def behind_in_store(self, name: str) -> Sequence[OwnedRange]:
        """The ranges that send to a grouping and have come further than the store knows; none of a source's.

        A source commits each watermark with what it has read.
        """
        senders = (each for each in self._senders[name] if self._senders[each])
        return [
            owned
            for owned in self._of(senders)
            if owned.watermark_us > owned.stored_input_watermark_us
        ]

    def _least_source_us(self) -> int:
        sources = (each for each, senders in self._senders.items() if not senders)
        return min((owned.watermark_us for owned in self._of(sources)), default=MAX_TIMESTAMP_US)

    def _output_us(self, owned: OwnedRange, receiver: str) -> int:
        """The event time before which a range sends a computation nothing more that this has not taken in."""
        holds_us = (
            owned.watermark_us,
            owned.window_hold_us,
            owned.outbox.hold_of(receiver, partial(accepted_of, self._ranges)),
        )
        return min(us for us in holds_us if us is not None)
