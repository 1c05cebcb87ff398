"""Checks of what drivers know of their jobs, of events, and of what is on its way and since when."""

import json

from runners.millwheel.model.events import EVENTS_MAX, Actor, Cause, EventKind, JobEvent
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.production import Checkpoint, Reshape
from runners.millwheel.model.requests import Answer, Request, Verb
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.millwheel.store.port import Store
from runners.process_name import process_name
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    RANGES,
    Owner,
    StoreFactory,
    expect,
    expect_equal,
    job_spec,
    opened,
)

_OUT = Channel(LOW, HIGH)
_EVENT = JobEvent(
    kind=EventKind.PAUSE,
    actor=Actor.OPERATOR,
    who="somebody \0",
    reason="\ud800 because",
    details={"deep": [{"text": "\0", "number": 1, "none": None}]},
)


def _shown(store: Store) -> list[tuple[str, str | None, str]]:
    return [
        (each.event.kind.value, each.event.subject, each.event.reason)
        for each in store.read_events(JOB)
    ]


def check_the_last_snapshot_is_kept(connect: StoreFactory) -> None:
    """What a driver knows replaces what it knew; it grows old, and goes with its job."""
    store = opened(connect)
    expect(store.read_snapshot(JOB) is None, "there is a snapshot that nobody has taken")
    for number in range(7):
        store.note_snapshot(JOB, json.dumps({"number": number}).encode(), 1_000 + number)
    found = connect().read_snapshot(JOB)
    assert found is not None
    expect_equal((json.loads(found.document), found.taken_us), ({"number": 6}, 1_006), "the last")
    expect(found.age_s >= 0, "it is from the future")
    later = store.read_snapshot(JOB)
    assert later is not None
    expect(later.age_s >= found.age_s, "it does not grow old")
    store.note_snapshot("nobody", b"{}", 0)
    expect(store.read_snapshot("nobody") is None, "an unknown job has a snapshot")
    store.reset_job(JOB)
    store.open_job(job_spec())
    expect(store.read_snapshot(JOB) is None, "a job that was reset has the former snapshot")


def check_events_are_kept(connect: StoreFactory) -> None:
    """Events come with the latest first, with text that a store can keep, and go with their job."""
    store = opened(connect)
    store.note_event(JOB, _EVENT)
    store.note_event(JOB, JobEvent(kind=EventKind.START, actor=Actor.DRIVER, who=None, reason="go"))
    store.note_event("nobody", _EVENT)
    first, second = connect().read_events(JOB)
    expect_equal((first.event.kind, first.event.who), (EventKind.START, None), "the latest")
    expect_equal(
        (second.event.who, second.event.reason), ("somebody \\x00", "\\ud800 because"), "its text"
    )
    expect_equal(
        second.event.details, {"deep": [{"text": "\\x00", "number": 1, "none": None}]}, "details"
    )
    expect(first.at >= second.at, "the latest event is older")
    expect_equal(len(store.read_events(JOB, most=1)), 1, "how many are read")
    expect_equal(list(store.read_events("nobody")), [], "those of an unknown job")
    store.reset_job(JOB)
    store.open_job(job_spec())
    expect_equal(list(store.read_events(JOB)), [], "those of a job that was reset")


def check_takeovers_are_events(connect: StoreFactory) -> None:
    """One of a worker is one event, however many ranges it is of: with who had them, who has them, and why."""
    store = opened(connect)
    store.acquire(JOB, [LOW], "first", cause=Cause(EventKind.ASSIGNMENT, "it is there"))
    for _ in range(2):
        # The second time it has them already.
        cause = Cause(EventKind.TAKEOVER, "the first is gone")
        store.acquire(JOB, [HIGH, LOW], "second", cause=cause)
    found = [each.event for each in store.read_events(JOB)]
    expect_equal(
        [(each.kind, each.actor, each.who, each.subject, each.reason) for each in found],
        [
            ("takeover", "worker", "second", f"{LOW}, {HIGH}", "the first is gone"),
            ("assignment", "worker", "first", f"{LOW}", "it is there"),
        ],
        "the events",
    )
    expect_equal(
        found[0].details, {"former": {str(LOW): "first", str(HIGH): None}}, "who had the ranges"
    )


