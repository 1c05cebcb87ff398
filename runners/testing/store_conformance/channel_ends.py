"""Checks of what ranges know of each other: a part of the store that has gone back is found out."""

from functools import partial

from runners.errors import LostCommitsError
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.production import Checkpoint, Reshape
from runners.millwheel.store.port import Store
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    SPLIT,
    Owner,
    StoreFactory,
    cell,
    expect_equal,
    expect_error,
    opened,
    take_over,
)

_CHANNEL = Channel(LOW, HIGH)


def mark(owner: Owner, range_id: RangeId) -> CommitMark:
    """The last commit of an owner.

    Args:
        owner: has the range.
        range_id: the range.

    Returns:
        What a receiver stores as the origin of what was sent with that commit.
    """
    return CommitMark(owner.taken[range_id].row.token, owner.bundles[range_id])


def check_channels_whose_ends_agree(connect: StoreFactory) -> None:
    """Channels of current and former owners, with and without guarantees: nothing is lost, so nothing is refused."""
    store = opened(connect)
    for number in (1, 2, 3):
        sender, receiver = Owner(store, LOW), Owner(store, HIGH)
        sender.commit(checkpoints=[Checkpoint(_CHANNEL, number, 0, b"")])
        made = mark(sender, LOW)
        if number == 2:
            sender = Owner(store, LOW)
        receiver.commit(delivered={_CHANNEL: number}, origins={_CHANNEL: made})
        receipt = Receipt(mark(receiver, HIGH), is_remembered=True)
        if number == 3:
            receiver = Owner(store, HIGH)
        sender.commit(acknowledged={_CHANNEL: number}, receipts={_CHANNEL: receipt})
    sender, receiver = Owner(store, LOW), Owner(store, HIGH)
    # What was not durable when it was sent, and a receiver that does not write down what it takes in.
    receiver.commit(delivered={_CHANNEL: 99})
    receipt = Receipt(mark(receiver, HIGH), is_remembered=False)
    sender.commit(acknowledged={_CHANNEL: 120}, receipts={_CHANNEL: receipt})
    expect_equal(dict(take_over(store, HIGH).delivered), {_CHANNEL: 99}, "delivered")
    expect_equal(dict(take_over(store, LOW).sent), {_CHANNEL: 120}, "sent")


def check_a_delivery_of_a_commit_that_is_gone_is_refused(connect: StoreFactory) -> None:
    """A receiver that has taken in a delivery which its sender has lost must not make that durable."""
    store = opened(connect)
    first = Owner(store, LOW)
    first.commit()
    last = mark(first, LOW)
    second = Owner(store, LOW)
    second.commit()
    now = mark(second, LOW)
    receiver = Owner(store, HIGH)
    wrong = (
        last._replace(bundle=last.bundle + 1),
        now._replace(bundle=now.bundle + 1),
        now._replace(token=now.token + 1_000),
    )
    for each in wrong:
        production = receiver.production(
            delivered={_CHANNEL: 1}, origins={_CHANNEL: each}, cells=[cell(b"k", b"1", 1 << 63)]
        )
        expect_error(LostCommitsError, partial(store.commit, production), f"a delivery by {each}")
    for number, each in enumerate((last, now), 1):
        receiver.commit(delivered={_CHANNEL: number}, origins={_CHANNEL: each})
    expect_equal(store.statistics(JOB)["cells"], 0, "cells of a commit that was refused")


def check_an_acknowledgement_of_a_commit_that_is_gone_is_refused(connect: StoreFactory) -> None:
    """A sender must not delete a production that its receiver has lost; the production stays."""
    store = opened(connect)
    sender, receiver = Owner(store, LOW), Owner(store, HIGH)
    sender.commit(checkpoints=[Checkpoint(_CHANNEL, 1, 0, b"kept")])
    now = mark(receiver, HIGH)
    gone = Receipt(now._replace(bundle=now.bundle + 1), is_remembered=True)
    production = sender.production(acknowledged={_CHANNEL: 1}, receipts={_CHANNEL: gone})
    expect_error(LostCommitsError, partial(store.commit, production), "an acknowledgement")
    expect_equal([each.payload for each in take_over(store).checkpoints], [b"kept"], "what stays")


def check_ranges_that_have_gone_back_are_not_given(connect: StoreFactory) -> None:
    """Numbers of a channel that contradict each other: one of its ends has lost commits."""
    for range_id, parts in (
        (LOW, _deliver_what_nobody_has_made),
        (HIGH, _acknowledge_what_nobody_has_taken_in),
    ):
        store = connect()
        store.reset_job(JOB)
        store = opened(connect)
        parts(store)
        before = store.read_job(JOB)
        expect_error(LostCommitsError, partial(take_over, store, range_id), f"{range_id} as it is")
        expect_equal(store.read_job(JOB), before, "the job after that")


def _deliver_what_nobody_has_made(store: Store) -> None:
    sender, receiver = Owner(store, LOW), Owner(store, HIGH)
    sender.commit(checkpoints=[Checkpoint(_CHANNEL, 1, 0, b"")])
    receiver.commit(delivered={_CHANNEL: 2}, origins={_CHANNEL: mark(sender, LOW)})


