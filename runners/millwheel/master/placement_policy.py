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

Nor is foretold whether spreading helps: where processors are few, or most of what there is to do is sending it to other
workers, the rounds of all workers are as long as those of the one.  So a worker that keeps up, with rounds that are
long, is **relieved on trial**: if all workers together take in no more than the one did, and are in long rounds for as
much of their time, the job is gathered again, and the next trial comes later, or with more records.

Pure: numbers in, a decision out.  ADR 0071.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

import attrs

from runners.millwheel.master.load_policy import RangeView
from runners.millwheel.model.ids import RangeId


@attrs.frozen(kw_only=True)
class JobView:
    """A job over the last interval, as the policy sees it.

    Attributes:
        ranges: all of it; at least one.
        long_share: time that all workers together were in long rounds, as a part of the interval.
        long_round_ms: how long such a round took, on average; 0: there was none.
        state_bytes: what they have of the state in memory.
    """

    ranges: Sequence[RangeView]
    long_share: float
    long_round_ms: float = 0.0
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
        hot_share: with at least so much a gathered job may be too much for its worker.
        hot_patience: intervals in succession in which that must be so, with rounds of ``behind_ms``.
        calm_patience: intervals in succession that must be calm before the job is gathered for the first time.
        calm_patience_max: the longest that becomes of it.
        less: part of the records that were too many for one worker, with which it is tried again.
        memory: how many times the patience these are remembered.
        behind_ms: with long rounds of at least so much, on average, a worker does not keep up.
        slow_patience: intervals in succession with ``hot_share`` before it is tried whether the job is better spread.
        trial_wait_max: the longest time after a trial in vain before the next one, in intervals.
        warm_up: intervals of a trial in which records that came while ranges were moved are made up for.
        measured: intervals of a trial after these, by which it is evaluated.
        rest: a trial has helped if workers are in long rounds for at most such a part of the time that the one was.
        gain: or if they take in more than so many times as many records as the one did.
    """

    state_bytes_max: int
    calm_share: float = 0.1
    hot_share: float = 0.5
    hot_patience: int = 2
    calm_patience: int = 5
    calm_patience_max: int = 600
    less: float = 0.5
    memory: int = 10
    behind_ms: int = 100
    slow_patience: int = 30
    trial_wait_max: int = 1_800
    warm_up: int = 3
    measured: int = 3
    rest: float = 0.5
    gain: float = 1.25


@attrs.define(kw_only=True)
class _Trial:
    """A job that was spread to see whether that helps.

    Attributes:
        slot: that had all ranges, with ``long_share`` and ``records`` in its last interval.
        intervals: so many have passed.
        spread: of these, those by which it is evaluated.
    """

    slot: int
    long_share: float
    records: int
    intervals: int = 0
    spread: list[JobView] = attrs.field(factory=list)

    def has_helped(self, options: PlacementOptions) -> bool:
        """Whether the workers rest more than the one did, or take in more."""
        workers = [len({each.slot for each in job.ranges}) for job in self.spread]
        shares = [job.long_share / of for job, of in zip(self.spread, workers, strict=True)]
        return (
            fmean(shares) <= options.rest * self.long_share
            or fmean(job.records for job in self.spread) > options.gain * self.records
        )


class PlacementPolicy:
    """Decides once in an interval; remembers what was too much, and where ranges were.

    Args:
        slots: how many there are, all of them with a worker.
        options: when it decides.
    """

    def __init__(self, slots: int, options: PlacementOptions) -> None:
        self._slots, self._options = slots, options
        self._patience = options.calm_patience
        #: Intervals after a trial in vain before the next.
        self._trial_wait = options.memory * options.slow_patience
        self._calm = self._hot = self._slow = self._since_spread = self._since_trial = 0
        #: The records of an interval that were too many.
        self._too_many: int | None = None
        #: While the job is gathered, where the ranges were before.
        self._before: Mapping[RangeId, int] | None = None
        self._trial: _Trial | None = None
        #: With so many records spreading has not helped.
        self._not_helped: int | None = None

    @property
    def is_gathered(self) -> bool:
        """Whether it has had the ranges gathered in one slot."""
        return self._before is not None

    @property
    def decides_alone(self) -> bool:
        """Whether ranges are where it wants to have them, so that nobody else is to move them."""
        return self._before is not None or self._trial is not None

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
        if self._trial is not None and may_gather:
            return self._evaluate(job, self._trial)
        self._trial = None
        return self._gather(job) if may_gather else None

    def disturbed(self) -> None:
        """Disregard the last interval: something else was going on."""
        self._calm = self._hot = self._slow = 0

    def _gather(self, job: JobView) -> Placement | None:
        options = self._options
        self._since_spread += 1
        if self._since_spread > options.memory * self._patience:
            self._too_many = None
        is_less = self._too_many is None or job.records <= options.less * self._too_many
        self._calm = self._calm + 1 if is_less and fits_one_worker(job, options) else 0
        if self._calm < self._patience:
            return None
        slot = _busiest(job.ranges)
        return self._gathered(
            job, slot, f"there is little to do: slot {slot} is given all ranges of the job"
        )

    def _gathered(self, job: JobView, slot: int, reason: str) -> Placement | None:
        self.disturbed()
        moved = {each.range_id: slot for each in job.ranges if each.slot != slot}
        if not moved:
            return None
        self._before = {each.range_id: each.slot for each in job.ranges}
        return Placement(slots=moved, reason=reason)

    def _spread(self, job: JobView, before: Mapping[RangeId, int]) -> Placement | None:
        options = self._options
        self._since_trial += 1
        is_too_large = job.state_bytes > options.state_bytes_max
        is_hot = job.long_share >= options.hot_share and not self._is_warming_up
        is_behind = is_hot and job.long_round_ms >= options.behind_ms
        self._hot = self._hot + 1 if is_too_large or is_behind else 0
        self._slow = self._slow + 1 if is_hot and self._may_try(job) else 0
        if self._hot >= options.hot_patience:
            self._was_too_much(job.records)
            why = "has more state than it keeps in memory" if is_too_large else "does not keep up"
        elif self._slow >= options.slow_patience:
            slot = job.ranges[0].slot
            self._trial = _Trial(slot=slot, long_share=job.long_share, records=job.records)
            why = "has much to do"
        else:
            return None
        self.disturbed()
        self._before = None
        moved = {
            each.range_id: before[each.range_id]
            for each in job.ranges
            if before.get(each.range_id, each.slot) != each.slot
        }
        reason = f"one worker {why}: ranges go back to {len({*moved.values()})} other slots"
        return Placement(slots=moved, reason=reason) if moved else None

    @property
    def _is_warming_up(self) -> bool:
        """Whether a trial in vain has just ended, and records that came while ranges were moved are made up for."""
        return self._not_helped is not None and self._since_trial <= self._options.warm_up

    def _may_try(self, job: JobView) -> bool:
        options = self._options
        if self._not_helped is None or job.records > options.gain * self._not_helped:
            return True
        return self._since_trial > self._trial_wait

    def _was_too_much(self, records: int) -> None:
        self._patience = min(2 * self._patience, self._options.calm_patience_max)
        self._too_many, self._since_spread = records, 0

    def _evaluate(self, job: JobView, trial: _Trial) -> Placement | None:
        options = self._options
        trial.intervals += 1
        if trial.intervals > options.warm_up:
            trial.spread.append(job)
        if len(trial.spread) < options.measured:
            return None
        self._trial = None
        if job.state_bytes > options.state_bytes_max or trial.has_helped(options):
            self._not_helped = None
            self._was_too_much(trial.records)
            return None
        self._not_helped, self._since_trial = trial.records, 0
        self._trial_wait = min(2 * self._trial_wait, options.trial_wait_max)
        reason = f"all workers have as much to do as one had: slot {trial.slot} is given all ranges"
        return self._gathered(job, trial.slot, reason)


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
