"""PlacementPolicy: whether a job runs on all of its workers, or on one that can carry it.

What a worker sends to itself is part of the commit that makes it (ADR 0054); what it sends to another one costs a
second commit, and the way there.  So a record is soonest at its end where all ranges are in one slot, as long as the
rounds of its worker are short.

* A job begins **spread**: a backlog is met by all workers.
* Where little has been to do for some time, all ranges are **gathered** in the slot that has most to do already.
* Where that worker's rounds are long for most of the time, or the state does not fit, they go back to where they were.

How much one worker can carry is not foretold: it is tried, and remembered.  After each try that has ended the job must
be calm for twice as long before the next one, and until then it is not tried with more than a part of the records that
were too many.  So a load that is too much for one worker is tried ever less often, whatever it does in between.

Pure: numbers in, a decision out.  ADR 0071.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import attrs

from runners.millwheel.master.load_policy import RangeView
from runners.millwheel.model.ids import RangeId


@attrs.frozen(kw_only=True)
class JobView:
    """A job over the last interval, as the policy sees it.

    Attributes:
        ranges: all of it.
        long_share: time that all workers together were in long rounds, as a part of the interval.
        state_bytes: what they have of the state in memory.
    """

    ranges: Collection[RangeView]
    long_share: float
    state_bytes: int

    @property
    def records(self) -> int:
        """How many records all ranges have taken in."""
        return sum(each.records for each in self.ranges)


@attrs.frozen(kw_only=True)
class Placement:
    """Have ranges go to slots.

    Attributes:
        slots: of the ranges that are elsewhere now.
        reason: for people.
    """

    slots: Mapping[RangeId, int]
    reason: str


@attrs.frozen(kw_only=True)
class PlacementOptions:
    """When the policy decides.

    Attributes:
        state_bytes_max: more than that does not fit one worker; half of it is gathered.
        calm_share: with at most so much of the time in long rounds an interval is calm.
        hot_share: with at least so much a gathered job is too much for its worker.
        hot_patience: intervals in which that must be so.
        calm_patience: intervals in succession that must be calm before the job is gathered for the first time.
        calm_patience_max: the longest that becomes of it.
        less: part of the records that were too many for one worker, with which it is tried again.
        memory: how many times the patience these are remembered.
    """

    state_bytes_max: int
    calm_share: float = 0.1
    hot_share: float = 0.5
    hot_patience: int = 2
    calm_patience: int = 5
    calm_patience_max: int = 600
    less: float = 0.5
    memory: int = 10


class PlacementPolicy:
    """Decides once in an interval; remembers what was too much, and where ranges were.

    Args:
        slots: how many there are, all of them with a worker.
        options: when it decides.
    """

    def __init__(self, slots: int, options: PlacementOptions) -> None:
        self._slots, self._options = slots, options
        self._patience = options.calm_patience
        self._calm = self._hot = self._since_spread = 0
        #: The records of an interval that were too many.
        self._too_many: int | None = None
        #: While the job is gathered, where the ranges were before.
        self._before: Mapping[RangeId, int] | None = None

    @property
    def is_gathered(self) -> bool:
        """Whether it has had the ranges gathered in one slot."""
        return self._before is not None

    def decide(self, job: JobView, *, may_gather: bool = True) -> Placement | None:
        """Where ranges should go now, if anywhere, by what they have done in the interval that ends.

        Args:
            job: as it was in that interval.
            may_gather: whether ranges that are spread may be gathered.
        """
        if self._slots == 1:
            return None
        if self._before is not None:
            return self._spread(job, self._before)
        return self._gather(job) if may_gather else None

    def disturbed(self) -> None:
        """Disregard the last interval: something else was going on."""
        self._calm = self._hot = 0

    def _gather(self, job: JobView) -> Placement | None:
        options = self._options
        self._since_spread += 1
        if self._since_spread > options.memory * self._patience:
            self._too_many = None
        is_less = self._too_many is None or job.records <= options.less * self._too_many
        self._calm = self._calm + 1 if is_less and fits_one_worker(job, options) else 0
        if self._calm < self._patience:
            return None
        self.disturbed()
        slot = _busiest(job.ranges)
        moved = {each.range_id: slot for each in job.ranges if each.slot != slot}
        if not moved:
            return None
        self._before = {each.range_id: each.slot for each in job.ranges}
        return Placement(
            slots=moved, reason=f"there is little to do: slot {slot} is given all ranges of the job"
        )

    def _spread(self, job: JobView, before: Mapping[RangeId, int]) -> Placement | None:
        options = self._options
        is_too_large = job.state_bytes > options.state_bytes_max
        is_hot = job.long_share >= options.hot_share
        self._hot = self._hot + 1 if is_hot or is_too_large else 0
        if self._hot < options.hot_patience:
            return None
        self._before, self._since_spread = None, 0
        self._patience = min(2 * self._patience, options.calm_patience_max)
        self._too_many = job.records
        self.disturbed()
        moved = {
            each.range_id: before[each.range_id]
            for each in job.ranges
            if before.get(each.range_id, each.slot) != each.slot
        }
        why = "has more state than it keeps in memory" if is_too_large else "has too much to do"
        reason = f"one worker {why}: ranges go back to {len({*moved.values()})} other slots"
        return Placement(slots=moved, reason=reason) if moved else None


def fits_one_worker(job: JobView, options: PlacementOptions) -> bool:
    """Whether a job did so little in an interval, and has so little state, that one worker might have all of it.

    Args:
        job: as it was in that interval.
        options: what is little.
    """
    return 2 * job.state_bytes <= options.state_bytes_max and job.long_share <= options.calm_share


def _busiest(ranges: Collection[RangeView]) -> int:
    """The slot that has had most to do, or else has most ranges, so that least has to move."""
    records, counts = Counter[int](), Counter[int]()
    for each in ranges:
        records[each.slot] += each.records
        counts[each.slot] += 1
    return min(counts, key=lambda slot: (-records[slot], -counts[slot], slot))