def _acknowledge_what_nobody_has_taken_in(store: Store) -> None:
    sender, receiver = Owner(store, LOW), Owner(store, HIGH)
    sender.commit(checkpoints=[Checkpoint(_CHANNEL, number, 0, b"") for number in (1, 2)])
    receiver.commit(delivered={_CHANNEL: 1}, origins={_CHANNEL: mark(sender, LOW)})
    receipt = Receipt(mark(receiver, HIGH), is_remembered=True)
    sender.commit(acknowledged={_CHANNEL: 2}, receipts={_CHANNEL: receipt})


def check_productions_to_a_retired_range_are_not_given(connect: StoreFactory) -> None:
    """A range is retired when nothing is on its way to it: what is, was deleted, and its sender has gone back."""
    store = opened(connect)
    channel = Channel(SPLIT, HIGH)
    sender = Owner(store, SPLIT)
    sender.commit(checkpoints=[Checkpoint(channel, 1, 0, b"")])
    owner = Owner(store, LOW, HIGH)
    owner.commit(delivered={channel: 1}, origins={channel: mark(sender, SPLIT)})
    owner.commit(
        reshape=Reshape(keys={LOW: KeyRange(0, KEY_SPACE_END), HIGH: None}, handover_with=LOW)
    )
    expect_equal(len(take_over(store, SPLIT).checkpoints), 1, "productions before that")
    owner = Owner(store, LOW, HIGH)
    owner.commit(ended_handovers=frozenset([HIGH]), finished=frozenset([HIGH]))
    expect_error(LostCommitsError, partial(take_over, store, SPLIT), "a sender that has gone back")
    expect_equal(take_over(store, LOW).row.handover_with, None, "the handover of another range")


def check_former_owners_that_are_pruned_are_believed(connect: StoreFactory) -> None:
    """Former owners that are pruned are believed: long after, nothing shows whether they had made a commit."""
    store = opened(connect)
    sender = Owner(store, LOW)
    sender.commit()
    made = mark(sender, LOW)
    Owner(store, LOW)
    store.prune(JOB, older_than_s=0.0)
    receiver = Owner(store, HIGH)
    receiver.commit(delivered={_CHANNEL: 0}, origins={_CHANNEL: made})
    later = mark(Owner(store, LOW), LOW)
    lost = receiver.production(
        delivered={_CHANNEL: 1}, origins={_CHANNEL: later._replace(bundle=later.bundle + 1)}
    )
    expect_error(LostCommitsError, partial(store.commit, lost), "a commit of an owner of now")


def check_former_owners_of_today_are_not_pruned(connect: StoreFactory) -> None:
    """Former owners of today are not pruned: whoever relies on a commit that they have not made is refused."""
    store = opened(connect)
    sender = Owner(store, LOW)
    sender.commit()
    made = mark(sender, LOW)
    Owner(store, LOW)
    expect_equal(store.prune(JOB, older_than_s=86_400.0)["owners"], 0, "owners that are pruned")
    receiver = Owner(store, HIGH)
    lost = receiver.production(
        delivered={_CHANNEL: 0}, origins={_CHANNEL: made._replace(bundle=made.bundle + 1)}
    )
    expect_error(LostCommitsError, partial(store.commit, lost), "a commit of an owner of today")


def check_ranges_behind_a_cut_are_not_given(connect: StoreFactory) -> None:
    """A range that has not come as far as another one keeps of it; that one itself has lost nothing."""
    store = opened(connect)
    owner, reader = Owner(store, LOW, HIGH), Owner(store, SPLIT)
    reader.commit()
    made = mark(reader, SPLIT)
    for wrong in (
        made._replace(bundle=made.bundle + 1),
        made._replace(token=made.token + 1_000, bundle=0),
    ):
        owner.commit(cut={SPLIT: wrong, LOW: mark(owner, LOW)})
        before = store.read_job(JOB)
        expect_error(LostCommitsError, partial(take_over, store, SPLIT), f"a range behind {wrong}")
        expect_equal(store.read_job(JOB), before, "the job after that")
    owner.commit()
    expect_error(LostCommitsError, partial(take_over, store, SPLIT), "a commit without a cut later")
    owner.commit(cut={SPLIT: made})
    take_over(store, SPLIT)
    owner.commit(cut={SPLIT: made._replace(bundle=made.bundle + 1)})
    owner = Owner(store, LOW, HIGH)
    expect_error(LostCommitsError, partial(take_over, store, SPLIT), "what a former owner has kept")


def check_cuts_that_agree(connect: StoreFactory) -> None:
    """Of current, former and forgotten owners, and of a range that is no more: nothing is lost."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH, SPLIT)
    owner.commit()
    next_marks = {each: mark(owner, each) for each in (LOW, HIGH, SPLIT)}
    next_marks = {each: made._replace(bundle=made.bundle + 1) for each, made in next_marks.items()}
    owner.commit(cut=next_marks)
    for _ in range(2):
        owner = Owner(store, LOW, HIGH, SPLIT)
    store.prune(JOB, older_than_s=0.0)
    owner = Owner(store, LOW, HIGH, SPLIT)
    owner.commit(
        reshape=Reshape(keys={LOW: KeyRange(0, KEY_SPACE_END), HIGH: None}, handover_with=LOW)
    )
    owner = Owner(store, LOW, HIGH, SPLIT)
    owner.commit(ended_handovers=frozenset([HIGH]), finished=frozenset([HIGH]))
    store.prune(JOB, older_than_s=0.0, retired=[HIGH])
    Owner(store, LOW, SPLIT)
