"""Checks of the fence: who may commit, and what a takeover sees."""

import itertools
import threading
from functools import partial

from dataflow.table import TableWrite
from runners.errors import JobMismatchError, LostCommitsError, StoreError
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.model.production import CellWrite, Checkpoint, Production, TimerWrite
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.port import Committed, Fenced, Store, TakenRange
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOG,
    LOW,
    RANGES,
    SPLIT,
    Owner,
    StoreFactory,
    at_once,
    cell,
    cells_of,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
    take_over,
)


def check_acquire_moves_the_token(connect: StoreFactory) -> None:
    """Every acquire gives a larger token and keeps the bundle number."""
    store = opened(connect)
    tokens = [store.read_job(JOB).ranges[LOW].token]  # type: ignore[union-attr]
    for name in ("one", "two", "two"):
        row = store.acquire(JOB, [LOW], name)[LOW].row
        expect(row.token > tokens[-1], f"token {row.token} after {tokens[-1]} does not grow")
        expect_equal((row.owner, row.bundle), (name, 0), "owner and bundle")
        expect_equal(store.read_job(JOB).ranges[LOW], row, "the row as read")  # type: ignore[union-attr]
        tokens.append(row.token)
    expect_equal(dict(store.acquire(JOB, [], "nobody")), {}, "acquiring nothing")


def check_acquire_needs_job_and_range(connect: StoreFactory) -> None:
    """A job or range that does not exist cannot be taken, and nothing is taken then."""
    store = opened(connect)
    owner = Owner(store, LOW)
    expect_error(StoreError, lambda: store.acquire("nobody", [LOW], "w"), "an unknown job")
    missing = [LOW, RangeId("count", 99)]
    expect_error(LostCommitsError, lambda: store.acquire(JOB, missing, "w"), "an unknown range")
    other = partial(store.acquire, JOB, missing, "w", store.read_job(JOB).version + 1)  # type: ignore[union-attr]
    expect_error(JobMismatchError, other, "a range that the job does not have in this version")
    owner.commit()


