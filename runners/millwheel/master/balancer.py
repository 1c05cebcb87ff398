"""Balancer: has the master of a running job carry out what the load policy decides."""

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
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad

#: The interval over which the policy sees loads.
INTERVAL_MS = 1_000


class Balancer:
    """Lives beside the master, in its thread.

    Args:
        master: of the job.
        slots: how many it has.
        clock: for the length of an interval.
        options: of the policy.
        interval_ms: between two looks at the loads.
    """

    def __init__(
        self,
        master: Master,
        slots: int,
        clock: Clock,
        options: PolicyOptions = PolicyOptions(),  # noqa: B008 - a value
        *,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        self._master, self._slots, self._clock = master, slots, clock
        self._interval_ms = interval_ms
        self._policy = LoadPolicy(slots, options)
        self._looked_ms = clock.monotonic_ms()
        self._before: dict[RangeId, RangeLoad] = {}
        #: The changes that it has asked for since this driver started, oldest first.
        self.changes: list[Change] = []

    def step(self) -> None:
        """Ask for a change, if it is time and the policy has one.

        To be called after each step of the master; never waits.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms < self._interval_ms:
            return
        self._looked_ms = now_ms
        statistics, master = self._master.statistics(), self._master
        before, self._before = self._before, dict(statistics.loads)
        if statistics.workers_ready < self._slots or not master.is_at_rest:
            self._policy.disturbed()
            return
        keys = master.key_ranges
        views = []
        for range_id, slot in sorted(master.ranges.items()):
            load = statistics.loads.get(range_id, RangeLoad())
            earlier = before.get(range_id, RangeLoad()).records
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
        change = self._policy.decide(views)
        if change is not None:
            # A change that cannot be made now is decided again, if it still makes sense then.
            with suppress(ShapeError):
                self._carry_out(change)
                self.changes.append(change)

    def _carry_out(self, change: Change) -> None:
        if isinstance(change, MoveRange):
            self._master.move([change.range_id], change.slot)
        elif isinstance(change, MergeRanges):
            self._master.merge(change.range_id, change.gone)
        else:
            self._master.split(change.range_id, change.at)
