"""What a worker has reported counts while it is the worker of its slot, has its ranges, and sends; and no longer."""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import RangeShape
from runners.millwheel.master.master import MISSING_REPORTED_AFTER_MS, Master
from runners.millwheel.master.slots import LEASE_TTL_MS, PAUSE_TTL_MS
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import CommitMark, RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.long_waits import OVER
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import TroubleKind
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import (
    Assign,
    HandoverEnded,
    RangesReleased,
    Ready,
    Register,
    Report,
    Revoke,
    Waiting,
    Watermarks,
    decode,
    encode,
)
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource
from windowing.timestamps import MIN_TIMESTAMP_US

QUIET, BUSY = (RangeId("read", index) for index in range(2))
HEAD, GONE = (RangeId("group", index) for index in range(2))
#: What the splits have reported: one is far behind, and idle.
QUIET_US, BUSY_US = 10, 1_000


class Job:
    """A master of two splits, each with a worker of its own, for which the test reports."""

    def __init__(self, ranges_per_grouping: int = 1) -> None:
        p = df.Pipeline()
        p | "read" >> df.Read(ScriptedSource([], [])) | "group" >> df.GroupByKey()
        execution, store, network = plan(p.graph()), MemoryStore(), LocalNetwork()
        spec = job_spec(
            "job",
            "streaming",
            execution,
            splits_desired=2,
            ranges_per_grouping=ranges_per_grouping,
        )
        self.clock = ManualClock()
        # Time that has passed before, so that nothing is right by being zero.
        self.clock.advance(5_000)
        self.network = network
        job = store.open_job(spec)
        self.master = Master(job, execution, 2, network.endpoint("master"), self.clock)
        self.endpoints: dict[str, Any] = {}
        self.slots: dict[str, int] = {}
        self.owned: dict[str, tuple[RangeId, ...]] = {}
        self.sent_ms: dict[str, int] = {}
        for slot, name in enumerate(("first", "second")):
            self.begin(slot, name)
        self.slot_of = dict(self.master.ranges)
        self.quiet, self.busy = ("first", "second")[:: 1 if self.slot_of[QUIET] == 0 else -1]

    def begin(self, slot: int, name: str) -> None:
        """A worker registers, and takes over what it is given."""
        self.register(slot, name)
        self.take_over(slot, name)

    def register(self, slot: int, name: str) -> None:
        self.endpoints[name], self.slots[name] = self.network.endpoint(name), slot
        self.send(name, Register(slot=slot, worker=name, address=name))

    def take_over(self, slot: int, name: str) -> None:
        """A worker reports that it has what it was given."""
        for news in self.received(name):
            if isinstance(news, Assign):
                self.owned[name] = tuple(dict.fromkeys([*self.owned.get(name, ()), *news.ranges]))
                self.send(name, Ready(slot=slot, worker=name, ranges=news.ranges, shapes={}))

    def move(self, range_id: RangeId, target: int) -> None:
        """A range goes to another slot; its new worker has not reported yet that it has it."""
        source = self.master.ranges[range_id]
        name = self.worker_of(source)
        self.master.move([range_id], target)
        self.owned[name] = tuple(each for each in self.owned[name] if each != range_id)
        self.send(name, RangesReleased(slot=source, worker=name, ranges=(range_id,)))

    def retire_one(self) -> RangeId:
        """A key range is merged into its neighbour, and is there no more."""
        whole = KeyRange(0, KEY_SPACE_END)
        slot = self.master.ranges[HEAD]
        name, other = self.worker_of(slot), self.worker_of(1 - slot)
        self.master.merge(HEAD, GONE)
        self.owned[other] = tuple(each for each in self.owned[other] if each != GONE)
        self.send(other, RangesReleased(slot=1 - slot, worker=other, ranges=(GONE,)))
        self.take_over(slot, name)
        shapes = {HEAD: RangeShape(whole, None), GONE: RangeShape(None, HEAD)}
        self.send(name, Ready(slot=slot, worker=name, ranges=(HEAD, GONE), shapes=shapes))
        self.send(name, HandoverEnded(slot=slot, worker=name, ranges=(GONE,)))
        self.owned[name] = tuple(each for each in self.owned[name] if each != GONE)
        assert GONE in self.master.retired
        return GONE

    def worker_of(self, slot: int) -> str:
        return self.quiet if slot == self.slot_of[QUIET] else self.busy

    def received(self, name: str) -> Iterator[Any]:
        for blob in self.endpoints[name].receive(0):
            news = decode(blob)
            if isinstance(news, Assign | Watermarks):
                self.sent_ms[name] = news.sent_ms
            yield news

    def send(self, name: str, message: object) -> None:
        self.endpoints[name].send("master", encode(message))
        self.master.step()

    def report(
        self,
        name: str,
        watermarks_us: dict[RangeId, int],
        *,
        idle: Collection[RangeId] = (),
        is_paused: bool = False,
        as_of_ms: int | None = None,
        commits: Mapping[RangeId, CommitMark] = MappingProxyType({}),
        polls: Mapping[RangeId, SplitPoll] = MappingProxyType({}),
    ) -> None:
        """A worker reports, by default on what it has just received from the master."""
        if as_of_ms is None:
            list(self.received(name))
            as_of_ms = self.sent_ms[name]
        outputs_us = {**dict.fromkeys(self.owned[name], MIN_TIMESTAMP_US), **watermarks_us}
        report = Report(
            slot=self.slots[name],
            worker=name,
            watermarks_us=outputs_us,
            idle=frozenset(idle),
            signals={},
            percentiles_us={},
            progress={},
            polls=polls,
            routings={},
            commits=commits,
            is_quiet=is_paused,
            is_paused=is_paused,
            counts=Counts(),
            as_of_ms=as_of_ms,
        )
        self.send(name, report)

    def is_waiting(self) -> bool:
        """Whether event time waits for the quiet split when the busy one goes on."""
        self.report(self.busy, {BUSY: BUSY_US})
        self.master.step()
        return self.input_us <= QUIET_US

    @property
    def input_us(self) -> int:
        return self.master._authority.inputs_us["group"]

    def wait(self, ms: int) -> None:
        """Time goes by in which the busy worker reports that it is alive."""
        for _ in range(0, ms, 100):
            self.clock.advance(100)
            self.master.step()
            self.report(self.busy, {})


