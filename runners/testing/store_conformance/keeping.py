"""Checks of the rows that a job keeps for people, and leaves behind: how they are purged, and which may not be."""

from functools import partial

import attrs

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint, LateRecord, Reshape, StoredDeadLetter
from runners.millwheel.model.requests import Answer, Request, Verb
from runners.millwheel.store.port import PRUNED, Store
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    RANGES,
    SPLIT,
    Owner,
    StoreFactory,
    expect,
    expect_equal,
    job_spec,
    opened,
)

_DAY_S = 86_400.0
_LATE = LateRecord(
    transform="count",
    key="'ann'",
    window_start_us=0,
    window_end_us=10,
    watermark_us=20,
    payload=b"1",
    count=3,
)
_DEAD = StoredDeadLetter(
    stage="read", error="it failed", traceback="...", tries=1, timestamp_us=5, payload=b"2"
)


def check_late_records_and_dead_letters_are_purged(connect: StoreFactory) -> None:
    """Rows of one kind go, up to a number, if they are old enough; how many came too late is known for ever."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("other"), tables=[]))
    owner = Owner(store, LOW)
    for number in range(3):
        late = attrs.evolve(_LATE, payload=b"%d" % number, transform=f"count {number // 2}")
        owner.commit(late=[late], dead=[_DEAD, _DEAD])
    expect_equal(connect().purge(JOB, "late", older_than_s=_DAY_S), 0, "what is a day old")
    expect_equal(connect().purge("other", "late"), 0, "late records of a job without any")
    expect_equal(connect().purge("nobody", "dead"), 0, "dead letters of an unknown job")
    rows = store.read_late(JOB)
    expect_equal(connect().purge(JOB, "late", up_to=rows[1]["number"]), 2, "two late records")
    expect_equal([row["payload"] for row in store.read_late(JOB)], [b"2"], "the third")
    expect_equal(store.read_late_counts(JOB), {"count 0": 6, "count 1": 3}, "counts, purged or not")
    expect_equal(store.statistics(JOB)["dead"], 6, "dead letters when late records were purged")
    expect_equal(connect().purge(JOB, "late"), 1, "the last late record")
    expect_equal(connect().purge(JOB, "late"), 0, "late records, again")
    expect_equal(store.read_late_counts(JOB), {"count 0": 6, "count 1": 3}, "counts of the purged")
    expect_equal(connect().purge(JOB, "dead"), 6, "all dead letters")
    owner.commit(late=[_LATE], dead=[_DEAD])
    (again,) = store.read_late(JOB)
    expect(again["number"] > rows[-1]["number"], "a number was given to two late records")
    store.reset_job(JOB)
    store.open_job(job_spec())
    expect_equal(store.read_late_counts(JOB), {}, "counts of a job made anew")


def check_replays_are_about_the_same_rows_until_they_end(connect: StoreFactory) -> None:
    """A replay has the same rows however often it is begun; the next one has those that have come since."""
    store = opened(connect)
    owner = Owner(store, LOW)
    expect_equal(store.begin_replay(JOB, "late"), None, "a replay of no late record")
    expect_equal(store.begin_replay(JOB, "dead"), None, "a replay of no dead letter")
    expect_equal(store.begin_replay("nobody", "late"), None, "a replay of an unknown job")
    owner.commit(late=[_LATE], dead=[_DEAD, _DEAD])
    first = store.begin_replay(JOB, "late")
    expect_equal(first, store.read_late(JOB)[-1]["number"], "the last late record")
    owner.commit(late=[_LATE])
    expect_equal(connect().begin_replay(JOB, "late"), first, "a replay that was cut off")
    dead = store.begin_replay(JOB, "dead")
    expect_equal(dead, store.read_dead_letters(JOB)[-1]["number"], "the last dead letter")
    store.purge(JOB, "late", up_to=first)
    for _ in range(2):
        connect().end_replay(JOB, "late")
    second = store.begin_replay(JOB, "late")
    expect_equal(second, store.read_late(JOB)[-1]["number"], "the next replay")
    expect(second != first, "the next replay is about the same rows")
    store.purge(JOB, "late")
    expect_equal(store.begin_replay(JOB, "late"), None, "a replay of what is purged")
    store.end_replay("nobody", "late")


def check_what_records_contain_is_text(connect: StoreFactory) -> None:
    """The contents of records are text for people, who unpickle nothing; whatever characters user data put into it."""
    store = opened(connect)
    contents = "ann\0, \ud800"
    owner = Owner(store, LOW)
    owner.commit(
        late=[attrs.evolve(_LATE, contents=contents)], dead=[attrs.evolve(_DEAD, contents="bob")]
    )
    (late,), (dead,) = connect().read_late(JOB), connect().read_dead_letters(JOB)
    expect_equal(late["contents"], "ann\\x00, \\ud800", "a late record as text")
    expect_equal(dead["contents"], "bob", "a dead letter as text")


def _merged(store: Store) -> tuple[Owner, RangeId]:
    """A job whose last range but one was merged away; the owner of the rest, and the range that no longer exists."""
    low, high = RANGES
    middle = (low.low + low.high) // 2
    parts = attrs.evolve(low, high=middle), attrs.evolve(low, low=middle)
    born = RangeId("count", 2)
    owner = Owner(store, LOW)
    owner.commit(reshape=Reshape(keys={LOW: parts[0], born: parts[1]}, handover_with=LOW))
    both = Owner(store, LOW, born)
    both.commit(ended_handovers=frozenset({born}))
    # The neighbour with the higher index goes.
    owner = Owner(store, born, HIGH)
    owner.commit(
        delivered={Channel(SPLIT, HIGH): 7},
        reshape=Reshape(
            keys={born: attrs.evolve(high, low=middle), HIGH: None}, handover_with=born
        ),
    )
    return Owner(store, born, HIGH), HIGH


def check_ranges_that_were_merged_are_pruned(connect: StoreFactory) -> None:
    """Merged ranges go, with their channels, long after their last work; never while deliveries from them are open."""
    store = opened(connect)
    owner, gone = _merged(store)
    channel = Channel(gone, LOW)
    owner.commit(checkpoints=[Checkpoint(channel, 1, 0, b"on its way")])
    owner.commit(ended_handovers=frozenset({gone}), finished=frozenset({gone}))
    prune = partial(connect().prune, JOB, retired={gone, LOW})
    expect_equal(prune(older_than_s=0.0)["ranges"], 0, "a range whose delivery is not acknowledged")
    owner.commit(acknowledged={channel: 1})
    low = Owner(store, LOW)
    low.commit(delivered={channel: 1})
    expect_equal(prune(older_than_s=_DAY_S)["ranges"], 0, "a range of today")
    unknown = connect().prune(JOB, older_than_s=0.0, retired={LOW})
    expect_equal(unknown["ranges"], 0, "a range that the master does not know to be retired")
    pruned = prune(older_than_s=0.0)
    expect_equal(pruned["ranges"], 1, "a range that was merged")
    expect_equal(list(pruned), list(PRUNED), "what is reported")
    job = store.read_job(JOB)
    expect(job is not None and gone not in job.ranges, "the range is still there")
    expect_equal(store.statistics(JOB)["channels"], 0, "its channels")
    expect_equal(prune(older_than_s=0.0)["ranges"], 0, "the same again")
    # Others know nothing of it.
    low.commit()
    expect_equal(dict(connect().acquire(JOB, [LOW], "next")[LOW].delivered), {}, "what it sent")
    expect_equal(connect().prune("nobody", older_than_s=0.0), dict.fromkeys(PRUNED, 0), "nobody")


def check_the_last_index_is_not_pruned(connect: StoreFactory) -> None:
    """The last index is kept, or the next new range would be taken for the one that is gone."""
    store = opened(connect)
    low, high = RANGES
    owner = Owner(store, LOW, HIGH)
    owner.commit(
        reshape=Reshape(
            keys={LOW: attrs.evolve(low, high=high.high), HIGH: None}, handover_with=LOW
        )
    )
    both = Owner(store, LOW, HIGH)
    both.commit(ended_handovers=frozenset({HIGH}), finished=frozenset({HIGH}))
    connect().prune(JOB, older_than_s=0.0, retired={HIGH})
    job = store.read_job(JOB)
    expect(job is not None and HIGH in job.ranges, "the last index of a computation is gone")


def check_requests_and_signals_go_on_after_pruning(connect: StoreFactory) -> None:
    """Requests without an answer and signals that a range has not processed stay; no number is given twice."""
    store = opened(connect)
    Owner(store, LOW)
    Owner(store, LOW).commit()
    first = store.send_request(JOB, Request(Verb.CANCEL))
    waiting = store.send_request(JOB, Request(Verb.CANCEL))
    last = store.send_request(JOB, Request(Verb.CANCEL))
    for number in (first, last):
        store.answer_request(JOB, number, Answer(is_done=True, text="it is"))
    for _ in range(3):
        store.send_signal(JOB, "flush")
    prune = partial(connect().prune, JOB)
    prune(older_than_s=_DAY_S, signals_up_to=3)
    expect_equal(len(store.read_requests(JOB, 0)), 3, "requests of today")
    expect_equal(len(store.read_signals(JOB, 0)), 3, "signals of today")
    prune(older_than_s=0.0, signals_up_to=1)
    numbers = [each.number for each in store.read_requests(JOB, first)]
    expect_equal(numbers, [waiting, last], "requests that are not answered, and the last")
    expect_equal([each.number for each in store.read_signals(JOB, 1)], [2, 3], "signals to act on")
    prune(older_than_s=0.0, signals_up_to=3)
    expect_equal(store.send_request(JOB, Request(Verb.CANCEL)), last + 1, "the next request")
    expect_equal(store.send_signal(JOB, "flush"), 4, "the next signal")
    expect_equal(
        [each.number for each in store.read_signals(JOB, 3)], [4], "signals after the third"
    )
