"""Balancer: has the master of a running job carry out what the policies decide.

One says whether the job runs on one worker or on all, the other what is moved, split and merged to balance it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from runners.core.ground.clock import Clock
from runners.millwheel.control.shapes import ShapeError
from runners.millwheel.master.load_policy import (
    Change,
    LoadPolicy,
    MergeRanges,
    MoveRange,
    PolicyOptions,
    RangeView,
)
from runners.millwheel.master.master import Master
from runners.millwheel.master.placement_policy import (
    JobView,
    Placement,
    PlacementOptions,
    PlacementPolicy,
)
from runners.millwheel.master.slots import MasterStatistics
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad

#: The interval over which the policies see loads.
INTERVAL_MS = 1_000


class Balancer:
    """Lives beside the master, in its thread.

    A gathered job is not balanced: all that it has to do is in one slot, and is meant to be.  Nor is one while it is
    tried whether it is better spread.

    Args:
        master: of the job.
        slots: how many it has.
        clock: for the length of an interval.
        load: when ranges are moved, split and merged by their load; None: they are not.
        placement: when the job is gathered in one slot, and spread again; None: it is not.
        interval_ms: between two looks at the loads.
        note: is called with the reason when the job is gathered or spread.
    """

    def __init__(
        self,
        master: Master,
        slots: int,
        clock: Clock,
        *,
        load: PolicyOptions | None = None,
        placement: PlacementOptions | None = None,
        interval_ms: int = INTERVAL_MS,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._master, self._slots, self._clock, self._note = master, slots, clock, note
        self._interval_ms = interval_ms
        self._load = None if load is None else LoadPolicy(slots, load)
        self._placement = None if placement is None else PlacementPolicy(slots, placement)
        self._looked_ms = clock.monotonic_ms()
        self._before: MasterStatistics | None = None
        #: The changes that it has asked for since this driver started, oldest first.
        self.changes: list[Change | Placement] = []

    def step(self, *, may_gather: bool = True) -> None:
        """Ask for a change, if it is time and a policy has one.

        To be called after each step of the master; never waits.

        Args:
            may_gather: whether ranges may be gathered; not where somebody has moved some of them by hand.
        """
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - self._looked_ms
        if took_ms < self._interval_ms:
            return
        self._looked_ms = now_ms
        statistics = self._master.statistics()
        before, self._before = self._before, statistics
        is_known = before is not None and statistics.workers_ready == self._slots
        if before is None or not is_known or not self._master.is_at_rest:
            self._disturbed()
            return
        job = JobView(
            ranges=self._views(before, statistics),
            long_share=self._long_share(before, statistics, took_ms),
            long_round_ms=self._long_round_ms(before, statistics, took_ms),
            state_bytes=statistics.cell_cache.bytes_buffered,
        )
        if self._placement is not None:
            placement = self._placement.decide(job, may_gather=may_gather)
            if placement is not None:
                self._place(placement)
            if placement is not None or self._placement.decides_alone:
                return
        change = None if self._load is None else self._load.decide(job.ranges)
        if change is not None:
            # A change that cannot be made now is decided again, if it still makes sense then.
            with suppress(ShapeError):
                self._carry_out(change)
                self.changes.append(change)

    def _disturbed(self) -> None:
        if self._load is not None:
            self._load.disturbed()
        if self._placement is not None:
            self._placement.disturbed()

    def _long_share(
        self, before: MasterStatistics, statistics: MasterStatistics, took_ms: int
    ) -> float:
        if self._master.silence_ms >= took_ms:
            # Whoever lives and reports nothing is in a long round all the time.
            return 1.0
        return max(0, statistics.long_ms - before.long_ms) / took_ms

    def _long_round_ms(
        self, before: MasterStatistics, statistics: MasterStatistics, took_ms: int
    ) -> float:
        if self._master.silence_ms >= took_ms:
            return self._master.silence_ms
        rounds = statistics.long_rounds - before.long_rounds
        return max(0, statistics.long_ms - before.long_ms) / rounds if rounds > 0 else 0.0

    def _views(self, before: MasterStatistics, statistics: MasterStatistics) -> Sequence[RangeView]:
        keys, views = self._master.key_ranges, []
        for range_id, slot in sorted(self._master.ranges.items()):
            load = statistics.loads.get(range_id, RangeLoad())
            earlier = before.loads.get(range_id, RangeLoad()).records
            # A worker counts from the moment at which it took the range over.
            records = load.records - earlier if load.records >= earlier else load.records
            views.append(
                RangeView(
                    range_id=range_id,
                    slot=slot,
                    keys=keys.get(range_id),
                    records=records,
                    hashes=load.hashes,
                )
            )
        return views

    def _place(self, placement: Placement) -> None:
        by_slot: dict[int, list[RangeId]] = defaultdict(list)
        for range_id, slot in placement.slots.items():
            by_slot[slot].append(range_id)
        for slot, ranges in by_slot.items():
            self._master.move(ranges, slot, placement.reason)
        self.changes.append(placement)
        self._note(placement.reason)

    def _carry_out(self, change: Change) -> None:
        if isinstance(change, MoveRange):
            why = "the worker that it was on has more to do than others"
            self._master.move([change.range_id], change.slot, why)
        elif isinstance(change, MergeRanges):
            self._master.merge(change.range_id, change.gone, "both have little to do")
        else:
            why = "it has more to do than can be on one worker"
            self._master.split(change.range_id, change.at, why)
