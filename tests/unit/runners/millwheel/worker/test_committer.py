"""Committer: a worker that cannot go on reports why, also what the commit was answered with before it was looked up."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from runners.errors import WorkerStoppedError
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.production import (
    JournalEntry,
    LateRecord,
    Production,
    Reshape,
    StoredDeadLetter,
)
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Committed, Fenced, Indeterminate
from runners.millwheel.wire.messages import Acknowledge, Deliver, decode
from runners.millwheel.worker.committer import STRAGGLER_MS, Committer
from runners.millwheel.worker.courier import Courier
from runners.millwheel.worker.handed_on import HandedOn
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.outgoing import Outgoing
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock

RANGE = RangeId("sum", 0)
CUT = Indeterminate("connection not in pipeline mode")


class ScriptedStore(MemoryStore):
    """Answers as the test asks it to."""

    def __init__(self, committed: CommitOutcome, resolved: CommitOutcome) -> None:
        super().__init__()
        self._committed, self._resolved = committed, resolved

    def commit(self, production: Production) -> CommitOutcome:
        return self._committed

    def resolve(self, production: Production) -> CommitOutcome:
        return self._resolved


@pytest.mark.parametrize(
    ("committed", "resolved", "reasons"),
    [
        (Fenced(RANGE), Fenced(RANGE), [r"sum\[0\] is not this worker's"]),
        (CUT, Fenced(RANGE), [r"sum\[0\] is not this worker's", "connection not in pipeline mode"]),
        (CUT, Indeterminate("no route"), ["no route", "connection not in pipeline mode"]),
    ],
)
def test_the_reason_of_every_failed_commit_is_reported(
    committed: CommitOutcome, resolved: CommitOutcome, reasons: list[str]
) -> None:
    clock = ManualClock()
    owned = OwnedRange(
        range_id=RANGE, token=1, bundle=0, outbox=Outbox((), {}), delivered={}, watermark_us=0
    )
    outgoing = Outgoing(LocalNetwork().endpoint("w"))
    courier = Courier({RANGE: owned}, outgoing, clock)
    store = ScriptedStore(committed, resolved)
    committer = Committer("job", "w", store, courier, outgoing, clock, {})
    step = WorkerStep.touching(owned)

    committer.commit(step)
    committer.commit_round()
    for words in reasons:
        with pytest.raises(WorkerStoppedError, match=words):
            committer.confirm()


class Weak:
    """A range with weak productions, its committer, and what has become durable."""

    def __init__(self) -> None:
        self.clock, self.committed = ManualClock(), list[Production]()
        weak = Outbox((), {}, weak_from=1)
        self.owned = OwnedRange(
            range_id=RANGE, token=1, bundle=0, outbox=weak, delivered={}, watermark_us=0
        )
        ranges = {RANGE: self.owned}
        network = LocalNetwork()
        self._sender = network.endpoint("sender")
        outgoing = Outgoing(network.endpoint("w"))
        self._courier = Courier(ranges, outgoing, self.clock)
        self._courier.reroute({SENDER: "sender", OTHER: "sender"})
        guarantees = {RANGE.computation: Guarantees(strong_productions=False)}
        self.committer = Committer(
            "job", "w", self._store(), self._courier, outgoing, self.clock, guarantees
        )

    def _store(self) -> MemoryStore:
        committed = self.committed

        class Noting(MemoryStore):
            def commit(self, production: Production) -> CommitOutcome:
                committed.append(production)
                return Committed()

        return Noting()

    def step(self, sequence: int, channel: Channel | None = None) -> None:
        """Take a delivery in, and send something."""
        channel = channel or INPUT
        step = WorkerStep(
            ranges={RANGE: self.owned},
            taken_in={channel: sequence},
            delivered={channel: sequence},
            checkpoints=self.owned.send([(RECEIVER, b"payload")], hold_us=0),
        )
        self.committer.commit(step, [channel])

    def is_sender_answered(self) -> bool:
        """Whether whoever sent the input has got an acknowledgement since the last time."""
        return bool(self.answers())

    def is_at_rest(self) -> bool:
        """Whether everything is durable."""
        return self.committer.is_idle

    def answers(self) -> dict[Channel, int]:
        """How far the channels of senders have been acknowledged since the last time."""
        messages = [decode(each) for each in self._sender.receive(0)]
        return {each.channel: each.sequence for each in messages if isinstance(each, Acknowledge)}


SENDER, OTHER, RECEIVER = RangeId("read", 0), RangeId("read", 1), RangeId("next", 0)
INPUT, OUTPUT = Channel(SENDER, RANGE), Channel(RANGE, RECEIVER)
SECOND_INPUT = Channel(OTHER, RANGE)


def test_a_straggler_is_made_durable_after_exactly_its_time() -> None:
    """MillWheel, figure 11: the sender before it is answered, although the receiver has sent nothing."""
    weak = Weak()
    weak.step(1)
    # Nothing newer may become durable before it, and nobody may take the worker's word that it is at rest.
    assert weak.committer.is_behind(RANGE.computation)
    assert not weak.is_at_rest()
    weak.clock.advance(STRAGGLER_MS - 1)
    assert not weak.committer.resolve()
    assert not weak.committed
    assert not weak.is_sender_answered()
    weak.clock.advance(1)
    assert weak.committer.resolve()

    assert [[each.payload for each in one.checkpoints] for one in weak.committed] == [[b"payload"]]
    assert weak.is_sender_answered()
    assert weak.is_at_rest()
    assert not weak.committer.is_behind(RANGE.computation)
    assert weak.committer.counts["stragglers"] == 1


def test_what_has_arrived_is_not_made_durable() -> None:
    """And is committed at once when it is acknowledged, without waiting for the time of stragglers."""
    weak = Weak()
    weak.step(1)
    (sequence,) = [each.sequence for each in weak.owned.outbox.for_receivers({RECEIVER})]
    weak.owned.outbox.acknowledge(OUTPUT, sequence)
    assert weak.committer.resolve()

    assert [list(one.checkpoints) for one in weak.committed] == [[]]
    assert weak.is_sender_answered()


def test_a_flush_commits_what_waits_and_what_came_after_it_in_their_order() -> None:
    """Some of it acknowledged, some not: then its range may change hands, and nothing of it is only in memory."""
    weak = Weak()
    for sequence in (1, 2, 3):
        weak.step(sequence)
    first, *_ = [each.sequence for each in weak.owned.outbox.for_receivers({RECEIVER})]
    weak.owned.outbox.acknowledge(OUTPUT, first)
    weak.committer.flush(RANGE.computation)

    assert weak.is_at_rest()
    assert [one.delivered for one in weak.committed] == [{INPUT: 1}, {INPUT: 3}]
    assert [len(one.checkpoints) for one in weak.committed] == [0, 2]
    assert [one.fences[0].bundle for one in weak.committed] == [1, 2]
    assert weak.is_sender_answered()


def test_all_who_sent_what_waits_are_answered_when_it_is_durable() -> None:
    """Senders of later steps too, at once: nothing needs to be sent again."""
    weak = Weak()
    for sequence, channel in ((1, INPUT), (1, SECOND_INPUT), (2, INPUT), (2, SECOND_INPUT)):
        weak.step(sequence, channel)
    weak.committer.flush(RANGE.computation)

    assert weak.answers() == {INPUT: 2, SECOND_INPUT: 2}


def test_who_sends_again_what_was_taken_in_is_answered_without_a_commit() -> None:
    """Its first answer was lost; and there is nothing new that could be committed."""
    weak = Weak()
    weak.owned.delivered[INPUT] = 7
    weak.committer.commit(None, [INPUT])

    assert weak.answers() == {INPUT: 7}
    assert not weak.committed


@pytest.mark.parametrize("is_weak", [False, True])
def test_what_is_too_late_or_fails_is_counted_once_it_is_durable(*, is_weak: bool) -> None:
    weak = Weak()
    late = [
        LateRecord(
            transform="total",
            key="7",
            window_start_us=0,
            window_end_us=1,
            watermark_us=2,
            payload=b"",
            count=count,
        )
        for count in (2, 3)
    ]
    letter = StoredDeadLetter(
        stage="total", error="ValueError", traceback="", tries=1, timestamp_us=0, payload=b""
    )
    step = WorkerStep(ranges={RANGE: weak.owned}, late=late, dead=[letter])
    if is_weak:
        sent = weak.owned.send([(RECEIVER, b"")], hold_us=0)
        weak.committer.commit(attrs.evolve(step, checkpoints=sent))
        assert not weak.committer.counts
        weak.committer.flush(RANGE.computation)
    else:
        weak.committer.commit_at_once(step)

    assert (weak.committer.counts["late"], weak.committer.counts["dead"]) == (5, 1)


@pytest.mark.parametrize(
    "alone",
    [
        {"ended_handovers": frozenset([RANGE])},
        {"reshape": Reshape(keys={RANGE: None}, handover_with=RANGE)},
    ],
    ids=lambda alone: next(iter(alone)),
)
@pytest.mark.parametrize("is_first_alone", [False, True])
def test_a_step_that_is_a_commit_of_its_own_is_never_added_to_another(
    *, is_first_alone: bool, alone: dict[str, Any]
) -> None:
    """The steps that wait are older than what only one commit can write."""
    weak = Weak()
    steps = [
        WorkerStep(
            ranges={RANGE: weak.owned},
            checkpoints=weak.owned.send([(RECEIVER, b"payload")], hold_us=0),
            **(alone if is_alone else {}),
        )
        for is_alone in (False, is_first_alone, not is_first_alone)
    ]
    weak.committer.commit(steps[0])
    weak.committer.commit(steps[1])
    with pytest.raises(AssertionError, match="a commit of its own"):
        weak.committer.commit(steps[2])


class Round:
    """Two computations of one worker, a receiver elsewhere, and what has become durable."""

    def __init__(
        self, guarantees: Mapping[str, Guarantees] = MappingProxyType({}), bytes_max: int = 1_000
    ) -> None:
        self.committed = committed = list[Production]()
        self.reader, self.counter = (
            OwnedRange(
                range_id=each,
                token=7,
                bundle=4,
                outbox=Outbox((), {}),
                delivered={},
                watermark_us=0,
            )
            for each in (SENDER, RANGE)
        )

        class Noting(MemoryStore):
            def commit(self, production: Production) -> CommitOutcome:
                committed.append(production)
                return Committed()

        network = LocalNetwork()
        self._elsewhere = network.endpoint("elsewhere")
        ranges = {each.range_id: each for each in (self.reader, self.counter)}
        outgoing = Outgoing(network.endpoint("w"))
        self.courier = Courier(ranges, outgoing, ManualClock())
        self.courier.reroute({RECEIVER: "elsewhere"})
        self.committer = Committer(
            "job", "w", Noting(), self.courier, outgoing, ManualClock(), guarantees, bytes_max,
            send=lambda each: each.sender.send(each.payloads, hold_us=each.hold_us),
        )  # fmt: skip

    def read(self, payload: bytes = b"record") -> None:
        """Read something, and send it to the range here and to the one elsewhere."""
        sent = self.reader.send([(RANGE, payload), (RECEIVER, payload)], hold_us=0)
        self.committer.commit(WorkerStep(ranges={SENDER: self.reader}, checkpoints=sent))

    def count(self, state: bytes = b"") -> int:
        """Take in what is there for the counter, which keeps something then; returns how much that was."""
        found = self.courier.inbox.take(RANGE.computation, 10)
        if self.counter.accept(found):
            last = {each.channel: each.sequence for each in found}
            origins = {each.channel: each.origin for each in found}
            ranges = {RANGE: self.counter}
            step = WorkerStep(
                ranges=ranges,
                journal=[JournalEntry(RANGE, 1, state)] if state else [],
                taken_in=last,
                delivered=last,
                origins=origins,
            )
            self.committer.commit(step, list(last))
        return len(found)

    def hand_on(self, payload: bytes) -> None:
        """Read something, and hand it on to the range here."""
        handed_on = HandedOn("sum", self.reader, 0, len(payload), None, [(RANGE, payload)])
        self.committer.commit(WorkerStep(ranges={SENDER: self.reader}, handed_on=[handed_on]))

    def keep(self, bytes_max: int = 1_000) -> int:
        """Take in what was handed on to the counter, which keeps it; returns how much that was."""
        handed_on = self.committer.take_handed_on("sum", bytes_max)
        if handed_on:
            entries = [JournalEntry(RANGE, 1, each.payloads[0][1]) for each in handed_on]
            self.committer.commit(
                WorkerStep(ranges={RANGE: self.counter}, journal=entries, takes_handed_on=True)
            )
        return len(handed_on)

    def left(self) -> int:
        """How many deliveries have left the worker since the last time."""
        messages = [decode(each) for each in self._elsewhere.receive(0)]
        return sum(isinstance(each, Deliver) for each in messages)


def test_a_round_is_one_commit_with_what_it_has_sent_to_itself() -> None:
    job = Round()
    job.read()
    assert job.count() == 1
    assert not job.committed
    assert not job.left(), "it is not durable"
    assert not job.committer.is_idle
    job.committer.commit_round()
    assert not job.left(), "it is under way"
    assert not job.committer.is_idle
    job.committer.confirm()

    (production,) = job.committed
    mark = CommitMark(7, 5)
    assert {each.range_id for each in production.fences} == {SENDER, RANGE}
    assert production.delivered == production.acknowledged == {INPUT: 1}
    assert production.origins == {INPUT: mark}
    assert production.receipts == {INPUT: Receipt(mark, is_remembered=True)}
    assert job.left() == 1
    assert job.count() == 0, "it is there once"
    assert [each.channel for each in job.reader.outbox.for_receivers({RANGE, RECEIVER})] == [
        Channel(SENDER, RECEIVER)
    ]
    assert not job.reader.outbox.has_acknowledged, "that was committed"
    assert job.committer.is_idle


def test_what_is_taken_in_later_was_committed_before_and_is_there_once() -> None:
    job = Round()
    job.read()
    job.committer.commit_round()
    assert job.count() == 1
    job.committer.commit_round()

    first, second = job.committed
    assert not first.acknowledged
    assert [each.channel.receiver for each in first.checkpoints] == [RANGE, RECEIVER]
    assert second.delivered == {INPUT: 1}
    assert second.origins == {INPUT: CommitMark(7, 5)}
    assert not job.reader.outbox.has_acknowledged, "it is under way"
    job.committer.confirm()
    assert job.reader.outbox.has_acknowledged


@pytest.mark.parametrize(
    "guarantees",
    [
        {RANGE.computation: Guarantees(strong_productions=False)},
        {RANGE.computation: Guarantees(exactly_once=False)},
        {SENDER.computation: Guarantees(strong_productions=False)},
    ],
)
def test_nothing_is_handed_on_that_nobody_would_know_was_taken_in(
    guarantees: Mapping[str, Guarantees],
) -> None:
    job = Round(guarantees)
    job.read()
    is_weak = SENDER.computation in guarantees
    assert job.count() == is_weak, "what is weak is sent at once"
    job.committer.commit_round()
    assert job.count() == (not is_weak)


@pytest.mark.parametrize(("size", "commits"), [(500, 0), (501, 1)])
def test_a_round_with_too_much_is_committed_before_its_end(size: int, commits: int) -> None:
    job = Round(bytes_max=1_000)
    job.read(b"x" * size)
    assert len(job.committed) == commits
    assert job.count() == 1


def test_a_round_is_committed_before_a_step_with_which_it_would_have_too_much() -> None:
    """So a commit has more than the limit only if it is of one step, which is so large."""
    job = Round(bytes_max=1_000)
    job.read(b"x" * 300)
    assert not job.committed
    job.read(b"y" * 300)
    assert job.count() == 2
    job.committer.commit_round()
    job.committer.confirm()

    assert [[each.payload[:1] for each in one.checkpoints] for one in job.committed] == [
        [b"x", b"x"],
        [b"y", b"y"],
    ]
    assert job.committed[1].delivered == {INPUT: 2}
    assert job.left() == 2
    assert job.count() == 0, "it is there once"


def test_what_is_taken_in_before_its_commit_is_sent_is_there_once() -> None:
    """Where the step that takes it in is so large that the commit of what it took in goes first."""
    job = Round(bytes_max=1_000)
    job.read(b"x" * 300)
    assert job.count(b"y" * 500) == 1
    job.committer.commit_round()
    job.committer.confirm()

    first, second = job.committed
    assert not first.acknowledged
    assert [each.channel.receiver for each in first.checkpoints] == [RANGE, RECEIVER]
    assert second.delivered == {INPUT: 1}
    assert second.origins == {INPUT: CommitMark(7, 5)}
    assert job.count() == 0, "it is there once"
    assert job.reader.outbox.has_acknowledged


def test_a_step_that_is_a_commit_of_its_own_follows_what_was_done_before() -> None:
    job = Round()
    job.read()
    job.committer.commit(
        WorkerStep(ranges={SENDER: job.reader}, ended_handovers=frozenset([SENDER]))
    )
    assert [len(each.checkpoints) for each in job.committed] == [2, 0]
    assert [each.fences[0].bundle for each in job.committed] == [5, 6]
    job.read()
    job.committer.commit_at_once(WorkerStep.touching(job.counter))
    assert [len(each.checkpoints) for each in job.committed] == [2, 0, 2, 0]
    job.read()
    job.committer.flush(RANGE.computation)
    assert len(job.committed) == 5


def test_what_is_handed_on_is_taken_in_by_the_same_commit() -> None:
    """Also where both together are more than a commit may have: nothing but the cut in it tells of that later."""
    job = Round(bytes_max=1_000)
    job.hand_on(b"x" * 600)
    assert job.keep() == 1
    assert not job.committer._handed_on
    job.committer.commit_round()
    job.hand_on(b"y")
    job.keep()
    job.committer.commit_round()

    for bundle, production in enumerate(job.committed, start=5):
        assert {each.range_id for each in production.fences} == {SENDER, RANGE}
        assert len(production.journal) == 1
        assert not [*production.checkpoints, *production.delivered, *production.acknowledged]
        assert production.cut == dict.fromkeys((SENDER, RANGE), CommitMark(7, bundle))
    assert len(job.committed) == 2
    assert job.reader.outbox.is_empty


def test_the_cut_has_the_last_commits_of_ranges_that_are_not_in_the_commit() -> None:
    job = Round()
    bystander = attrs.evolve(
        job.counter, range_id=RangeId("other", 0), bundle=1, outbox=Outbox((), {})
    )
    job.courier.ranges = {**job.courier.ranges, bystander.range_id: bystander}
    job.hand_on(b"x")
    job.keep()
    job.committer.commit_round()

    assert job.committed[0].cut[bystander.range_id] == CommitMark(7, 1)


@pytest.mark.parametrize("waits", ["for a commit", "for the next round"])
def test_what_is_not_taken_in_within_the_round_is_sent_by_its_commit(waits: str) -> None:
    job = Round(bytes_max=1_000)
    job.hand_on(b"x" * 600)
    if waits == "for a commit":
        job.hand_on(b"y" * 600)
        assert [each.sequence for each in job.committed[0].checkpoints] == [1]
    else:
        assert not job.keep(bytes_max=599), "it is too large for a step"
    job.committer.commit_round()
    job.committer.confirm()

    assert not any(production.cut for production in job.committed)
    assert job.reader.outbox.open_bytes_by_receiver().keys() == {RANGE}
    assert job.count() == 1 + (waits == "for a commit"), "it is there once"


def test_what_is_handed_on_overtakes_nothing_that_was_sent_before() -> None:
    """Nor does it keep a delivery of another sender waiting for ever."""
    job = Round()
    job.read(b"first")
    job.committer.commit_round()
    job.hand_on(b"second")
    assert not job.keep()
    assert job.count() == 2

    other = Channel(RangeId("elsewhere", 0), RANGE)
    job.committer.commit_round()
    job.courier.take_in(Deliver(other, 1, b"third", True, None, None))
    job.hand_on(b"fourth")
    assert not job.keep()
    assert [each.payload for each in job.courier.inbox.take("sum", 10)] == [b"third", b"fourth"]


def test_what_was_sent_and_has_not_come_yet_is_not_overtaken() -> None:
    """The receiver was taken over, and what is on its way to it has not been sent again."""
    job = Round()
    job.read(b"first")
    job.committer.commit_round()
    job.courier.inbox.forget(RANGE)
    job.hand_on(b"second")
    assert not job.keep()
    job.courier.send_all_of([SENDER])
    assert job.count() == 2