def check_commit_needs_token_and_bundle(connect: StoreFactory) -> None:
    """A commit lands on the exact (token, bundle - 1) of its range and nothing else."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(cells=[cell(b"k", b"1")])
    token = owner.taken[LOW].row.token
    wrong = [(token, 1), (token, 3), (token, 0), (token - 1, 2), (token + 1, 2), (0, 2)]
    for stale, bundle in wrong:
        fence = Fence(range_id=LOW, token=stale, bundle=bundle)
        production = Production(job=JOB, fences=[fence], cells=[cell(b"k", b"wrong")])
        what = f"token {stale} and bundle {bundle} against {token} and 1"
        expect_equal(store.commit(production), Fenced(LOW), what)
    owner.commit()
    expect_equal(cells_of(store), {(7, b"k"): b"1"}, "state after refused commits")


def check_same_commit_twice(connect: StoreFactory) -> None:
    """A commit that is delivered twice is applied once."""
    store = opened(connect)
    owner = Owner(store, LOW)
    production = owner.commit(tables=[TableWrite(table=LOG, inserts=[("red", 1)])])
    expect_equal(store.commit(production), Fenced(LOW), "the same commit again")
    expect_equal(store.read_table(LOG), [("red", 1)], "rows after the same commit twice")


def check_delayed_commit_of_a_former_owner(connect: StoreFactory) -> None:
    """A commit of a former owner that arrives late changes nothing (MillWheel figure 12)."""
    zombie = Owner(opened(connect), LOW, name="zombie")
    delayed = zombie.production(
        cells=[cell(b"k", b"zombie")],
        timers=[TimerWrite("count", 7, b"k", b"w", "event", 5)],
        watermarks_us={LOW: 99},
    )
    successor = Owner(connect(), LOW, name="successor")
    expect_equal(zombie.store.commit(delayed), Fenced(LOW), "the delayed commit")
    successor.commit()
    expect_equal(zombie.store.commit(delayed), Fenced(LOW), "the delayed commit, later")
    taken = take_over(successor.store)
    expect_equal(
        (cells_of(successor.store), list(taken.timers)), ({}, []), "what the zombie left behind"
    )
    expect_equal(taken.row.watermark_us, None, "the zombie's watermark")


def check_two_owners_never_both_commit(connect: StoreFactory) -> None:
    """Of two owners that race for the same bundle number at most the last one wins."""
    first = Owner(opened(connect), LOW)
    second = Owner(connect(), LOW)
    outcomes = at_once(
        [partial(owner.store.commit, owner.production()) for owner in (first, second)]
    )
    expect_equal(outcomes, [Fenced(LOW), Committed()], "first and second owner")


def check_acquire_sees_every_commit_before_it(connect: StoreFactory) -> None:
    """A takeover during commits finds all that were acknowledged, and none comes after it."""
    busy_store, taker_store = opened(connect), connect()
    for _ in range(8):
        is_busy = threading.Event()

        def take(is_busy: threading.Event = is_busy) -> TakenRange:
            is_busy.wait(10)
            return take_over(taker_store)

        bundle, taken = at_once([partial(_commit_until_fenced, busy_store, is_busy), take])
        expect_equal(taken.row.bundle, bundle, "bundle number at takeover")
        expect_equal(len(cells_of(taker_store)), bundle, "cells at takeover")
        expect_equal(len(taken.timers), bundle, "timers at takeover")


#: Far more than any store does before a takeover that is already under way.
_COMMITS_MAX = 20_000


def _commit_until_fenced(store: Store, is_busy: threading.Event) -> int:
    """Commit one more cell and timer at a time; the number of the last bundle that landed."""
    owner = Owner(store, LOW)
    for count in itertools.count(1):
        write = cell(b"%d" % owner.bundles[LOW], b"v")
        timer = TimerWrite("count", 7, write.cell_key, b"w", "event", count)
        if store.commit(owner.production(cells=[write], timers=[timer])) != Committed():
            break
        owner.bundles[LOW] += 1
        if count > 2:
            is_busy.set()
        expect(count < _COMMITS_MAX, "a former owner commits for ever")
    return owner.bundles[LOW]


def check_no_production_leaves_its_fences(connect: StoreFactory) -> None:
    """A production that touches what it does not fence is refused as a bug, with nothing done."""
    store = opened(connect)
    owner = Owner(store, LOW)
    Owner(store, HIGH)
    outward, inward = Channel(LOW, HIGH), Channel(HIGH, LOW)
    strays: list[dict[str, object]] = [
        {"cells": [cell(b"k", b"1", RANGES[1].low)]},
        {"cells": [cell(b"k", b"1", RANGES[1].low), cell(b"k", b"1")]},
        {"cells": [CellWrite("read", 7, b"k", b"1")]},
        {"timers": [TimerWrite("count", KEY_SPACE_END - 1, b"k", b"w", "event", 5)]},
        {"delivered": {outward: 1}},
        {"acknowledged": {inward: 1}},
        {"checkpoints": [Checkpoint(inward, 1, 0, b"p")]},
        {"positions": {SPLIT: b"p"}},
        {"watermarks_us": {HIGH: 1}},
        {"finished": frozenset({HIGH})},
        {"signal_marks": {HIGH: SignalMark(1)}},
        {"percentiles_us": {HIGH: 1}},
        {"firing_us": {HIGH: 1}},
        {"fences": []},
    ]
    for parts in strays:
        production = owner.production(**parts)
        expect_error(StoreError, partial(store.commit, production), f"a stray {list(parts)}")
    owner.commit(cells=[cell(b"k", b"1")])
    expect_equal(store.statistics(JOB)["cells"], 1, "cells after refused productions")


def check_all_ranges_or_none(connect: StoreFactory) -> None:
    """One lost fence of several undoes the whole production, in either order."""
    for lost, kept in ((LOW, HIGH), (HIGH, LOW)):
        store = connect()
        store.reset_job(JOB)
        store.open_job(job_spec())
        owner = Owner(store, LOW, HIGH)
        thief = Owner(connect(), lost, name="thief")
        production = owner.production(
            cells=[cell(b"k", b"1", RANGES[0].low), cell(b"k", b"1", RANGES[1].low)],
            watermarks_us={LOW: 1, HIGH: 1},
            tables=[TableWrite(table=LOG, inserts=[("red", 1)])],
        )
        expect_equal(store.commit(production), Fenced(lost), "a production with one lost fence")
        job = store.read_job(JOB)
        assert job is not None
        row = job.ranges[kept]
        expect_equal((row.bundle, row.watermark_us), (0, None), "the range that was not lost")
        expect_equal(store.statistics(JOB)["cells"], 0, "cells of an undone production")
        expect_equal(store.read_table(LOG), [], "rows of an undone production")
        thief.commit()
