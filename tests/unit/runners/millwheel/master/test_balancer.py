"""Balancer: a master whose workers do what they are asked to gathers a quiet job, and spreads it again."""

import attrs
import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.balancer import INTERVAL_MS, Balancer
from runners.millwheel.master.master import Master
from runners.millwheel.master.placement_policy import PlacementOptions
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import Request, StoredRequest, Verb
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import (
    Assign,
    RangesReleased,
    Ready,
    Register,
    Report,
    Revoke,
    decode,
    encode,
)
from runners.testing.local_network import LocalNetwork, LocalTransport
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

SLOTS = 2
OPTIONS = PlacementOptions(state_bytes_max=1_000)


@attrs.define
class Workers:
    """A master with its balancer, and workers that take over and release what they are asked to, and report."""

    clock: ManualClock = attrs.field(factory=ManualClock)
    owned: list[set[RangeId]] = attrs.field(factory=lambda: [set() for _ in range(SLOTS)])
    long_ms: list[int] = attrs.field(factory=lambda: [0] * SLOTS)
    long_rounds: list[int] = attrs.field(factory=lambda: [0] * SLOTS)
    notes: list[str] = attrs.field(factory=list)
    silent: set[int] = attrs.field(factory=set)
    may_gather: bool = True
    master: Master = attrs.field(init=False)
    balancer: Balancer = attrs.field(init=False)
    _endpoints: list[LocalTransport] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        p = df.Pipeline()
        p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
        execution, network = plan(p.graph()), LocalNetwork()
        spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=4)
        job = MemoryStore().open_job(spec)
        self.master = Master(job, execution, SLOTS, network.endpoint("master"), self.clock)
        self.balancer = Balancer(
            self.master, SLOTS, self.clock, placement=OPTIONS, note=self.notes.append
        )
        self._endpoints = [network.endpoint(f"w{slot}") for slot in range(SLOTS)]
        for slot in range(SLOTS):
            self._send(slot, Register(slot=slot, worker=f"w{slot}", address=f"w{slot}"))

    def _send(self, slot: int, message: object) -> None:
        self._endpoints[slot].send("master", encode(message))

    def run(self, intervals: int, *, long_share: float = 0.0, rounds: int = 1) -> None:
        """Go on for so long, with so much of the time of slot 0 in long rounds, so many in a tenth of an interval."""
        for _ in range(intervals * 10):
            self.clock.advance(INTERVAL_MS // 10)
            self.long_ms[0] += int(long_share * INTERVAL_MS / 10)
            self.long_rounds[0] += rounds
            for slot in range(SLOTS):
                if slot not in self.silent:
                    self._act(slot)
            self.master.step()
            self.balancer.step(may_gather=self.may_gather)

    def _act(self, slot: int) -> None:
        for message in map(decode, self._endpoints[slot].receive(0)):
            if isinstance(message, Assign):
                self.owned[slot].update(message.ranges)
                self._send(
                    slot, Ready(slot=slot, worker=f"w{slot}", ranges=message.ranges, shapes={})
                )
            elif isinstance(message, Revoke):
                self.owned[slot].difference_update(message.ranges)
                released = RangesReleased(slot=slot, worker=f"w{slot}", ranges=message.ranges)
                self._send(slot, released)
        self._send(slot, self._report(slot))

    def _report(self, slot: int) -> Report:
        return Report(
            slot=slot,
            worker=f"w{slot}",
            watermarks_us=dict.fromkeys(self.owned[slot], 0),
            idle=frozenset(),
            signals={},
            percentiles_us={},
            progress={},
            polls={},
            routings={},
            commits={},
            is_quiet=True,
            is_paused=False,
            counts=Counts(long_ms=self.long_ms[slot], long_rounds=self.long_rounds[slot]),
            as_of_ms=0,
        )

    @property
    def sizes(self) -> list[int]:
        """How many ranges each owns."""
        return [len(each) for each in self.owned]


@pytest.mark.parametrize(
    ("long_share", "intervals", "why"),
    # A tenth of an interval is a hundred milliseconds.
    [
        (1.0, OPTIONS.hot_patience, "one worker does not keep up"),
        (0.9, OPTIONS.slow_patience, "one worker has much to do"),
    ],
)
def test_a_quiet_job_is_gathered_and_goes_back_when_its_worker_has_much_to_do(
    long_share: float, intervals: int, why: str
) -> None:
    job = Workers()
    job.run(2)
    spread = [set(each) for each in job.owned]
    job.run(10)
    assert sorted(job.sizes) == [0, 5]
    job.run(1 + intervals, long_share=long_share)
    job.run(1)

    assert job.owned == spread
    assert [note.partition(":")[0] for note in job.notes] == ["there is little to do", why]


def test_a_job_that_is_spread_in_vain_is_gathered_in_the_same_slot() -> None:
    job = Workers()
    job.run(12)
    gathered = [set(each) for each in job.owned]
    # While it is spread one worker has as much to do as all together would have, if both had what it had.
    job.run(1 + OPTIONS.slow_patience, long_share=0.5, rounds=2)
    job.run(3 + OPTIONS.warm_up + OPTIONS.measured, long_share=1.0, rounds=4)

    assert job.owned == gathered
    assert [note.partition(":")[0] for note in job.notes] == [
        "there is little to do",
        "one worker has much to do",
        "all workers have as much to do as one had",
    ]


def test_a_worker_that_is_silent_while_it_has_all_does_not_keep_up() -> None:
    job = Workers()
    job.run(12)
    job.silent = {0, 1}
    job.run(2 + OPTIONS.hot_patience)

    assert [note.partition(":")[0] for note in job.notes][1:] == ["one worker does not keep up"]


def test_a_busy_job_is_not_gathered() -> None:
    job = Workers()
    job.run(20, long_share=0.3)

    assert (min(job.sizes) > 0, job.notes) == (True, [])


def test_a_worker_that_reports_nothing_is_not_idle() -> None:
    """It may be in a round that takes long; what it has done counts when it reports."""
    job = Workers()
    job.run(2)
    for _ in range(10):
        job.silent = {0}
        job.run(2)
        job.silent = set()
        job.run(2)

    assert job.notes == []


def test_where_somebody_has_moved_ranges_they_stay() -> None:
    job = Workers(may_gather=False)
    job.run(20)

    assert (min(job.sizes) > 0, job.notes) == (True, [])


def test_a_request_to_move_a_range_is_one_that_somebody_has_made() -> None:
    job = Workers()
    desk = RequestDesk(job.master, job.clock)
    job.run(2)
    refused = Request(Verb.MOVE, ("group[0]", str(SLOTS)))
    desk.on_requests([StoredRequest(number=1, request=refused)])
    assert not desk.has_moved
    desk.on_requests([StoredRequest(number=2, request=Request(Verb.MOVE, ("group[0]", "1")))])

    assert desk.has_moved


def test_nothing_is_gathered_while_a_worker_is_missing() -> None:
    job = Workers(silent={1})
    job.run(20)

    assert job.notes == []