def check_reshaped_ranges_are_events(connect: StoreFactory) -> None:
    """A split and a merge are events of their own commits, with the reason that the production has."""
    store = opened(connect)
    owner, born, keys = Owner(store, LOW), RangeId(LOW.computation, 7), RANGES[0]
    middle = (keys.low + keys.high) // 2
    bounds = {LOW: KeyRange(keys.low, middle), born: KeyRange(middle, keys.high)}
    reshape = Reshape(keys=bounds, handover_with=LOW, reason="it is hot")
    owner.commit(reshape=reshape)
    found = store.read_events(JOB)[0].event
    expect_equal(
        (found.kind, found.subject, found.reason, found.details),
        (EventKind.SPLIT, str(LOW), "it is hot", {"born": str(born), "at": str(middle)}),
        "the event of the split",
    )
    expect_equal(found.who, "worker", "who has split it")
    owner = Owner(store, LOW, born)
    merge = Reshape(keys={LOW: keys, born: None}, handover_with=LOW, reason="it is cold")
    owner.commit(reshape=merge)
    found = store.read_events(JOB)[0].event
    expect_equal(
        (found.kind, found.subject, found.reason, found.details),
        (EventKind.MERGE, str(LOW), "it is cold", {"gone": str(born)}),
        "the event of the merge",
    )


def check_ends_and_failures_are_events(connect: StoreFactory) -> None:
    """A worker's end is an event each time that it is noted, the end of a job once; a wait is none."""
    store = opened(connect)
    death = Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom\nat line 7")
    wait = Trouble(kind=TroubleKind.WAIT, place="sum[0]", reason="no room")
    store.note_troubles(JOB, [death, wait])
    store.note_troubles(JOB, [death])
    store.finish_job(JOB, is_drained=True)
    store.finish_job(JOB)
    expect_equal(
        [(kind, subject) for kind, subject, _ in _shown(connect())],
        [("drain", None), ("failure", "sum[0]"), ("failure", "sum[0]")],
        "the events",
    )
    expect_equal(store.read_events(JOB)[0].event.who, process_name(), "who has ended it")


def check_requests_are_events(connect: StoreFactory) -> None:
    """What people have asked is among the events, with the answer as soon as there is one."""
    store = opened(connect)
    number = store.send_request(JOB, Request(Verb.MOVE, ("sum[0]", "1")))
    asked = store.read_events(JOB)[0].event
    expect_equal(
        (asked.kind, asked.actor, asked.subject, asked.reason),
        (EventKind.REQUEST, Actor.OPERATOR, "sum[0] 1", "move"),
        "the request",
    )
    expect_equal(asked.details, {"number": number, "is_done": None, "answer": None}, "its answer")
    store.answer_request(JOB, number, Answer(is_done=True, text="moved"))
    answered = store.read_events(JOB)[0].event.details
    expect_equal(answered, {"number": number, "is_done": True, "answer": "moved"}, "its answer")


def check_events_are_bounded(connect: StoreFactory) -> None:
    """Of very many events the last are kept."""
    store = opened(connect)
    death = Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom")
    store.note_troubles(JOB, [death] * (EVENTS_MAX + 2))
    store.note_event(JOB, _EVENT)
    expect_equal(store.prune(JOB, older_than_s=86_400.0)["events"], 3, "how many go")
    expect_equal(store.read_events(JOB, most=1)[0].event.kind, EventKind.PAUSE, "the last")
    expect_equal(len(store.read_events(JOB, most=EVENTS_MAX * 2)), EVENTS_MAX, "how many stay")


def check_what_is_pending_has_an_age(connect: StoreFactory) -> None:
    """Productions that are not acknowledged are counted by channel, with their hold and the age of the oldest."""
    store = opened(connect)
    expect_equal(dict(store.read_pending(JOB)), {}, "what is pending at first")
    owner = Owner(store, LOW)
    sent = [Checkpoint(_OUT, number, 90 - number, b"x") for number in (1, 2)]
    owner.commit(checkpoints=sent)
    found = connect().read_pending(JOB)[_OUT]
    expect_equal((found.pending, found.hold_us), (2, 88), "what is pending")
    expect(0 <= found.age_s < 600, f"it was made {found.age_s} s ago")
    owner.commit(acknowledged={_OUT: 2})
    expect_equal(dict(store.read_pending(JOB)), {}, "what is pending in the end")
    expect_equal(dict(store.read_pending("nobody")), {}, "that of an unknown job")
