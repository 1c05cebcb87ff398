"""Checks of splits that come and go while a job runs, and of their last polls."""

import attrs

from dataflow.source import Backlog
from runners.errors import JobMismatchError, StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.port import SplitsChange, Store
from runners.testing.store_conformance.world import (
    JOB,
    SPLIT,
    StoreFactory,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
)

#: The source of the job of these checks.
READ = SPLIT.computation


def _known(store: Store) -> int:
    job = store.read_job(JOB)
    assert job is not None
    return sum(each.computation == READ for each in job.ranges)


def _change(store: Store) -> SplitsChange:
    job = store.read_job(JOB)
    assert job is not None
    return SplitsChange(
        job=JOB,
        version=job.version,
        computation=READ,
        known=_known(store),
        added=[b"new", b"newer"],
        watermark_us=70,
    )


def check_splits_are_added_with_their_watermark(connect: StoreFactory) -> None:
    """The new ranges follow those that are there, are owned by nobody, and can be taken over, by anybody."""
    store, other = opened(connect), connect()
    other.acquire(JOB, [RangeId(READ, 0)], "before")
    known = _known(store)
    added = store.change_splits(_change(store))
    ids = [RangeId(READ, known), RangeId(READ, known + 1)]
    expect_equal(
        [(each.range_id, each.split, each.watermark_us, each.owner) for each in added],
        [(ids[0], b"new", 70, None), (ids[1], b"newer", 70, None)],
        "the rows of new splits",
    )
    job = connect().read_job(JOB)
    assert job is not None
    expect_equal([job.ranges[each] for each in ids], list(added), "what others see of them")
    tokens = [row.token for row in job.ranges.values()]
    expect_equal(len(set(tokens)), len(tokens), "the number of tokens")
    taken = other.acquire(JOB, ids, "worker", job.version)
    expect_equal([taken[each].row.split for each in ids], [b"new", b"newer"], "what is taken over")


def check_splits_are_added_once(connect: StoreFactory) -> None:
    """A driver that asks again, or does not know what another has added, adds nothing, and is given what there is."""
    store = opened(connect)
    change = _change(store)
    added = store.change_splits(change)
    expect_equal(connect().change_splits(change), added, "what is added when it is asked again")
    other = attrs.evolve(change, added=[b"another"], watermark_us=10)
    expect_equal(connect().change_splits(other), added, "what another driver is given")
    expect_equal(_known(store), change.known + 2, "the number of splits")


def check_removed_splits_stay(connect: StoreFactory) -> None:
    """A split that its input does not have any more is marked, for good, and stays where it is."""
    store = opened(connect)
    gone = RangeId(READ, 0)
    change = attrs.evolve(_change(store), added=[], removed=[gone])
    expect_equal(store.change_splits(change), [], "what is added")
    store.change_splits(change)
    store.acquire(JOB, [gone], "worker")
    job = connect().read_job(JOB)
    assert job is not None
    removed = [each for each, row in job.ranges.items() if row.is_removed]
    expect_equal(removed, [gone], "the splits that are removed")
    expect(not job.ranges[gone].is_finished, "a split has ended because it is marked as removed")


def check_splits_are_not_added_to_another_version(connect: StoreFactory) -> None:
    """A driver of another version, and one of a job that is over, can change nothing."""
    store = opened(connect)
    change = _change(store)
    stale = attrs.evolve(change, version=change.version + 1)
    expect_error(JobMismatchError, lambda: store.change_splits(stale), "of another version")
    unknown = attrs.evolve(change, computation="nothing")
    expect_error(StoreError, lambda: store.change_splits(unknown), "of no computation")
    expect_error(
        StoreError, lambda: store.change_splits(attrs.evolve(change, job="nobody")), "of no job"
    )
    store.finish_job(JOB)
    expect_error(StoreError, lambda: store.change_splits(change), "of a finished job")
    expect_equal(_known(store), change.known, "the number of splits")


def check_last_polls_are_kept(connect: StoreFactory) -> None:
    """The last polls replace those before; what is not known stays unknown; they go with their job."""
    store = opened(connect)
    expect_equal(dict(store.read_polls(JOB)), {}, "the polls before there are any")
    first, second = RangeId(READ, 0), RangeId(READ, 1)
    store.note_polls(JOB, {first: SplitPoll(polled_us=1)})
    backlog = Backlog(records=0, age_us=7)
    polls = {
        first: SplitPoll(polled_us=5, record_us=3, backlog=backlog),
        second: SplitPoll(polled_us=6),
    }
    for _ in range(3):
        store.note_polls(JOB, polls)
    expect_equal(dict(connect().read_polls(JOB)), polls, "the last polls")
    store.note_polls("nobody", polls)
    expect_equal(dict(store.read_polls("nobody")), {}, "the polls of an unknown job")
    store.reset_job(JOB)
    store.open_job(job_spec())
    expect_equal(dict(store.read_polls(JOB)), {}, "the polls of a job that was reset")
