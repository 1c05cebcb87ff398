"""PlacementPolicy: what one worker can carry is gathered, what it cannot is not, and nothing goes back and forth."""

from collections import Counter
from collections.abc import Iterable
from math import log2

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.master.load_policy import RangeView
from runners.millwheel.master.placement_policy import (
    JobView,
    Placement,
    PlacementOptions,
    PlacementPolicy,
)
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from tests.effort import costly

STATE_BYTES_MAX = 1_000
OPTIONS = PlacementOptions(state_bytes_max=STATE_BYTES_MAX)
#: Long enough for every patience to have grown to its most, and some tries after that.
INTERVALS = 4_000
#: Of as many ranges as there may be.
KEYS = even_ranges(64)


@attrs.define
class Job:
    """A job whose workers can each take in so many records in an interval, and are in long rounds where they do.

    A record is as much work as ``hop`` records where more than one worker has ranges.
    """

    slots: dict[RangeId, int]
    workers: int
    capacity: int
    records: int
    state_bytes: int = 0
    hop: float = 1.0
    placements: list[tuple[int, Placement]] = attrs.field(factory=list)

    def view(self) -> JobView:
        """Records are divided evenly between ranges."""
        work = self.records / len(self.slots) * (1.0 if self.is_gathered else self.hop)
        counts = Counter(self.slots.values())
        used = {slot: count * work / self.capacity for slot, count in counts.items()}
        # A worker that does not keep up takes in what it can.
        taken = {slot: 1 / max(1.0, used[slot]) for slot in used}
        ranges = [
            RangeView(
                range_id=range_id,
                slot=slot,
                keys=KEYS[index],
                records=int(self.records / len(self.slots) * taken[slot]),
            )
            for index, (range_id, slot) in enumerate(sorted(self.slots.items()))
        ]
        # With twice as many records as are done at ease a worker never rests.
        shares = [min(1.0, max(0.0, 2 * each - 1)) for each in used.values()]
        return JobView(
            ranges=ranges,
            long_share=sum(shares),
            long_round_ms=OPTIONS.behind_ms if max(used.values()) > 1 else 20,
            state_bytes=self.state_bytes,
        )

    def run(self, policy: PlacementPolicy, intervals: int = INTERVALS) -> None:
        """Carry out what the policy decides, at once."""
        for interval in range(intervals):
            self.step(policy, interval)

    def step(self, policy: PlacementPolicy, interval: int) -> None:
        placement = policy.decide(self.view())
        if placement is not None:
            assert placement.slots.keys() <= self.slots.keys()
            assert all(self.slots[each] != slot for each, slot in placement.slots.items())
            self.slots |= placement.slots
            self.placements.append((interval, placement))
            assert policy.is_gathered is self.is_gathered
            assert policy.is_gathered <= policy.decides_alone

    @property
    def is_gathered(self) -> bool:
        return len({*self.slots.values()}) == 1


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs that begin on several workers, some of which may have nothing."""
    workers = draw(st.integers(2, 5))
    ranges = draw(st.integers(2, 20))
    places = draw(st.lists(st.integers(0, workers - 1), min_size=ranges, max_size=ranges))
    places[0], places[1] = 0, 1
    slots = {RangeId("sum", index): slot for index, slot in enumerate(places)}
    return Job(slots, workers, capacity=10_000, records=0)


def tries_at_most(intervals: int) -> int:
    """So often a job can have been gathered, as each time it must have been calm for twice as long."""
    first, most = OPTIONS.calm_patience, OPTIONS.calm_patience_max
    return int(log2(intervals / first)) + 2 + intervals // most


def trials_at_most(intervals: int) -> int:
    """So often a job can have been spread on trial without help, with about as many records."""
    first = OPTIONS.memory * OPTIONS.slow_patience
    return int(log2(1 + intervals / first)) + 2 + intervals // OPTIONS.trial_wait_max


def evenly(job: Job) -> Job:
    """The job with as many ranges in each slot."""
    for index, range_id in enumerate(sorted(job.slots)):
        job.slots[range_id] = index % job.workers
    return job


@costly()
@given(jobs(), st.integers(0, 5_000))
def test_what_one_worker_can_carry_is_gathered_once_and_stays(job: Job, records: int) -> None:
    job.records = records
    job.run(PlacementPolicy(job.workers, OPTIONS))

    assert job.is_gathered
    assert len(job.placements) == 1


@costly()
@given(jobs(), st.integers(10_001, 200_000))
def test_what_is_too_much_for_one_worker_is_tried_ever_less_often(job: Job, records: int) -> None:
    job.records = records
    job.run(PlacementPolicy(job.workers, OPTIONS))

    moments = [each for each, _ in job.placements]
    tries, ends = moments[::2], moments[1::2]
    assert all(end - begun == OPTIONS.hot_patience for begun, end in zip(tries, ends, strict=False))
    for number, (end, begun) in enumerate(zip(ends, tries[1:], strict=False), start=1):
        patience = min(OPTIONS.calm_patience * 2**number, OPTIONS.calm_patience_max)
        assert begun - end > OPTIONS.memory * patience


@costly()
@given(
    jobs(),
    st.floats(1.0, 5.0),
    st.lists(
        st.tuples(st.integers(1, 400), st.integers(0, 100_000), st.integers(0, 2_000)),
        min_size=1,
        max_size=30,
    ),
)
def test_whatever_the_load_does_changes_are_few_and_a_range_is_where_it_was_or_in_the_one_slot(
    job: Job, hop: float, phases: Iterable[tuple[int, int, int]]
) -> None:
    job.hop = hop
    policy, interval, before = PlacementPolicy(job.workers, OPTIONS), 0, dict(job.slots)
    for length, job.records, job.state_bytes in phases:
        for _ in range(length):
            job.step(policy, interval)
            interval += 1
            assert job.is_gathered or job.slots == before

    # Some of these records are no more than a quarter more than others of them, so one trial more helps no longer.
    trials = 2 * trials_at_most(interval)
    assert len(job.placements) <= 2 * (tries_at_most(interval + OPTIONS.calm_patience) + trials)


@costly()
@given(jobs(), st.integers(7_600, 10_000))
def test_what_spreading_does_not_help_is_on_one_worker_but_for_trials(
    job: Job, records: int
) -> None:
    """All workers have as much to do as one has, as where most of it is to send records from one to another."""
    job, job.hop = evenly(job), float(job.workers)
    policy, spread = PlacementPolicy(job.workers, OPTIONS), 0
    job.run(policy, OPTIONS.calm_patience)
    job.records = records
    for interval in range(INTERVALS):
        job.step(policy, interval)
        spread += not job.is_gathered

    trials = trials_at_most(INTERVALS)
    assert 3 <= len(job.placements) <= 1 + 2 * trials
    assert spread <= trials * (OPTIONS.warm_up + OPTIONS.measured)
    assert all("have as much to do" in each.reason for _, each in job.placements[2::2])


@costly()
@given(jobs(), st.integers(7_600, 10_000))
def test_what_spreading_helps_stays_spread(job: Job, records: int) -> None:
    job = evenly(job)
    policy = PlacementPolicy(job.workers, OPTIONS)
    job.run(policy, OPTIONS.calm_patience)
    job.records = records
    job.run(policy, OPTIONS.memory * OPTIONS.calm_patience)

    assert not job.is_gathered
    assert not policy.decides_alone
    assert len(job.placements) == 2


@pytest.mark.parametrize(
    ("shares", "records", "helps"),
    [
        # Two workers, each in long rounds for half as long as the one was; and for a little longer.
        ((0.6, 0.6, 0.6), (100, 100, 100), True),
        ((0.6, 0.7, 0.6), (100, 100, 100), False),
        # They take in more than a quarter more than it did; and just that.
        ((1.2, 1.2, 1.2), (125, 125, 126), True),
        ((1.2, 1.2, 1.2), (125, 125, 125), False),
    ],
)
def test_a_trial_is_evaluated_by_its_last_intervals(
    shares: tuple[float, ...], records: tuple[int, ...], helps: bool
) -> None:
    def view(slots: tuple[int, int], share: float, count: int) -> JobView:
        of_slots = zip(slots, (count, 0), strict=True)
        ranges = [
            RangeView(range_id=RangeId("sum", i), slot=slot, keys=None, records=each)
            for i, (slot, each) in enumerate(of_slots)
        ]
        return JobView(ranges=ranges, long_share=share, long_round_ms=30, state_bytes=0)

    policy = PlacementPolicy(5, OPTIONS)
    for _ in range(OPTIONS.calm_patience):
        policy.decide(view((0, 1), 0.0, 100))
    for _ in range(OPTIONS.slow_patience):
        policy.decide(view((0, 0), 0.6, 100))
    assert (policy.is_gathered, policy.decides_alone) == (False, True)
    for share in (5.0, 0.0, 5.0)[: OPTIONS.warm_up]:
        assert policy.decide(view((0, 1), share, 1_000)) is None
    for share, count in zip(shares, records, strict=True):
        assert policy.decides_alone
        policy.decide(view((0, 1), share, count))

    assert policy.is_gathered is policy.decides_alone is not helps


def not_helped(records: int = 7_600) -> tuple[Job, PlacementPolicy]:
    """A gathered job that was spread on trial, which has not helped."""
    job = two_ranges()
    job.hop = 2.0
    policy = PlacementPolicy(2, OPTIONS)
    job.run(policy, OPTIONS.calm_patience)
    job.records = records
    job.run(policy, OPTIONS.slow_patience + OPTIONS.warm_up + OPTIONS.measured)
    assert job.is_gathered
    assert len(job.placements) == 3
    return job, policy


def test_after_a_trial_in_vain_a_worker_that_does_not_keep_up_is_relieved_at_once() -> None:
    job, policy = not_helped()
    job.records = 10_001
    # What came while ranges were moved makes rounds long, too.
    job.run(policy, OPTIONS.warm_up + OPTIONS.hot_patience - 1)
    assert len(job.placements) == 3
    job.run(policy, 1)

    assert not job.is_gathered
    assert "does not keep up" in job.placements[-1][1].reason


@pytest.mark.parametrize(("records", "is_tried"), [(9_502, True), (9_500, False)])
def test_after_a_trial_in_vain_the_next_comes_later_or_with_more_records(
    records: int, is_tried: bool
) -> None:
    job, policy = not_helped()
    job.records = records
    job.run(policy, OPTIONS.warm_up + OPTIONS.slow_patience)
    assert job.is_gathered is not is_tried

    job, policy = not_helped()
    wait = 2 * OPTIONS.memory * OPTIONS.slow_patience
    job.run(policy, wait + OPTIONS.slow_patience - 1)
    assert job.is_gathered
    job.run(policy, 1)
    assert not job.is_gathered


def test_a_trial_that_helps_makes_one_in_vain_forgotten() -> None:
    job, policy = not_helped()
    job.records, job.hop = 9_600, 1.0
    tried = OPTIONS.slow_patience + OPTIONS.warm_up + OPTIONS.measured
    job.run(policy, OPTIONS.warm_up + tried)
    assert (job.is_gathered, policy.decides_alone) == (False, False)
    job.records = 0
    job.run(policy, 2 * OPTIONS.calm_patience)
    assert job.is_gathered
    job.records = 7_600
    job.run(policy, OPTIONS.slow_patience)

    assert not job.is_gathered


def test_a_trial_ends_where_somebody_moves_ranges() -> None:
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    job.run(policy, OPTIONS.calm_patience)
    job.records, job.hop = 9_000, 2.0
    job.run(policy, OPTIONS.slow_patience)
    assert policy.decides_alone
    for _ in range(20):
        assert policy.decide(job.view(), may_gather=False) is None

    assert not policy.decides_alone


@costly()
@given(jobs(), st.integers(OPTIONS.state_bytes_max // 2 + 1, 10 * STATE_BYTES_MAX))
def test_state_that_may_not_fit_is_not_gathered(job: Job, state_bytes: int) -> None:
    job.state_bytes = state_bytes
    job.run(PlacementPolicy(job.workers, OPTIONS), 100)

    assert not job.placements


def two_ranges() -> Job:
    return Job({RangeId("sum", 0): 0, RangeId("sum", 1): 1}, 2, capacity=10_000, records=0)


@pytest.mark.parametrize(
    ("grown", "why"),
    [
        ({"records": 20_000}, "does not keep up"),
        ({"state_bytes": STATE_BYTES_MAX + 1}, "more state than it keeps"),
    ],
)
def test_what_has_become_too_much_goes_back_at_once(grown: dict[str, int], why: str) -> None:
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    job.run(policy, 20)
    assert job.is_gathered
    for name, value in grown.items():
        setattr(job, name, value)
    job.run(policy, OPTIONS.hot_patience)

    assert job.slots == {RangeId("sum", 0): 0, RangeId("sum", 1): 1}
    assert why in job.placements[-1][1].reason


def test_a_worker_that_keeps_up_is_relieved_on_trial_when_its_rounds_have_been_long_for_long() -> (
    None
):
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    job.run(policy, OPTIONS.calm_patience)
    for number, records in enumerate((9_000, 0, 9_000)):
        job.records = records
        job.run(policy, OPTIONS.slow_patience - 1)
        assert job.is_gathered, f"not in succession: {number}"
    job.run(policy, 1)

    assert not job.is_gathered
    assert "has much to do" in job.placements[-1][1].reason


def test_what_lasts_for_a_moment_spreads_nothing() -> None:
    """A window that fires makes a long round, too."""
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    job.run(policy, 20)
    for _ in range(10):
        job.records = 20_000
        job.run(policy, OPTIONS.hot_patience - 1)
        job.records = 0
        job.run(policy, 1)

    assert len(job.placements) == 1


def test_it_is_tried_again_with_fewer_records_and_not_with_as_many() -> None:
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    job.run(policy, 20)
    job.records = 15_000
    job.run(policy, OPTIONS.hot_patience)
    job.run(policy, 4 * OPTIONS.calm_patience)
    assert not job.is_gathered
    job.records = 5_000
    job.run(policy, 2 * OPTIONS.calm_patience)

    assert job.is_gathered


def test_what_was_disturbed_is_not_calm() -> None:
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    for _ in range(20):
        job.run(policy, OPTIONS.calm_patience - 1)
        policy.disturbed()

    assert not job.placements


def test_what_is_calm_now_and_then_is_not_calm() -> None:
    job = two_ranges()
    policy = PlacementPolicy(2, OPTIONS)
    for _ in range(20):
        job.records = 0
        job.run(policy, OPTIONS.calm_patience - 1)
        job.records = 20_000
        job.run(policy, 1)

    assert not job.placements


def test_the_slot_with_most_to_do_gets_all() -> None:
    views = [
        RangeView(range_id=RangeId("sum", i), slot=i % 3, keys=None, records=10 if i == 2 else 1)
        for i in range(9)
    ]
    policy = PlacementPolicy(3, OPTIONS)
    job = JobView(ranges=views, long_share=0.0, state_bytes=0)
    (placement,) = filter(None, (policy.decide(job) for _ in range(OPTIONS.calm_patience)))

    assert placement.slots == {each.range_id: 2 for each in views if each.slot != 2}


def test_nothing_is_gathered_where_it_may_not_be_or_there_is_one_worker() -> None:
    job = two_ranges().view()
    one = PlacementPolicy(1, OPTIONS)
    two = PlacementPolicy(2, OPTIONS)

    assert [one.decide(job) for _ in range(20)] == [None] * 20
    assert [two.decide(job, may_gather=False) for _ in range(20)] == [None] * 20
