"""Courier and Inbox: what is sent comes once, in order, also after a range was away and where something is missing."""

from collections.abc import Sequence

import pytest

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.courier import RESEND_INTERVAL_MS, Courier
from runners.millwheel.worker.inbox import Inbox
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from windowing.timestamps import MIN_TIMESTAMP_US

READ, SUM = RangeId("read", 0), RangeId("sum", 0)
CHANNEL = Channel(READ, SUM)


def owned(range_id: RangeId) -> OwnedRange:
    return OwnedRange(
        range_id=range_id,
        token=1,
        bundle=0,
        outbox=Outbox([], {}),
        delivered={},
        watermark_us=MIN_TIMESTAMP_US,
    )


def deliver(inbox: Inbox, sequences: Sequence[int]) -> list[int]:
    """The sequences that wait afterwards; each is the oldest that its sender has left if it is the first."""
    for each in sequences:
        inbox.put(Deliver(CHANNEL, each, b"", each == sequences[0]))
    return [each.sequence for each in inbox.take("sum", 100)]


def test_what_is_sent_again_waits_once() -> None:
    """What waits is bounded by what senders have not had acknowledged."""
    assert deliver(Inbox({SUM: owned(SUM)}), [1, 2, 1, 2, 3, 2]) == [1, 2, 3]


def test_what_a_range_has_accepted_does_not_wait_again() -> None:
    """Its new owner knows it from the store; who sends it again does not know that yet."""
    ranges = {SUM: owned(SUM)}
    ranges[SUM].accepted[CHANNEL] = 3

    assert deliver(Inbox(ranges), [2, 3, 4, 5]) == [4, 5]


def test_ranges_that_change_hands_are_sent_what_is_open_at_once_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their former address is forgotten; what may be lost is sent again when it is time, and then not before long."""
    clock, ranges, network = ManualClock(), {READ: owned(READ)}, LocalNetwork()
    endpoint = network.endpoint("w")
    forgotten: list[str] = []
    monkeypatch.setattr(endpoint, "forget", forgotten.append)
    courier, former, later = (
        Courier(ranges, endpoint, clock),
        network.endpoint("a"),
        network.endpoint("b"),
    )
    ranges[READ].outbox.create(CHANNEL, 0, b"")
    courier.reroute({SUM: "a"})
    courier.reroute({SUM: "a"})
    assert len(former.receive(0)) == 1
    assert not forgotten
    courier.reroute({SUM: "b"})
    assert len(later.receive(0)) == 1
    assert forgotten == ["a"]
    courier.send_all_of([READ])
    assert len(later.receive(0)) == 1
    for expected in (1, 0):
        clock.advance(expected * RESEND_INTERVAL_MS)
        courier.resend_stale()
        assert len(later.receive(0)) == expected
    assert not former.receive(0)


def test_what_was_taken_in_is_acknowledged_again_up_to_the_last() -> None:
    ranges = {SUM: owned(SUM)}
    inbox = Inbox(ranges)
    ranges[SUM].delivered[CHANNEL] = ranges[SUM].accepted[CHANNEL] = 2

    assert [inbox.put(Deliver(CHANNEL, each, b"", is_oldest=False)) for each in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_a_range_that_comes_back_is_sent_what_it_had_not_taken_in() -> None:
    """What waited for it when it left is gone with it, and comes again."""
    ranges = {SUM: owned(SUM)}
    inbox = Inbox(ranges)
    inbox.put(Deliver(CHANNEL, 1, b"", is_oldest=True))
    del ranges[SUM]
    inbox.forget(SUM)
    assert not len(inbox)
    ranges[SUM] = owned(SUM)

    assert deliver(inbox, [1, 2]) == [1, 2]


def test_what_comes_after_a_gap_is_sent_again_within_the_same_worker() -> None:
    """Where a former owner's production was not durable nobody will send it: the next one is the oldest some day."""
    clock, ranges = ManualClock(), {READ: owned(READ), SUM: owned(SUM)}
    network = LocalNetwork()
    courier = Courier(ranges, network.endpoint("w"), clock)
    outbox = ranges[READ].outbox
    first = outbox.create(CHANNEL, 0, b"")
    second = outbox.create(CHANNEL, 0, b"")
    courier.send(second)
    assert not len(courier.inbox)

    outbox.acknowledge(CHANNEL, first.sequence)
    clock.advance(RESEND_INTERVAL_MS)
    courier.resend_stale()

    assert [each.sequence for each in courier.inbox.take("sum", 100)] == [second.sequence]
