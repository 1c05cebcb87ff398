"""SoleOwner: a worker computes watermarks only while it has all ranges, and nobody does once that is revoked."""

from runners.millwheel.master.assignment import Assignment
from runners.millwheel.master.slots import Slot
from runners.millwheel.master.sole_owner import SoleOwner
from runners.millwheel.model.ids import RangeId

RANGES = [RangeId("sum", index) for index in range(4)]


def gathered(slots: int = 2) -> Assignment:
    """All ranges in slot 1, whose worker has taken them over."""
    assignment = Assignment(RANGES, slots)
    for index in range(slots):
        assignment.place(index)
        assignment.confirm(index, RANGES)
    assignment.move(RANGES, 1)
    assignment.release(0, RANGES)
    assignment.confirm(1, RANGES)
    return assignment


def test_a_worker_with_all_ranges_is_the_sole_owner() -> None:
    """Not while one of them is elsewhere, or on its way."""
    owner, assignment = SoleOwner(has_been_one=False), gathered()
    assert owner.ranges(assignment) == 4
    assignment.move(RANGES[:1], 0)
    assert owner.ranges(assignment) == 0
    assignment.release(1, RANGES[:1])
    assignment.confirm(0, RANGES[:1])
    assert assignment.is_at_rest
    assert owner.ranges(assignment) == 0


def test_what_is_revoked_is_so_when_a_later_report_has_come() -> None:
    """A report as of the same millisecond may be of a worker that has not received it."""
    owner, assignment = SoleOwner(has_been_one=False), gathered()
    slots = [Slot(), Slot(as_of_ms=20)]
    assert owner.ranges(assignment) == 4
    assert not owner.is_revoked(assignment, slots), "nobody has asked for it"
    owner.revoke(20)
    owner.revoke(30)

    assert owner.ranges(assignment) == 0
    assert not owner.is_revoked(assignment, slots)
    slots[1].as_of_ms = 21
    assert owner.is_revoked(assignment, slots), "the first of the two counts"
    owner.let_go()
    assert owner.ranges(assignment) == 4


def test_who_comes_after_the_sole_owner_reports_first() -> None:
    """It knows from the store how far the former owner has come, whose last reports may have been lost."""
    owner, assignment = SoleOwner(has_been_one=False), gathered()
    slots = [Slot(), Slot(as_of_ms=20)]
    owner.ranges(assignment)
    owner.revoke(10)
    assignment.place(1)
    assert not owner.is_revoked(assignment, slots), "nobody has the ranges"
    assignment.confirm(1, RANGES)
    owner.note_taken_over(25)
    assert not owner.is_revoked(assignment, slots)
    slots[1].as_of_ms = 26
    assert owner.is_revoked(assignment, slots)


def test_a_job_that_was_always_spread_need_not_wait() -> None:
    """Unless a driver before this one may have had a sole owner."""
    assignment = Assignment(RANGES, 2)
    for has_been_one in (False, True):
        owner = SoleOwner(has_been_one=has_been_one)
        owner.revoke(10)
        assert owner.is_revoked(assignment, [Slot(), Slot()]) is not has_been_one
