"""Slot: what is believed of its worker, and for how long it is waited for."""

from runners.millwheel.master.slots import LEASE_TTL_MAX_MS, LEASE_TTL_MS, Slot, live_slots


def test_what_was_reported_before_ranges_came_does_not_count_for_these() -> None:
    """A worker that was quiet, or paused, has perhaps been given one with something to do."""
    slot = Slot(worker="w", is_quiet=True, paused_ms=7)
    slot.confirm()

    assert slot.is_ready
    assert not slot.is_quiet
    assert slot.paused_ms is None


def test_a_slot_without_a_worker_is_given_nothing_and_waited_for_by_nobody() -> None:
    slot = Slot(worker="w", last_seen_ms=100, is_ready=True, is_quiet=True, paused_ms=7)
    slot.vacate()

    assert live_slots([slot], 100) == []
    assert not slot.is_ready
    assert not slot.is_quiet
    assert slot.paused_ms is None


def test_a_lease_ends_a_moment_after_its_last_one() -> None:
    slot = Slot(worker="w", last_seen_ms=100, is_ready=True)

    assert live_slots([slot], 100 + LEASE_TTL_MS) == [0]
    assert live_slots([slot], 101 + LEASE_TTL_MS) == []


def test_a_worker_that_was_only_slow_makes_the_next_one_wait_longer() -> None:
    """Or a worker whose reports take longer than a lease would be replaced for ever."""
    slot = Slot()
    leases_ms = []
    for _ in range(8):
        slot.expired = "slow"
        slot.forgive("another")
        slot.forgive("slow")
        slot.forgive("slow")
        leases_ms.append(slot.lease_ttl_ms)

    assert leases_ms[:3] == [2 * LEASE_TTL_MS, 4 * LEASE_TTL_MS, 8 * LEASE_TTL_MS]
    assert leases_ms[-1] == LEASE_TTL_MAX_MS


def test_a_worker_that_ends_itself_after_its_lease_was_only_slow() -> None:
    """Unlike one that is ended from outside, or ends in time."""
    silent, in_time, slow = (Slot(expired=each) for each in ("w", None, "w"))
    silent.on_end(is_silent=True)
    in_time.on_end(is_silent=False)
    slow.on_end(is_silent=False)
    slow.on_end(is_silent=False)

    assert [each.lease_ttl_ms // LEASE_TTL_MS for each in (silent, in_time, slow)] == [1, 1, 2]
