"""Ranges that are split and merged."""

from functools import partial

from runners.errors import LostCommitsError, StoreError
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.production import Checkpoint, Production, Reshape
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.port import Committed, Fenced
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    RANGES,
    SPLIT,
    Owner,
    StoreFactory,
    cell,
    cells_of,
    expect,
    expect_equal,
    expect_error,
    opened,
    take_over,
)

_BORN = RangeId("count", 2)
_LOW_KEYS = RANGES[0]
_AT = _LOW_KEYS.high // 2
_SPLIT = Reshape(
    keys={LOW: KeyRange(0, _AT), _BORN: KeyRange(_AT, _LOW_KEYS.high)}, handover_with=LOW
)
_MERGE = Reshape(keys={LOW: KeyRange(0, KEY_SPACE_END), HIGH: None}, handover_with=LOW)


def check_a_split_divides_what_a_range_has(connect: StoreFactory) -> None:
    """Cells stay where they are, and belong to the range that has their hash; times and marks are inherited."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(cells=[cell(b"a", b"1", 0), cell(b"b", b"2", _AT), cell(b"c", b"3", _AT - 1)])
    owner.commit(
        reshape=_SPLIT,
        watermarks_us={LOW: 5},
        percentiles_us={LOW: 6},
        firing_us={LOW: 7},
        signal_marks={LOW: SignalMark(2, 3)},
    )
    taken = connect().acquire(JOB, [_BORN], "other")

    expect_equal(set(taken), {LOW, _BORN}, "ranges that are acquired with one of them")
    expect_equal(set(cells_of(store)), {(0, b"a"), (_AT - 1, b"c")}, "cells that stay")
    expect_equal(cells_of(store, _BORN), {(_AT, b"b"): b"2"}, "cells of the new range")
    row = taken[_BORN].row
    expect_equal(
        (row.keys, row.handover_with, row.bundle, row.split, row.is_finished),
        (KeyRange(_AT, _LOW_KEYS.high), LOW, 0, None, False),
        "the new range",
    )
    expect_equal(
        (row.watermark_us, row.percentile_us, row.firing_us, row.signal_mark),
        (5, 6, 7, SignalMark(2, 3)),
        "what the new range inherits",
    )
    expect_equal(taken[LOW].row.keys, KeyRange(0, _AT), "what is left of the old range")
    expect_equal(
        taken[LOW].row.handover_with, None, "the handover of the range that keeps its place"
    )


def check_the_former_owner_is_fenced_after_a_split(connect: StoreFactory) -> None:
    """The new range has its own fence, which nobody can know without acquiring it."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(reshape=_SPLIT)
    expect_error(
        StoreError,
        lambda: owner.commit(cells=[cell(b"b", b"2", _AT)]),
        "a write to a key that the range has given away",
    )
    fence = owner.production().fences[0]
    guess = Production(
        job=JOB,
        fences=[Fence(range_id=_BORN, token=fence.token, bundle=1)],
        cells=[cell(b"b", b"2", _AT)],
    )
    expect_equal(store.commit(guess), Fenced(_BORN), "a commit with the token of the old range")
    both = Owner(store, LOW, _BORN)
    both.commit(cells=[cell(b"a", b"1", 0), cell(b"b", b"2", _AT)])
    expect_equal(store.commit(owner.production()), Fenced(LOW), "a commit of the former owner")


def check_a_commit_may_name_ranges_that_others_have_made(connect: StoreFactory) -> None:
    """Where a split was made by another connection, its channels are there at once for owners that are not fenced."""
    sender = Owner(opened(connect), SPLIT, name="sender")
    sender.commit(checkpoints=[Checkpoint(Channel(SPLIT, LOW), 1, 0, b"before")])
    receiver = Owner(connect(), HIGH, name="receiver")
    receiver.commit(delivered={Channel(LOW, HIGH): 1})
    Owner(connect(), LOW, name="parent").commit(reshape=_SPLIT)

    there, back = Channel(SPLIT, _BORN), Channel(_BORN, HIGH)
    receiver.commit(delivered={back: 1})
    sender.commit(checkpoints=[Checkpoint(there, 1, 0, b"after")])
    taken = take_over(sender.store, SPLIT)
    expect_equal([c.payload for c in taken.checkpoints], [b"before", b"after"], "productions")
    expect_equal(taken.sent, {Channel(SPLIT, LOW): 1, there: 1}, "sent")
    delivered = take_over(receiver.store, HIGH).delivered
    expect_equal(delivered, {Channel(LOW, HIGH): 1, back: 1}, "delivered")

    # And once more, for the other end.
    last = Owner(connect(), SPLIT)
    last.commit()
    both = Owner(connect(), LOW, _BORN)
    both.commit(ended_handovers=frozenset([_BORN]))
    Owner(connect(), _BORN).commit(
        reshape=Reshape(
            keys={
                _BORN: KeyRange(_AT, _AT + 1),
                RangeId("count", 3): KeyRange(_AT + 1, _LOW_KEYS.high),
            },
            handover_with=_BORN,
        )
    )
    last.commit(acknowledged={Channel(SPLIT, RangeId("count", 3)): 0, there: 1})