@pytest.fixture
def job() -> Job:
    """One whose quiet split is idle."""
    made = Job()
    made.report(made.quiet, {QUIET: QUIET_US}, idle=[QUIET])
    return made


def test_a_split_with_nothing_holds_nobody_back(job: Job) -> None:
    assert not job.is_waiting()


def test_a_split_whose_worker_is_replaced_holds_everybody_back(job: Job) -> None:
    """Until the new one has polled it: what it has nobody knows."""
    slot = job.slot_of[QUIET]
    job.register(slot, "new")

    assert job.is_waiting()
    job.take_over(slot, "new")
    assert job.is_waiting()


def test_a_split_whose_worker_is_silent_holds_everybody_back_when_its_lease_is_over(
    job: Job,
) -> None:
    """The one that has taken it over has not polled it either."""
    job.wait(LEASE_TTL_MS + 200)

    assert job.is_waiting()


def test_a_poll_counts_no_longer_where_the_slot_has_a_longer_lease() -> None:
    """Its workers were slow before, and are given more time; what comes into the split meanwhile is not late."""
    for ms, is_waiting in ((LEASE_TTL_MS - 200, False), (LEASE_TTL_MS + 200, True)):
        made = Job()
        slot = made.master._slots[made.slot_of[QUIET]]
        slot.expired = "slow"
        slot.forgive("slow")
        assert slot.lease_ttl_ms > LEASE_TTL_MS
        made.report(made.quiet, {QUIET: QUIET_US}, idle=[QUIET])
        made.wait(ms)
        assert made.is_waiting() == is_waiting


