"""Assignment: every range has one slot at all times, and comes to rest when everybody answers."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runners.millwheel.master.assignment import Assignment, BySlot
from runners.millwheel.model.ids import RangeId

RANGES = [RangeId(name, index) for name in ("read", "sum") for index in range(3)]
SLOTS = 3
slots = st.integers(0, SLOTS - 1)


class Assigning(RuleBasedStateMachine):
    """A master with workers that do what they are asked to, sooner or later, or die."""

    def __init__(self) -> None:
        super().__init__()
        self.assignment = Assignment(RANGES, SLOTS)
        #: Per slot what its worker owns; None: there is no worker.
        self.owned: list[set[RangeId] | None] = [None] * SLOTS
        self.given: list[set[RangeId]] = [set() for _ in range(SLOTS)]
        self.asked: list[set[RangeId]] = [set() for _ in range(SLOTS)]

    def tell(self, given: BySlot, messages: list[set[RangeId]]) -> None:
        for slot, ranges in given.items():
            if self.owned[slot] is not None:
                messages[slot].update(ranges)

    @rule(slot=slots)
    def register(self, slot: int) -> None:
        self.owned[slot], self.given[slot], self.asked[slot] = set(), set(), set()
        self.tell(self.assignment.place(slot), self.given)
        self.tell(self.assignment.bring_home(slot), self.asked)

    @rule(slot=slots)
    def take_over(self, slot: int) -> None:
        """The worker acquires what it was given, which fences whoever had it."""
        owned = self.owned[slot]
        if owned is not None and self.given[slot]:
            for other in self.owned:
                if other is not None and other is not owned:
                    other.difference_update(self.given[slot])
            owned |= self.given[slot]
            self.assignment.confirm(slot, self.given[slot])
            self.given[slot] = set()

    @rule(slot=slots)
    def release(self, slot: int) -> None:
        owned = self.owned[slot]
        if owned is not None and self.asked[slot]:
            owned -= self.asked[slot]
            answer, self.asked[slot] = self.asked[slot], set()
            self.tell(self.assignment.release(slot, answer), self.given)

    @rule(slot=slots, ranges=st.sets(st.sampled_from(RANGES)))
    def move(self, slot: int, ranges: set[RangeId]) -> None:
        self.tell(self.assignment.move(ranges, slot), self.asked)

    @precondition(lambda self: sum(owned is not None for owned in self.owned) > 1)
    @rule(data=st.data())
    def expire(self, data: Any) -> None:
        alive = [slot for slot, owned in enumerate(self.owned) if owned is not None]
        slot = data.draw(st.sampled_from(alive))
        self.owned[slot], self.given[slot], self.asked[slot] = None, set(), set()
        live = [each for each in alive if each != slot]
        self.tell(self.assignment.expire(slot, live), self.given)

    @invariant()
    def every_range_has_one_slot(self) -> None:
        placed = [range_id for slot in range(SLOTS) for range_id in self.assignment.ranges_of(slot)]
        assert sorted(placed) == sorted(RANGES)

    @invariant()
    def what_is_stable_is_owned(self) -> None:
        """So nothing is routed to a worker that does not own it."""
        for slot in range(SLOTS):
            for range_id in self.assignment.ranges_of(slot):
                owned = self.owned[slot]
                if self.assignment.is_stable(range_id):
                    assert owned is not None
                    assert range_id in owned

    def teardown(self) -> None:
        """When everybody is there and answers, everything is owned by somebody."""
        for slot, owned in enumerate(self.owned):
            if owned is None:
                self.register(slot)
        for _ in range(3):
            self.tell(self.assignment.awaited(), self.given)
            self.tell(self.assignment.asked_back(), self.asked)
            for slot in range(SLOTS):
                self.release(slot)
            for slot in range(SLOTS):
                self.take_over(slot)
        assert self.assignment.is_at_rest
        assert sorted(each for owned in self.owned for each in owned or ()) == sorted(RANGES)


TestAssigning = Assigning.TestCase
TestAssigning.settings = settings(stateful_step_count=30)


FIRST, SECOND, THIRD = RANGES[:3]


def all_owned(slots: int = 2) -> Assignment:
    """Ranges dealt to slots in turn, and all of them owned."""
    assignment = Assignment(RANGES, slots)
    for slot in range(slots):
        assignment.place(slot)
        assignment.confirm(slot, assignment.ranges_of(slot))
    return assignment


def test_a_range_in_a_handover_goes_to_where_the_other_is() -> None:
    """It was found out that they are in a handover; until its new owner has it nothing is sent to it."""
    assignment = all_owned()
    assignment.handover(SECOND, FIRST)

    assert assignment.slot_of(SECOND) == assignment.slot_of(FIRST) == 0
    assert not assignment.is_stable(SECOND)
    assert assignment.is_stable(FIRST)
    assert assignment.awaited() == {0: (SECOND,)}


def test_a_range_in_a_handover_follows_one_that_is_leaving() -> None:
    assignment = all_owned()
    assignment.move([FIRST], 1)
    assignment.handover(THIRD, FIRST)

    assert assignment.asked_back() == {0: (FIRST, THIRD)}
    assert assignment.release(0, [FIRST, THIRD]) == {1: (FIRST, THIRD)}


def test_ranges_in_a_handover_stay_together_when_their_worker_is_gone() -> None:
    assignment = all_owned(3)
    assignment.handover(SECOND, FIRST)
    assignment.handover(RANGES[4], FIRST)
    assignment.expire(0, [1, 2])

    assert len({assignment.slot_of(each) for each in (FIRST, SECOND, RANGES[4])}) == 1


def test_ranges_in_a_handover_are_not_moved_by_hand() -> None:
    assignment = all_owned()
    assignment.handover(THIRD, FIRST)

    assert assignment.move([FIRST, THIRD], 1) == {}
    assignment.end_handover(THIRD, is_retired=False)
    assert assignment.move([FIRST, THIRD], 1) == {0: (FIRST, THIRD)}


def test_a_retired_range_is_nowhere() -> None:
    assignment = all_owned()
    assignment.handover(THIRD, FIRST)
    assignment.end_handover(THIRD, is_retired=True)

    assert THIRD not in assignment.slots
    assert assignment.move([THIRD], 1) == {}
    assert assignment.is_at_rest


def test_what_another_slot_reports_of_a_range_changes_nothing() -> None:
    """It comes late, from where the range was before, or was to go."""
    assignment = Assignment(RANGES, 2)
    assignment.place(0)
    assignment.confirm(1, [FIRST])
    assert not assignment.is_stable(FIRST)

    assignment.confirm(0, [FIRST])
    assignment.move([FIRST], 1)
    assert assignment.release(1, [FIRST]) == {}
    assert assignment.release(0, [FIRST]) == {1: (FIRST,)}


def test_a_range_that_leaves_arrives_when_its_worker_is_replaced() -> None:
    """There is nobody left who could let go of it."""
    assignment = all_owned()
    assignment.move([FIRST], 1)
    given = assignment.place(0)

    assert given[1] == (FIRST,)
    assert FIRST not in given[0]
    assert assignment.asked_back() == {}


def test_a_range_that_leaves_arrives_when_its_worker_is_silent() -> None:
    assignment = all_owned(3)
    assignment.move([FIRST], 1)
    given = assignment.expire(0, [1, 2])

    assert FIRST in given[1]
    assert assignment.asked_back() == {}


def test_ranges_come_home_to_a_worker_that_has_been_replaced() -> None:
    """Or all the work would be where it was given in haste."""
    assignment = all_owned()
    mine = assignment.ranges_of(0)
    for slot, ranges in assignment.expire(0, [1]).items():
        assignment.confirm(slot, ranges)
    assignment.place(0)

    assert assignment.bring_home(0) == {1: mine}
    assert assignment.release(1, mine) == {0: mine}


def test_a_range_in_a_handover_is_not_asked_for_on_its_own_account() -> None:
    """It was on its way to another place, and stays with the one that it has a handover with; or goes with that."""
    assignment = all_owned()
    assignment.move([THIRD], 1)
    assignment.handover(THIRD, FIRST)
    assert assignment.asked_back() == {}

    assignment = all_owned()
    assignment.move([FIRST], 1)
    assignment.handover(SECOND, FIRST)
    assert assignment.awaited() == {}