def check_a_range_that_nobody_has_made_is_refused(connect: StoreFactory) -> None:
    """A production to a range that does not exist is refused, as nobody would read it; a former owner is fenced."""
    store = opened(connect)
    owner = Owner(store, LOW)
    nowhere = [Checkpoint(Channel(LOW, RangeId("count", 99)), 1, 0, b"lost")]
    astray = owner.production(checkpoints=nowhere, cells=[cell(b"k", b"1")])
    expect_error(LostCommitsError, lambda: store.commit(astray), "a production to nobody")
    owner.commit()
    Owner(connect(), LOW, name="successor")
    expect_equal(store.commit(astray), Fenced(LOW), "the same by a former owner")
    expect_equal(cells_of(store), {}, "cells of a production to nobody")


def check_a_merge_gives_all_keys_to_one(connect: StoreFactory) -> None:
    """The other range keeps its channels until the handover ends, and is at its end then."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    high = RANGES[1].low
    owner.commit(cells=[cell(b"a", b"1", 0), cell(b"b", b"2", high)])
    owner.commit(reshape=_MERGE)
    owner.commit(cells=[cell(b"c", b"3", high)])
    taken = store.acquire(JOB, [HIGH], "other")

    expect_equal(set(taken), {LOW, HIGH}, "ranges that are acquired with one of them")
    expect_equal(len(cells_of(store)), 3, "cells of the range that has all keys")
    expect_equal(cells_of(store, HIGH), {}, "cells of the one that has none")
    expect_equal((taken[HIGH].row.keys, taken[HIGH].row.handover_with), (None, LOW), "its row")

    last = Owner(store, LOW, HIGH)
    last.commit(ended_handovers=frozenset([HIGH]), finished=frozenset([HIGH]))
    row = store.read_job(JOB)
    expect(
        row is not None and row.ranges[HIGH].is_retired,
        "a range without keys goes on after its handover",
    )
    expect_equal(set(store.acquire(JOB, [LOW], "third")), {LOW}, "ranges after their handover")


def check_ranges_after_a_handover_have_owners_of_their_own(connect: StoreFactory) -> None:
    """A split range whose handover has ended is acquired alone, and the other owner is not fenced by it."""
    store = opened(connect)
    Owner(store, LOW).commit(reshape=_SPLIT)
    both = Owner(store, LOW, _BORN)
    both.commit(ended_handovers=frozenset([_BORN]))
    expect_equal(set(store.acquire(JOB, [_BORN], "other")), {_BORN}, "ranges acquired")
    del both.bundles[_BORN]
    both.commit(cells=[cell(b"a", b"1", 0)])
    expect_equal(take_over(store, _BORN).row.handover_with, None, "the handover")


def check_ranges_cover_the_same_keys_as_before(connect: StoreFactory) -> None:
    """Bounds with a gap, an overlap or a stranger's keys are refused, and change nothing."""
    store = opened(connect)
    owner = Owner(store, LOW)
    end = _LOW_KEYS.high
    wrong: dict[str, dict[RangeId, KeyRange | None]] = {
        "a gap": {LOW: KeyRange(0, _AT), _BORN: KeyRange(_AT + 1, end)},
        "an overlap": {LOW: KeyRange(0, _AT + 1), _BORN: KeyRange(_AT, end)},
        "keys of another range": {LOW: KeyRange(0, _AT), _BORN: KeyRange(_AT, end + 1)},
        "a range that is not fenced": {LOW: KeyRange(0, KEY_SPACE_END), HIGH: None},
        "fewer keys": {LOW: KeyRange(0, _AT)},
    }
    for what, keys in wrong.items():
        production = owner.production(reshape=Reshape(keys=keys, handover_with=LOW))
        expect_error(StoreError, partial(store.commit, production), what)
    row = store.read_job(JOB)
    expect(row is not None and set(row.ranges) >= {LOW, HIGH}, "ranges are gone")
    expect(row is not None and row.ranges[LOW].keys == _LOW_KEYS, "a refused split changed a range")
    expect_equal(store.commit(owner.production()), Committed(), "the next commit")
