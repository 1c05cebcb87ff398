"""Checks of channels: productions, sent and delivered marks."""

from runners.errors import StoreError
from runners.millwheel.model.ids import Channel, CommitMark, Receipt
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.store.port import TakenRange
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    SPLIT,
    Owner,
    StoreFactory,
    cell,
    cells_of,
    expect_equal,
    expect_error,
    opened,
    take_over,
)


def check_productions_until_acknowledged(connect: StoreFactory) -> None:
    """Productions are kept, in order, up to the acknowledged one and no further."""
    store = opened(connect)
    owner = Owner(store, LOW)
    there, self_loop = Channel(LOW, HIGH), Channel(LOW, LOW)
    first = [Checkpoint(there, n, -n, b"p%d" % n) for n in (1, 2, 3)]
    other = [Checkpoint(self_loop, n, n, b"") for n in (1, 2)]
    owner.commit(checkpoints=[first[2], *other, first[0], first[1]])
    expect_equal(by_channel(take_over(store)), {there: first, self_loop: other}, "productions")
    owner = Owner(store, LOW)
    more = Checkpoint(there, 4, 0, b"p4")
    owner.commit(checkpoints=[more], acknowledged={there: 2})
    pending = {there: [first[2], more], self_loop: other}
    expect_equal(by_channel(take_over(store)), pending, "productions after an acknowledgement")
    expect_equal(store.statistics(JOB)["checkpoints"], 4, "number of productions")
    expect_equal(list(take_over(store, HIGH).checkpoints), [], "productions of the receiver")


def check_sent_marks_outlive_productions(connect: StoreFactory) -> None:
    """Numbers that were given out stay taken when their productions are gone."""
    store = opened(connect)
    owner = Owner(store, LOW)
    there, back = Channel(LOW, HIGH), Channel(LOW, SPLIT)
    owner.commit(checkpoints=[Checkpoint(there, n, 0, b"") for n in (1, 2, 3)])
    expect_equal(dict(take_over(store).sent), {there: 3}, "sent, none acknowledged")
    owner = Owner(store, LOW)
    owner.commit(acknowledged={there: 2, back: 9})
    expect_equal(dict(take_over(store).sent), {there: 3, back: 9}, "sent, some acknowledged")
    owner = Owner(store, LOW)
    owner.commit(acknowledged={there: 3})
    owner.commit(acknowledged={there: 1})
    taken = take_over(store)
    expect_equal(dict(taken.sent), {there: 3, back: 9}, "sent, all acknowledged")
    expect_equal(list(taken.checkpoints), [], "productions, all acknowledged")
    expect_equal(dict(take_over(store, HIGH).sent), {}, "sent by the receiver")


def check_what_its_own_commit_acknowledges_is_not_kept(connect: StoreFactory) -> None:
    """Productions that their own commit acknowledges are not stored, but their numbers are taken; others are stored."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    there, loop = Channel(LOW, HIGH), Channel(LOW, LOW)
    made = [Checkpoint(there, n, 0, b"p%d" % n) for n in (1, 2, 3)]
    after = [CommitMark(fence.token, fence.bundle) for fence in owner.production().fences]
    owner.commit(
        checkpoints=[*made, Checkpoint(loop, 1, 0, b"")],
        delivered={there: 2},
        origins={there: after[0]},
        acknowledged={there: 2},
        receipts={there: Receipt(after[1], is_remembered=True)},
    )
    expect_equal(store.statistics(JOB)["checkpoints"], 2, "number of productions")
    low, high = take_over(connect(), LOW), take_over(connect(), HIGH)
    expect_equal(dict(low.sent), {there: 3, loop: 1}, "sent")
    expect_equal([each.sequence for each in low.checkpoints], [1, 3], "productions")
    expect_equal(dict(high.delivered), {there: 2}, "delivered")


def check_what_a_receiver_has_is_sent(connect: StoreFactory) -> None:
    """Numbers of productions that were never durable are taken, too: the next sender must not use them again."""
    store = opened(connect)
    receiver = Owner(store, HIGH)
    there, far = Channel(LOW, HIGH), 7 << 32
    receiver.commit(delivered={there: far})
    expect_equal(dict(take_over(store).sent), {there: far}, "sent, by what the receiver has")
    owner = Owner(store, LOW)
    owner.commit(checkpoints=[Checkpoint(there, far + 1, 0, b"")])
    expect_equal(dict(take_over(store).sent), {there: far + 1}, "sent, by what the sender has")


def check_delivered_marks(connect: StoreFactory) -> None:
    """What was delivered is known to the receiver's next owner, per channel, and never shrinks."""
    store = opened(connect)
    owner = Owner(store, HIGH)
    from_low, from_split = Channel(LOW, HIGH), Channel(SPLIT, HIGH)
    owner.commit(delivered={from_low: 5, from_split: 1})
    owner.commit(delivered={from_low: 4, from_split: 2})
    taken = take_over(store, HIGH)
    expect_equal(dict(taken.delivered), {from_low: 5, from_split: 2}, "delivered")
    expect_equal(dict(take_over(store, LOW).delivered), {}, "delivered to the sender")
    expect_equal(store.statistics(JOB)["channels"], 2, "number of channels")


def check_marks_of_long_channels(connect: StoreFactory) -> None:
    """A channel has one mark at each end, however far its numbers have come and by which steps."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    there, back = Channel(LOW, HIGH), Channel(HIGH, LOW)
    for number in (1, 63, 64, 65, 640, 128, 100_000, 99_999):
        sent = [Checkpoint(there, number, 0, b"")] if number in (65, 100_000) else []
        owner.commit(
            delivered={there: number, back: number + 1},
            checkpoints=sent,
            acknowledged={there: number - 1},
        )
    low, high = take_over(connect(), LOW), take_over(connect(), HIGH)
    expect_equal(dict(high.delivered), {there: 100_000}, "delivered")
    expect_equal(dict(low.delivered), {back: 100_001}, "delivered to the sender")
    expect_equal(dict(low.sent), {there: 100_000}, "sent")
    expect_equal([each.sequence for each in low.checkpoints], [100_000], "productions")
    expect_equal(store.statistics(JOB)["channels"], 2, "number of channels")


def check_sequences_are_given_out_once(connect: StoreFactory) -> None:
    """A second production with the same number is refused as a bug, with nothing done."""
    store = opened(connect)
    owner = Owner(store, LOW)
    channel = Channel(LOW, HIGH)
    owner.commit(checkpoints=[Checkpoint(channel, 1, 0, b"first")])
    again = owner.production(
        checkpoints=[Checkpoint(channel, 1, 0, b"second")], cells=[cell(b"k", b"1")]
    )
    expect_error(StoreError, lambda: store.commit(again), "a sequence given out twice")
    owner.commit()
    taken = take_over(store)
    expect_equal([c.payload for c in taken.checkpoints], [b"first"], "the production kept")
    expect_equal(cells_of(store), {}, "cells of the refused production")


def by_channel(taken: TakenRange) -> dict[Channel, list[Checkpoint]]:
    """Productions per channel, in the order in which the store gave them."""
    channels: dict[Channel, list[Checkpoint]] = {}
    for checkpoint in taken.checkpoints:
        channels.setdefault(checkpoint.channel, []).append(checkpoint)
    return channels