def test_a_split_that_moves_holds_everybody_back_until_it_is_polled_where_it_is(job: Job) -> None:
    other = 1 - job.slot_of[QUIET]
    job.move(QUIET, other)

    assert job.is_waiting()
    job.take_over(other, job.busy)
    job.report(job.busy, {QUIET: QUIET_US, BUSY: BUSY_US}, idle=[QUIET])
    assert job.input_us == BUSY_US


def test_a_split_that_comes_back_to_its_worker_holds_everybody_back_until_it_is_polled_again(
    job: Job,
) -> None:
    """It was somewhere else meanwhile."""
    here = job.slot_of[QUIET]
    for target in (1 - here, here):
        job.move(QUIET, target)
        job.take_over(target, job.worker_of(target))
    assert job.master.ranges[QUIET] == here

    assert job.is_waiting()


def test_a_report_that_was_long_on_its_way_does_not_count_for_now(job: Job) -> None:
    """Its worker may have been stopped between the poll and the report."""
    job.wait(LEASE_TTL_MS // 2)
    job.report(job.quiet, {QUIET: QUIET_US}, idle=[QUIET], as_of_ms=job.sent_ms[job.quiet])
    assert not Job.is_waiting(job)

    late = Job()
    before_ms = late.sent_ms[late.quiet]
    for _ in range(0, LEASE_TTL_MS + 200, 100):
        late.clock.advance(100)
        late.report(late.busy, {})
        late.report(late.quiet, {QUIET: QUIET_US}, as_of_ms=before_ms)
    late.report(late.quiet, {QUIET: QUIET_US}, idle=[QUIET], as_of_ms=before_ms)
    assert late.is_waiting()


def test_a_worker_that_was_replaced_is_not_believed_any_more(job: Job) -> None:
    """Neither how far it reports to be, nor that it is alive, nor that it has nothing."""
    slot = job.slot_of[QUIET]
    job.begin(slot, "new")
    job.owned[job.quiet] = (QUIET,)
    job.report(job.quiet, {QUIET: BUSY_US}, idle=[QUIET])

    assert job.is_waiting()
    for _ in range(0, LEASE_TTL_MS + 200, 100):
        job.clock.advance(100)
        job.report(job.busy, {})
        job.report(job.quiet, {QUIET: BUSY_US}, idle=[QUIET])
    # It did not keep its successor's lease alive.
    assert job.master.ranges[QUIET] != slot


def test_a_worker_that_has_not_taken_over_reports_nothing_of_its_ranges() -> None:
    """Its slot's last one may have gone further than it knows."""
    job = Job()
    slot = job.slot_of[QUIET]
    job.register(slot, "new")
    job.owned["new"] = job.owned[job.quiet]
    list(job.received("new"))
    for name in (job.busy, "new"):
        job.report(name, dict.fromkeys(job.owned[name], BUSY_US))

    assert job.master._authority.lowest_output_us() == MIN_TIMESTAMP_US
    job.send("new", Ready(slot=slot, worker="new", ranges=job.owned["new"], shapes={}))
    job.report("new", dict.fromkeys(job.owned["new"], BUSY_US))
    assert job.master._authority.lowest_output_us() == BUSY_US


def pause(job: Job, name: str, *, is_paused: bool = True) -> None:
    job.report(name, {}, is_paused=is_paused)


def both_paused(job: Job, ms: int) -> None:
    """Both report again and again for some time that they are paused."""
    for _ in range(0, ms, 50):
        pause(job, job.quiet)
        pause(job, job.busy)
        job.clock.advance(50)
    pause(job, job.quiet)
    pause(job, job.busy)


def test_a_job_is_paused_when_all_have_reported_it_for_a_while(job: Job) -> None:
    both_paused(job, PAUSE_TTL_MS - 50)
    assert not job.master.is_paused
    both_paused(job, 50)
    assert job.master.is_paused


def test_workers_are_asked_to_pause_again_and_again(job: Job) -> None:
    """The first message about it may have been lost, and a worker that comes later has not received it."""
    job.master.is_pausing = True
    for _ in range(3):
        job.clock.advance(1_000)
        job.master.step()
        watermarks = [each for each in job.received(job.quiet) if isinstance(each, Watermarks)]
        assert watermarks
        assert all(each.is_pausing for each in watermarks)
        pause(job, job.busy)
    job.master.is_pausing = False
    job.clock.advance(1_000)
    job.master.step()
    assert not [
        each for each in job.received(job.quiet) if isinstance(each, Watermarks) and each.is_pausing
    ]


@pytest.mark.parametrize("what", ["busy again", "replaced", "takes over"])
def test_a_pause_ends_with_the_ranges_that_were_reported(job: Job, what: str) -> None:
    """Who works again, is new or has got something has to be quiet for a while once more."""
    both_paused(job, PAUSE_TTL_MS)
    assert job.master.is_paused
    slot = job.slot_of[QUIET]
    if what == "busy again":
        pause(job, job.quiet, is_paused=False)
        pause(job, job.quiet)
    elif what == "replaced":
        job.begin(slot, "new")
        job.report("new", {}, is_paused=True)
    else:
        job.send(job.quiet, Ready(slot=slot, worker=job.quiet, ranges=(QUIET,), shapes={}))
        pause(job, job.quiet)

    assert not job.master.is_paused


def test_a_pause_ends_when_somebody_is_silent(job: Job) -> None:
    """One worker that has reported it long ago may work meanwhile."""
    pause(job, job.quiet)
    for _ in range(0, PAUSE_TTL_MS + 100, 50):
        pause(job, job.busy)
        job.clock.advance(50)
    pause(job, job.busy)

    assert not job.master.is_paused


def test_a_worker_that_became_silent_is_sent_nothing_even_if_all_are(job: Job) -> None:
    """It may receive what the master sends: it would go on for ever in a slot that nobody else can have."""
    for _ in range(0, LEASE_TTL_MS + 200, 100):
        job.clock.advance(100)
        job.master.step()
    assert [list(job.received(each)) for each in (job.quiet, job.busy)]
    for _ in range(0, LEASE_TTL_MS + 200, 100):
        job.clock.advance(100)
        job.master.step()

    for name in (job.quiet, job.busy):
        assert not [each for each in job.received(name) if isinstance(each, Assign | Watermarks)]
    job.report(job.quiet, {}, as_of_ms=job.sent_ms[job.quiet])
    job.clock.advance(200)
    job.master.step()
    assert [each for each in job.received(job.quiet) if isinstance(each, Watermarks)]


def noted(job: Job) -> list[tuple[TroubleKind, str, str]]:
    return [(each.kind, each.place, each.headline) for each in job.master.troubles.take()]


def test_a_slot_that_nobody_comes_for_is_reported_and_when_somebody_has_come(job: Job) -> None:
    """Spark has fewer task slots than there are to be workers, or something else has them."""
    assert noted(job) == []
    for _ in range(0, LEASE_TTL_MS + MISSING_REPORTED_AFTER_MS - 1_000, 1_000):
        job.wait(1_000)
    assert noted(job) == []
    job.wait(3_000)
    place = f"slot {job.slot_of[QUIET]}"
    assert noted(job) == [(TroubleKind.WAIT, place, "no worker is there for it")]
    job.wait(20_000)
    assert noted(job) == []
    job.register(job.slot_of[QUIET], "new")
    job.master.step()
    assert noted(job) == [(TroubleKind.RESUMED, place, OVER)]


def test_what_a_worker_waits_for_is_noted_at_its_place(job: Job) -> None:
    """The place is all of the worker, where it names none."""
    waiting = Waiting(slot=1, worker=job.busy, reason="a lock\nof a table")
    job.send(job.busy, waiting)
    job.send(job.busy, attrs.evolve(waiting, place="read[0]", reason="b"))
    job.send(job.busy, attrs.evolve(waiting, place="read[0]", reason="c", is_over=True))
    assert noted(job) == [
        (TroubleKind.WAIT, "slot 1", "a lock"),
        (TroubleKind.WAIT, "read[0]", "b"),
        (TroubleKind.RESUMED, "read[0]", "c"),
    ]


@pytest.mark.parametrize("where", ["in another slot", "retired"])
def test_a_worker_that_reports_what_it_should_not_have_is_asked_to_let_go(where: str) -> None:
    """A range came with one that it has a handover with, or was retired by another while its worker slept.

    Nothing of the report counts: the range's owner, or nobody, reports for it.  Until the worker has let go of it it
    would report it again and again.
    """
    job = Job(ranges_per_grouping=2)
    stray = QUIET if where == "in another slot" else job.retire_one()
    name = job.busy if stray == QUIET else job.worker_of(1 - job.master.ranges[HEAD])
    list(job.received(name))
    owned = job.owned[name]
    job.owned[name] = (*owned, stray)
    job.report(name, dict.fromkeys(job.owned[name], BUSY_US), as_of_ms=0)

    outputs_us = job.master._authority._outputs_us
    assert not [each for each in owned if outputs_us[each] == BUSY_US]
    assert outputs_us.get(stray, MIN_TIMESTAMP_US) < BUSY_US
    assert [each.ranges for each in job.received(name) if isinstance(each, Revoke)] == [(stray,)]
    job.owned[name] = owned
    job.report(name, dict.fromkeys(owned, BUSY_US))
    assert all(outputs_us[each] == BUSY_US for each in owned)


def test_a_worker_keeps_a_range_that_the_master_does_not_know_yet() -> None:
    """It has divided one of its own, and the message about that has not come; what it reports counts when it has."""
    job = Job(ranges_per_grouping=2)
    list(job.received(job.busy))
    owned = job.owned[job.busy]
    job.owned[job.busy] = (*owned, RangeId("group", 7))
    job.report(job.busy, dict.fromkeys(job.owned[job.busy], BUSY_US), as_of_ms=0)

    assert not [each for each in job.received(job.busy) if isinstance(each, Revoke)]
    assert job.master._authority._outputs_us[BUSY] < BUSY_US


def outputs_of(job: Job, range_id: RangeId) -> int:
    return job.master._authority._outputs_us[range_id]


def test_what_an_owner_has_reported_of_a_key_range_does_not_count_for_the_next_one() -> None:
    """It may send from there what belongs to another range that was behind, and has come to it too."""
    job = Job(ranges_per_grouping=2)
    source = job.master.ranges[HEAD]
    name, other = job.worker_of(source), job.worker_of(1 - source)
    job.report(name, dict.fromkeys(job.owned[name], BUSY_US))
    assert outputs_of(job, HEAD) == BUSY_US
    job.move(HEAD, 1 - source)

    assert outputs_of(job, HEAD) == MIN_TIMESTAMP_US
    job.take_over(1 - source, other)
    job.report(other, {HEAD: QUIET_US})
    assert outputs_of(job, HEAD) == QUIET_US
    # Also its own worker begins anew where it has taken the range once more, to reshape it.
    job.report(other, {HEAD: BUSY_US})
    job.send(other, Ready(slot=1 - source, worker=other, ranges=(HEAD,), shapes={}))
    assert outputs_of(job, HEAD) == MIN_TIMESTAMP_US


def test_the_watermark_of_a_job_does_not_go_back_where_a_range_moves() -> None:
    """It is reported to people, and of a range on its way it is only not known."""
    job = Job(ranges_per_grouping=2)
    for name in (job.busy, job.quiet):
        job.report(name, dict.fromkeys(job.owned[name], BUSY_US))
    assert job.master.statistics().watermark_us == BUSY_US
    job.move(HEAD, 1 - job.master.ranges[HEAD])

    assert job.master.statistics().watermark_us == BUSY_US


def test_the_next_owner_of_a_split_need_not_have_had_a_record() -> None:
    """When there was one is known from the owner before; the last poll and its backlog are those of the next."""
    job = Job()
    source = job.master.ranges[QUIET]
    name, other = job.worker_of(source), job.worker_of(1 - source)
    first = SplitPoll(polled_us=7, record_us=5, backlog=df.Backlog(records=3))
    job.report(name, {}, polls={QUIET: first})
    assert job.master.statistics().splits == {QUIET: first}
    job.move(QUIET, 1 - source)
    # A worker that is not its owner any more is not believed.
    job.report(name, {QUIET: QUIET_US}, polls={QUIET: SplitPoll(polled_us=99)})
    assert job.master.statistics().splits == {QUIET: first}
    job.take_over(1 - source, other)
    job.report(other, {}, polls={QUIET: SplitPoll(polled_us=9, backlog=df.Backlog(records=0))})

    after = SplitPoll(polled_us=9, record_us=5, backlog=df.Backlog(records=0))
    assert job.master.statistics().splits == {QUIET: after}
    assert job.master.statistics().backlog() == df.Backlog(records=0)


def test_a_master_knows_the_polls_of_the_one_before() -> None:
    """It is of the same driver, whose store has restarted."""
    before, after = Job(), Job()
    poll = SplitPoll(polled_us=7, record_us=5)
    before.report(before.quiet, {}, polls={QUIET: poll})
    after.master.go_on_counting(before.master.statistics())
    assert after.master.statistics().splits == {QUIET: poll}


def test_what_was_reported_of_a_split_counts_for_its_next_owner() -> None:
    """What is read from a split is sent from nowhere else."""
    job = Job()
    job.report(job.quiet, {QUIET: QUIET_US})
    job.move(QUIET, job.slot_of[BUSY])

    assert outputs_of(job, QUIET) == QUIET_US


def test_who_takes_a_range_over_is_given_what_was_reported_of_the_others_too() -> None:
    """In a store at an earlier moment it can be in handover with another one, which then comes with it."""
    job = Job(ranges_per_grouping=2)
    target = job.master.ranges[GONE]
    name, other = job.worker_of(1 - target), job.worker_of(target)
    job.report(name, {}, commits={HEAD: CommitMark(7, 3)})
    job.report(other, {}, commits={GONE: CommitMark(8, 5)})
    list(job.received(other))
    job.move(HEAD, target)

    (assign,) = [each for each in job.received(other) if isinstance(each, Assign) and each.ranges]
    assert assign.ranges == (HEAD,)
    assert assign.commits == {HEAD: CommitMark(7, 3), GONE: CommitMark(8, 5)}


@pytest.mark.parametrize("end", ["replaced", "silent"])
def test_a_worker_whose_first_message_comes_again_is_not_believed_again(end: str) -> None:
    """It says what its ranges were before its successor has split one, and two ranges would have the same keys."""
    job = Job()
    slot, whole = job.master.ranges[HEAD], KeyRange(0, KEY_SPACE_END)
    former = job.worker_of(slot)
    if end == "replaced":
        owner = "successor"
        job.begin(slot, owner)
    else:
        owner = job.worker_of(1 - slot)
        for _ in range(0, LEASE_TTL_MS + 200, 100):
            job.clock.advance(100)
            job.take_over(1 - slot, owner)
            job.report(owner, {})
        job.take_over(1 - slot, owner)
    now = job.master.ranges[HEAD]
    born = job.master.split(HEAD)
    lower, upper = KeyRange(0, KEY_SPACE_END // 2), KeyRange(KEY_SPACE_END // 2, KEY_SPACE_END)
    shapes = {HEAD: RangeShape(lower, None), born: RangeShape(upper, HEAD)}
    job.send(owner, Ready(slot=now, worker=owner, ranges=(HEAD, born), shapes=shapes))
    list(job.received(former))

    job.register(slot, former)
    shapes = {HEAD: RangeShape(whole, None)}
    job.send(former, Ready(slot=slot, worker=former, ranges=(HEAD,), shapes=shapes))

    assert job.master._shapes.routing.keys == {HEAD: lower, born: upper}
    assert job.master.ranges[HEAD] == now
    assert not [news for news in job.received(former) if isinstance(news, Assign)]
