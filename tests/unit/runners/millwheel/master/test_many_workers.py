"""A master of many workers that all start at once: each is sent once who has what, and each is given its ranges."""

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.master.pace import SIGN_OF_LIFE_MS
from runners.millwheel.model.counts import Counts
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import (
    Assign,
    RangesReleased,
    Ready,
    Register,
    Report,
    Routes,
    Watermarks,
    decode,
    encode,
)
from runners.testing.local_network import LocalNetwork, LocalTransport
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

WORKERS = 40


def received(endpoints: list[LocalTransport]) -> list[list[object]]:
    """What has come for each worker."""
    return [[decode(blob) for blob in each.receive(0)] for each in endpoints]


def test_many_that_start_together_learn_of_each_other_once() -> None:
    p = df.Pipeline()
    p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
    execution, store, network = plan(p.graph()), MemoryStore(), LocalNetwork()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=WORKERS)
    job = store.open_job(spec)
    master = Master(job, execution, WORKERS, network.endpoint("master"), ManualClock())
    endpoints = [network.endpoint(f"w{slot}") for slot in range(WORKERS)]
    for slot, each in enumerate(endpoints):
        each.send("master", encode(Register(slot=slot, worker=f"w{slot}", address=f"w{slot}")))
    master.step()
    asked = received(endpoints)

    assert all(sum(isinstance(one, Routes) for one in each) == 1 for each in asked)
    given = [[one for one in each if isinstance(one, Assign)] for each in asked]
    assert {len(each) for each in given} == {1}
    assert sorted(range_id for (one,) in given for range_id in one.ranges) == sorted(job.ranges)

    for slot, ((one,), each) in enumerate(zip(given, endpoints, strict=True)):
        ready = Ready(slot=slot, worker=f"w{slot}", ranges=one.ranges, shapes={})
        each.send("master", encode(ready))
    master.step()
    for messages in received(endpoints):
        (routes,) = (one for one in messages if isinstance(one, Routes))
        assert routes.addresses == {
            range_id: f"w{slot}" for slot, (one,) in enumerate(given) for range_id in one.ranges
        }


def test_who_has_no_ranges_is_sent_signs_of_life_and_not_every_watermark() -> None:
    p = df.Pipeline()
    p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
    execution, store, network, clock = plan(p.graph()), MemoryStore(), LocalNetwork(), ManualClock()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    job = store.open_job(spec)
    master = Master(job, execution, 2, network.endpoint("master"), clock)
    endpoints = [network.endpoint(f"w{slot}") for slot in range(2)]
    for slot, each in enumerate(endpoints):
        each.send("master", encode(Register(slot=slot, worker=f"w{slot}", address=f"w{slot}")))
    master.step()
    given = [
        tuple(range_id for one in each if isinstance(one, Assign) for range_id in one.ranges)
        for each in received(endpoints)
    ]
    for slot, each in enumerate(endpoints):
        ready = Ready(slot=slot, worker=f"w{slot}", ranges=given[slot], shapes={})
        each.send("master", encode(ready))
    master.step()
    master.move(job.ranges, 0)
    released = RangesReleased(slot=1, worker="w1", ranges=given[1])
    endpoints[1].send("master", encode(released))
    master.step()
    received(endpoints)
    sent = [0, 0]
    for number in range(100):
        report = Report(
            slot=0,
            worker="w0",
            watermarks_us=dict.fromkeys(job.ranges, 1_000 + number),
            idle=frozenset(),
            signals={},
            percentiles_us={},
            progress={},
            polls={},
            routings={},
            commits={},
            is_quiet=True,
            is_paused=False,
            counts=Counts(),
            as_of_ms=0,
        )
        endpoints[0].send(
            "master", encode(Ready(slot=0, worker="w0", ranges=tuple(job.ranges), shapes={}))
        )
        endpoints[0].send("master", encode(report))
        endpoints[1].send("master", encode(Ready(slot=1, worker="w1", ranges=(), shapes={})))
        clock.advance(10)
        master.step()
        for slot, messages in enumerate(received(endpoints)):
            sent[slot] += sum(isinstance(each, Watermarks) for each in messages)

    assert sent[0] == 100
    assert 1_000 // SIGN_OF_LIFE_MS - 1 <= sent[1] <= 1_000 // SIGN_OF_LIFE_MS + 1
